# SPDX-License-Identifier: MIT
"""`invoke matrix` (image + build + run + report), `invoke cells` and `invoke report`."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from tierlab.cells.expand import excluded, expand
from tierlab.cells.load import load_matrix
from tierlab.cli.execute import execute
from tierlab.cli.options import given_path, whole_number
from tierlab.errors import ExitCode, UsageError
from tierlab.report.terminal import print_summary
from tierlab.report.text import plural
from tierlab.report.writing import conclude
from tierlab.run.merge import merge
from tierlab.run.prepare import Wish, default_jobs, prepare, with_builds
from tierlab.run.store import find_run, mark_latest

if TYPE_CHECKING:
    from tierlab.cli.options import SelectionWords
    from tierlab.report.model import Summary


def matrix(
    words: SelectionWords,
    engine: str,
    seed: str,
    jobs: str,
    fresh: bool,
    reports: str,
    compare: bool = False,
    each_patch: bool = False,
) -> ExitCode:
    """Run the selected cells and report; the exit code says whether all are as expected.

    With `compare` also whether what no patch may change is the same in all builds of the run.
    """
    if not reports:
        msg = "--reports '' names no folder; nothing was run. Name one, or leave the option out"
        raise UsageError(msg)
    wish = Wish(
        matrix=words.matrix,
        selection=words.checked(),
        builds=words.build_wish,
        engine=engine or None,
        seed=whole_number("seed", seed, 0, None),
        llama_cpp=words.tree,
        fresh=fresh,
        reports=given_path(reports),
        compare=compare,
        each_patch=each_patch,
    )
    workers = whole_number("jobs", jobs, 1, default_jobs()) or 1
    plan = prepare(wish, say=_say)
    interrupted = execute(plan, workers)
    return _report(plan.parent, interrupted)


def _report(run_dir: Path, interrupted: bool) -> ExitCode:
    summary = conclude(run_dir)
    print_summary(summary, Console(), run_dir)
    waiting = _waiting(summary)
    if interrupted and waiting:
        done = summary.total.cells - waiting
        print(f"Interrupted: {done} cells are answered and kept; the same command goes on from here.")
    return summary.exit_code


def _waiting(summary: Summary) -> int:
    return sum(record.undetermined for record in summary.records)


def _say(line: str) -> None:
    print(line, flush=True)


def cells(words: SelectionWords, count: bool) -> ExitCode:
    """List cells, without engine or build; with `count` only numbers."""
    loaded = load_matrix(words.matrix)
    chosen = with_builds(loaded, words.checked(), words.build_wish)
    found = list(expand(loaded, chosen))
    left_out = Counter(item.reason for _, item in excluded(loaded, chosen))
    if count:
        _print_counts(found)
    else:
        sys.stdout.writelines(f"{cell.id}\n" for cell in found)
    lanes = len({cell.lane for cell in found})
    profiles = len({cell.profile for cell in found})
    counts = (plural(len(found), "cell"), plural(lanes, "lane"), plural(profiles, "profile"))
    print("{} in {} on {}".format(*counts), file=sys.stderr)
    for reason, number in left_out.items():
        print(f"{number} excluded: {reason}", file=sys.stderr)
    return ExitCode.AS_EXPECTED


def _print_counts(found: list) -> None:  # type: ignore[type-arg]
    for title, key in (
        ("suite", lambda cell: cell.problem.suite),
        ("profile", lambda cell: cell.profile),
        ("type", lambda cell: cell.problem.weight_type),
        ("path", lambda cell: cell.path),
    ):
        for name, number in Counter(map(key, found)).items():
            print(f"{title:8} {name:28} {number:8}")


def report(run: str) -> ExitCode:
    """Render one run again, or merge several into a new one and render that."""
    folders = [given_path(part.strip()) for part in run.split(",") if part.strip()]
    if not folders:
        msg = "no run folder was named; nothing was reported. Like: invoke report --run reports/latest"
        raise UsageError(msg)
    if len(folders) == 1:
        return _report(find_run(folders[0].parent, folders[0].name), interrupted=False)
    merged = merge(folders, Path("reports").absolute())
    mark_latest(merged)
    return _report(merged, interrupted=False)
