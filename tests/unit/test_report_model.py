# SPDX-License-Identifier: MIT
"""The aggregate: outcomes, exit code, groups, and the reproducer line."""

from __future__ import annotations

import math
import shlex
from typing import TYPE_CHECKING

import pytest
from test_store import info, record

from tierlab.judge.verdict import Verdict
from tierlab.report.faults import Outcome, outcome, thread_groups
from tierlab.report.model import Summary, aggregate, reproducer, summarise, unanswered
from tierlab.run.record import BuildInfo, CellRecord, RunInfo
from tierlab.run.store import RESULTS, Store

if TYPE_CHECKING:
    from pathlib import Path

PASS = record("a")
FAIL = record("b", Verdict.FAIL, share=4.0)
DECLARED = record("c", Verdict.FAIL, expected=Verdict.FAIL, reason="known")
CURED = record("d", expected=Verdict.FAIL, reason="known")
UNTESTED = record("e", Verdict.UNTESTED)


def of(*records: CellRecord, about: RunInfo | None = None, unnamed: int = 0) -> Summary:
    return aggregate(about or info(), list(records), unnamed=unnamed)


@pytest.mark.parametrize(
    ("entry", "result"),
    [
        (PASS, Outcome.PASS),
        (FAIL, Outcome.UNEXPECTED),
        (DECLARED, Outcome.DECLARED),
        (CURED, Outcome.CURED),
        (UNTESTED, Outcome.UNDETERMINED),
        (record("f", Verdict.UNBUILDABLE), Outcome.UNDETERMINED),
        (record("f", Verdict.VACUOUS), Outcome.UNEXPECTED),
        (record("f", Verdict.CRASH, expected=Verdict.FAIL), Outcome.UNEXPECTED),
        (record("f", Verdict.UNTESTED, expected=Verdict.FAIL), Outcome.UNDETERMINED),
    ],
)
def test_outcomes(entry: CellRecord, result: Outcome) -> None:
    assert outcome(entry) is result


@pytest.mark.parametrize(
    ("records", "code"),
    [
        ((PASS, DECLARED), 0),
        ((PASS, FAIL), 1),
        ((PASS, CURED), 1),
        ((PASS, UNTESTED), 2),
        ((FAIL, UNTESTED), 1),
        ((), 2),
        *(
            ((record("x", Verdict(verdict)),), 1)
            for verdict in ("vacuous", "drift", "guard", "abi", "crash", "timeout")
        ),
        ((record("x", Verdict.UNBUILDABLE),), 2),
    ],
)
def test_exit_code(records: tuple[CellRecord, ...], code: int) -> None:
    assert of(*records).exit_code == code


def test_cells_that_never_started_are_undetermined() -> None:
    assert of(PASS, unnamed=1).exit_code == 2
    assert of(PASS, about=info(missing_shards=(2,))).exit_code == 2


def test_a_run_read_back_names_the_cells_without_an_answer(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.append_many([PASS, record("z", Verdict.UNTESTED), record("z")])
        store.write_cells([PASS.cell, FAIL.cell, record("z").cell])
        store.write_run_info(info(asked=5))
    with (tmp_path / RESULTS).open("ab") as stream:
        stream.write(b'{"cell":"torn')
    summary = summarise(tmp_path)
    assert [(entry.shape, entry.verdict.value) for entry in summary.records] == [
        ("a", "pass"),
        ("z", "pass"),
        ("b", "untested"),
    ]
    assert (summary.unnamed, len(summary.torn), summary.exit_code) == (2, 1, 2)


def test_an_unanswered_cell_gets_its_axes_from_its_id() -> None:
    entry = unanswered("ggml.mul_mat/f16.f16/m1n8k32/blocks.gauss/kleidiai/t16/user/a64fx")
    axes = (
        entry.suite,
        entry.type,
        entry.shape,
        entry.inputs,
        entry.path,
        entry.threads,
        entry.build,
        entry.profile,
    )
    assert axes == ("ggml.mul_mat", "f16.f16", "m1n8k32", "blocks.gauss", "kleidiai", 16, "user", "a64fx")
    assert (unanswered("odd/id").profile, unanswered("odd/id").cell) == ("?", "odd/id")


def test_like_faults_form_one_group_with_the_worst_in_front() -> None:
    faults = [
        record("a", Verdict.FAIL, share=2.0),
        record("b", Verdict.FAIL, share=900.0, profile="neoverse-n1"),
        record("c", Verdict.FAIL, share=math.nan, type="q8_0"),
        record("d", Verdict.GUARD),
    ]
    groups = of(*faults).of(Outcome.UNEXPECTED)
    assert [[entry.shape for entry in group.records] for group in groups] == [["d"], ["c"], ["b", "a"]]
    assert groups[2].profiles == ("a64fx", "neoverse-n1")


def test_tallies() -> None:
    summary = of(record("a", share=0.2), record("b", share=0.7), record("c", share=math.nan), FAIL)
    assert (summary.total.cells, summary.total.verdicts[Verdict.PASS], summary.total.worst_share) == (
        4,
        3,
        0.7,
    )
    assert list(summary.squares) == [("a64fx", "default", "q4_0")]
    assert math.isnan(of(FAIL).total.worst_share)


def test_cached_cells_cost_nothing() -> None:
    summary = of(record("a", wall_ms=4.0, kernel_ms=1.0), record("b", cached=True, wall_ms=9.0), UNTESTED)
    assert (summary.executed, summary.cached, summary.wall_ms, summary.kernel_ms) == (1, 1, 4.0, 1.0)


def test_dependence_on_threads() -> None:
    same = [record("a", threads=n, digest="x") for n in (1, 4)]
    other = [record("b", threads=n, digest=f"{n}") for n in (4, 1)]
    known = [record("c", threads=n, digest=f"{n}", reason="SME cap") for n in (1, 4)]
    found = of(*same, *other, *known, record("b", threads=8)).thread_dependence
    assert [(entry.cell.split("/")[2], entry.threads, entry.declared) for entry in found] == [
        ("b", (1, 4), ""),
        ("c", (1, 4), "SME cap"),
    ]
    assert [(group.declared, len(group.members)) for group in thread_groups(found)] == [
        ("", 1),
        ("SME cap", 1),
    ]


@pytest.mark.parametrize(
    ("about", "words"),
    [
        (info(), []),
        (info(preset="default"), []),
        (info(preset="full"), ["--preset", "full"]),
        (info(builds=(BuildInfo("user", "x", path="/home/a b/it's"),)), []),
    ],
)
def test_reproducer(about: RunInfo, words: list[str]) -> None:
    assert shlex.split(reproducer(PASS, about)) == [
        "invoke",
        "matrix",
        "--only",
        PASS.cell,
        "--seed",
        "1",
        *words,
    ]


def test_reproducer_of_a_users_tree_survives_the_shell() -> None:
    about = info(builds=(BuildInfo("user", "x", path="/home/a b/it's $HOME"),))
    line = reproducer(record("a", build="user", cell="$(x) 'y'"), about)
    assert shlex.split(line)[3] == "$(x) 'y'"
    assert shlex.split(line)[-2:] == ["--llama-cpp", "/home/a b/it's $HOME"]
