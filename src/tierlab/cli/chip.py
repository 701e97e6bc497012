# SPDX-License-Identifier: MIT
"""`invoke chip NAME`: what llama.cpp would do on a product, from cells executed on the nearest profile."""

from __future__ import annotations

from pathlib import Path

from tierlab.cells.load import load_matrix
from tierlab.cli.checks import project_root
from tierlab.dispatch.chips import find_chip, gaps, load_chips, nearest_profile
from tierlab.dispatch.variants import declared_sets
from tierlab.errors import ExitCode
from tierlab.judge.verdict import UNDETERMINED
from tierlab.report.chip_report import ChipAnswer, chip_json, chip_markdown
from tierlab.report.tables import table, write_both
from tierlab.run.survey import Question, survey
from tierlab.run.survey_chip import type_answers

LIST = "list"
"""In place of a name: show what names there are."""


def chip(name: str, engine: str, reports: str, file: str) -> ExitCode:
    """Print and write the answer; exit 1 if a cell is not as expected, 2 if one has no answer."""
    chips = load_chips()
    matrix_file = matrix_path(file)
    matrix = load_matrix(matrix_file)
    if name == LIST:
        rows = [[c.name, c.title, c.cores, nearest_profile(matrix, c).name] for c in chips.values()]
        print(table(["name", "product", "cores", "nearest profile"], rows))
        return ExitCode.AS_EXPECTED
    wanted = find_chip(chips, name)
    profile = nearest_profile(matrix, wanted)
    question = Question(matrix_file, Path(reports) / "chip", engine or None)
    with survey(question, say) as opened:
        hello = opened.hello(profile.name)
        answer = ChipAnswer(
            chip=wanted,
            profile=profile,
            hello=hello,
            gaps=gaps(wanted, hello.features, hello.vector_bits, hello.streaming_bits),
            sets=declared_sets(opened.tree.ggml),
            types=type_answers(opened, profile.name, hello),
        )
        text = chip_markdown(answer)
        written = write_both(opened.plan.run_dir, wanted.name, text, chip_json(answer))
    print(text)
    print(f"written: {written[0]}, {written[1]}")
    return _code(answer)


def _code(answer: ChipAnswer) -> ExitCode:
    seen = [each for item in answer.types for each in item.observations]
    if any(not each.expected and each.verdict not in UNDETERMINED for each in seen):
        return ExitCode.UNEXPECTED
    undetermined = any(each.verdict in UNDETERMINED for each in seen)
    return ExitCode.UNDETERMINED if undetermined else ExitCode.AS_EXPECTED


def matrix_path(file: str) -> Path:
    """The matrix file: as named, or the checkout's where that name does not exist here."""
    path = Path(file)
    return path if path.exists() or file != "matrix.yaml" else project_root() / file


def say(line: str) -> None:
    print(line, flush=True)
