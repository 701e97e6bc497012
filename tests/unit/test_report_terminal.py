# SPDX-License-Identifier: MIT
"""The table at the end of a run, and the words and numbers that all reports share."""

from __future__ import annotations

import io
import math
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from test_store import info, record

from tierlab.judge.verdict import Verdict
from tierlab.report import text
from tierlab.report.model import aggregate
from tierlab.report.terminal import SHOWN, print_summary
from tierlab.run.record import CellRecord, Exclusion, RunInfo


def printed(*records: CellRecord, about: RunInfo | None = None, width: int = 100) -> list[str]:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    print_summary(aggregate(about or info(), list(records)), console, Path("reports/r"))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_a_clean_run_ends_in_one_calm_line() -> None:
    lines = printed(record("a", share=0.42), record("b", share=0.1))
    assert lines[-1] == "Every cell as expected · seed 1 · exit 0"
    assert lines[-2] == "2 cells on 1 profile · 2 pass"
    row = next(line for line in lines if "a64fx" in line)
    assert row.split() == ["a64fx", "2", "2", "42", "%"]
    assert "fail" not in "".join(lines)


def test_columns_appear_with_what_they_hold() -> None:
    lines = printed(record("a"), record("b", Verdict.VACUOUS), record("c", Verdict.UNTESTED))
    head = next(line for line in lines if "profile" in line)
    assert head.split() == ["profile", "cells", "pass", "vacuous", "untested", "worst", "pass"]


def test_neither_cause_nor_reproducer_is_cut_or_broken_over_lines() -> None:
    lines = printed(record("a", Verdict.FAIL, share=44.4, detail="x" * 400), width=60)
    command = f"  invoke matrix --only '{record('a').cell}' --seed 1"
    assert command in lines
    title, detail = lines[lines.index(command) - 2 : lines.index(command)]
    assert title == "fail     ggml.mul_mat q4_0 default (stock): 1 cell on 1 profile, worst 44 × the budget"
    assert detail == f"  {'x' * 400}"


def test_one_cause_of_no_answer_is_told_once() -> None:
    cause = {"verdict": Verdict.UNBUILDABLE, "detail": "x.c:1: error"}
    lines = printed(record("a", **cause), record("a", **cause, type="f32", path="repack"))
    assert "unbuildable ggml.mul_mat 2 types 2 paths (stock): 2 cells on 1 profile" in lines
    assert lines.count("  x.c:1: error") == 1
    assert any(line.startswith("0 cells executed") for line in lines)


def test_many_faults_are_counted_not_listed() -> None:
    faults = [record(f"s{n}", Verdict.FAIL, type=f"t{n}") for n in range(SHOWN + 3)]
    lines = printed(*faults)
    assert sum(line.startswith("  invoke matrix") for line in lines) == SHOWN
    assert "and 3 more groups (3 cells), see reports/r/summary.md" in lines


def test_exclusions_caveats_and_costs_are_printed() -> None:
    about = info(
        exclusions=tuple(Exclusion(f"rule{n}", "why", 2) for n in range(SHOWN + 2)),
        missing_shards=(2, 3),
        notes=("the engine was restarted",),
    )
    lines = printed(
        record("a", wall_ms=1000.0, kernel_ms=250.0), record("b", cached=True), about=about, width=200
    )
    assert "Excluded: 2 × rule0: why" in lines
    assert "Excluded: 4 cells by 2 more rules, see the reports" in lines
    assert "Missing shards: 2, 3. Their cells were not tested." in lines
    assert "the engine was restarted" in lines
    cost = (
        "1 cell executed, 1 from the verdict cache; "
        "1.0 s from request to answer, 25 % of it inside emulated kernels"
    )
    assert f"{cost}. {text.NO_SPEED}" in lines
    assert lines[-1] == "2 shards missing · seed 1 · exit 2"


def test_a_declared_fault_that_is_gone_is_told() -> None:
    lines = printed(record("a", expected=Verdict.FAIL, reason="tail of q4_0"))
    assert (
        "pass     ggml.mul_mat q4_0 default (stock): 1 cell on 1 profile, declared fail (tail of q4_0)"
        in lines
    )
    assert lines[-1] == "1 declared fault gone · seed 1 · exit 1"


def test_undeclared_dependence_on_threads_is_told() -> None:
    lines = printed(*(record("a", threads=n, digest=f"{n}") for n in (1, 2)), width=300)
    assert any(line.startswith("1 problem with other output bytes at another thread count") for line in lines)
    declared = [record("a", threads=n, digest=f"{n}", reason="split-KV") for n in (1, 2)]
    assert not any("output bytes" in line for line in printed(*declared, width=300))


def test_control_characters_do_not_reach_the_terminal() -> None:
    lines = printed(record("a", Verdict.CRASH, detail="\x1b]0;owned\x07 [red]x[/red]"))
    assert "\x1b" not in "".join(lines)
    assert any("[red]x[/red]" in line for line in lines)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (math.nan, "–"),
        (math.inf, "∞"),
        (0.0, "0 %"),
        (0.42, "42 %"),
        (0.00123, "0.12 %"),
        (0.995, "99.5 %"),
        (0.9999, "99.9 %"),
        (1.0, "100 %"),
        (1.5, "1.5 ×"),
        (44.4, "44 ×"),
        (31234.0, "3.1e+04 ×"),
    ],
)
def test_share(value: float, shown: str) -> None:
    assert text.share(value) == shown


@pytest.mark.parametrize(
    ("milliseconds", "shown"),
    [(900, "0.9 s"), (61_000, "61 s"), (149_000, "2 min 29 s"), (3_600_000 * 2.5, "2 h 30 min")],
)
def test_duration(milliseconds: float, shown: str) -> None:
    assert text.duration(milliseconds) == shown


def test_headlines() -> None:
    def of(*records: CellRecord) -> str:
        return text.headline(aggregate(info(), list(records)))

    assert of() == "Nothing was tested"
    assert of(record("a", Verdict.FAIL), replace(record("b"), expected=Verdict.FAIL)) == (
        "1 cell not as expected, 1 declared fault gone"
    )
