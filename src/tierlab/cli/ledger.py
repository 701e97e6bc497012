# SPDX-License-Identifier: MIT
"""`invoke ledger`: what was announced, compiled in and executed; rules of dispatch tested on every row."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from tierlab.cells.builds import sdist_version
from tierlab.cells.load import load_matrix
from tierlab.cli.chip import matrix_path, say
from tierlab.cli.ledger_options import LedgerWords, ask_of, environment_of
from tierlab.cli.options import given_path, tree_path
from tierlab.dispatch.rules import RULES, load_rules
from tierlab.errors import ExitCode, UsageError
from tierlab.report.ledger_diff import diff_json, diff_markdown
from tierlab.report.ledger_docs import COMPARISON, RUN, generated, generated_diff, write_docs
from tierlab.report.ledger_json import ledger_json
from tierlab.report.ledger_report import long_form, short_form
from tierlab.report.ledger_summary import exit_code
from tierlab.report.tables import write_both
from tierlab.run.ledger_binaries import Binaries
from tierlab.run.ledger_file import LEDGER, append, find, read
from tierlab.run.ledger_provenance import header
from tierlab.run.ledger_rows import Ledger
from tierlab.run.store import create_run_dir, now
from tierlab.run.survey import Question, surveys
from tierlab.run.survey_ledger import LedgerSurvey

if TYPE_CHECKING:
    from pathlib import Path

    from tierlab.dispatch.rules import Rule
    from tierlab.run.survey import Survey
    from tierlab.run.survey_ledger import Ask


def ledger(words: LedgerWords, engine: str, reports: str, file: str) -> ExitCode:
    """Record a run and print it short, or compare two recorded runs.

    Exit 0 if every prediction held, 1 if one did not (or a product is wrong), 2 if something is not known.
    """
    folder = given_path(reports) / "ledger"
    if words.diff:
        return _compare(folder, words)
    matrix_file = matrix_path(file)
    matrix = load_matrix(matrix_file)
    rules_file = given_path(words.rules) if words.rules else RULES
    rules = load_rules(rules_file)
    digest = hashlib.sha256(rules_file.read_bytes()).hexdigest()
    asked = ask_of(words, matrix)
    question = Question(
        matrix=matrix_file,
        reports=folder,
        engine=engine or None,
        builds=words.builds(matrix.builds),
        llama_cpp=tree_path(words.llama_cpp) if words.llama_cpp else None,
        environment=environment_of(words.env),
    )
    done = []
    with surveys(question, say) as opened:
        for survey in opened:
            found = _recorded(survey, asked, rules, digest)
            append(folder / LEDGER, found)
            done.append(found)
            _show(found, rules, survey.plan.run_dir, alone=len(opened) == 1)
        for other in done[1:]:
            _show_diff(
                *_old_and_new(done[0], other), opened[0].plan.run_dir, _name("diff", other, len(done) == 2)
            )
    print(f"appended to {folder / LEDGER}: {', '.join(each.run.run for each in done)}")
    if words.docs:
        print(f"tables written: {write_docs(given_path(words.docs), RUN, generated(done[0], rules))}")
    return _worst(done)


def _recorded(survey: Survey, asked: Ask, rules: tuple[Rule, ...], digest: str) -> Ledger:
    started = now()
    name = f"{survey.plan.run_dir.name}@{survey.name}"
    asking = LedgerSurvey(survey, rules, Binaries(survey.bench.engine), name)
    asking.ask(asked, say)
    code = exit_code(asking.rows, asking.told)
    return Ledger(header(asking, started, code, digest), tuple(asking.rows))


def _show(found: Ledger, rules: tuple[Rule, ...], folder: Path, alone: bool) -> None:
    print(f"\n{short_form(found, rules)}")
    written = write_both(
        folder, _name("ledger", found, alone), long_form(found, rules), ledger_json(found, rules)
    )
    print(f"written: {written[0]}, {written[1]}")


def _name(stem: str, found: Ledger, alone: bool) -> str:
    return stem if alone else f"{stem}-{found.run.build.replace(':', '-')}"


def _old_and_new(first: Ledger, other: Ledger) -> tuple[Ledger, Ledger]:
    """In the order of the builds, but a published package is older than what is at hand."""
    return (other, first) if sdist_version(other.run.build) is not None else (first, other)


def _compare(folder: Path, words: LedgerWords) -> ExitCode:
    runs = words.diff
    if len(runs) != 2:
        msg = (
            f"--diff compares two runs and {len(runs)} are named; nothing was compared. Write --diff OLD,NEW"
        )
        raise UsageError(msg)
    torn: list[str] = []
    known = read(folder / LEDGER, torn)
    for place in torn:
        say(f"tierlab: passed over: {place} (cut short)")
    old, new = (find(folder / LEDGER, word, known) for word in runs)
    if words.docs:
        write_docs(given_path(words.docs), COMPARISON, generated_diff(old, new))
    return _show_diff(old, new, create_run_dir(folder), "diff")


def _show_diff(old: Ledger, new: Ledger, folder: Path, name: str) -> ExitCode:
    text = diff_markdown(old, new)
    written = write_both(folder, name, text, diff_json(old, new))
    print(f"\n{text}\nwritten: {written[0]}, {written[1]}")
    return ExitCode.AS_EXPECTED


def _worst(done: list[Ledger]) -> ExitCode:
    codes = [exit_code(each.rows, each.run.profiles) for each in done]
    for code in (ExitCode.UNEXPECTED, ExitCode.UNDETERMINED):
        if code in codes:
            return code
    return ExitCode.AS_EXPECTED
