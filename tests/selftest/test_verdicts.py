# SPDX-License-Identifier: MIT
"""Each deliberate fault gets exactly its verdict, through the machinery that a run uses.

Every cell is run without its fault as well and must pass: the fault alone makes the verdict.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from harness_rig import Rig
from lane_rig import Lanes, faulty

from tierlab.judge.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tierlab.run.record import CellRecord

pytestmark = pytest.mark.engine

HANG_SECONDS = 2.0
"""The limit for a cell that never answers."""


def on(profile: str, *cells: str) -> tuple[str, ...]:
    """Whole ids of `type/shape/weights.activations/path/threads` of MUL_MAT on a profile."""
    return tuple(f"ggml.mul_mat/{cell}/stock/{profile}" for cell in cells)


# One Armv9 core with I8MM and SVE2 (every path there), one without either.
N2, N1 = "neoverse-n2", "neoverse-n1"

NIBBLES = on(
    N2,
    "q4_0/m5n16k64/blocks.gauss/default/t1",
    "q4_0/m6n24k32/blocks.gauss/repack/t1",
    "q4_0/m1n16k64/blocks.gauss/repack/t1",
    "q4_0/m6n24k32/blocks.gauss/kleidiai/t1",
    "q4_1/m5n61k64/blocks.gauss/default/t1",
    "iq4_nl/m5n61k64/blocks.gauss/default/t1",
    "mxfp4/m6n24k32/blocks.gauss/repack/t1",
    "q4_k/m5n61k512/blocks.gauss/default/t1",
    "q4_k/m6n24k256/blocks.gauss/repack/t1",
    "q5_k/m5n61k512/blocks.gauss/default/t1",
    "iq4_xs/m5n61k512/blocks.gauss/default/t1",
) + on(N1, "q4_0/m5n16k64/blocks.gauss/default/t1", "iq4_nl/m6n24k32/blocks.gauss/repack/t1")

SCALES = on(
    N2,
    "q4_k/m5n61k512/blocks.gauss/default/t1",
    "q4_k/m6n24k256/blocks.gauss/repack/t1",
    "q5_k/m1n16k512/blocks.gauss/repack/t1",
    "iq4_xs/m5n61k512/blocks.gauss/default/t1",
) + on(N1, "iq4_xs/m5n61k512/blocks.gauss/default/t1")

ANY = on(
    N2,
    "q4_0/m5n52k64/blocks.gauss/kleidiai/t1",
    "q8_0/m5n61k64/blocks.gauss/default/t1",
    "q6_k/m5n16k512/blocks.gauss/repack/t1",
    "iq2_xxs/m5n61k512/blocks.gauss/default/t1",
    "tq2_0/m5n61k512/blocks.gauss/default/t1",
    "f32/m5n61k129/blocks.gauss/default/t1",
    "f16/m5n61k129/blocks.gauss/default/t1",
    "bf16/m5n61k129/blocks.gauss/default/t1",
) + on(N1, "f16/m5n61k129/blocks.gauss/default/t1", "q5_1/m5n61k64/blocks.gauss/default/t1")

# Type × path pairs for which another path takes the product too.
ELSEWHERE = on(
    N2,
    "q4_0/m5n16k64/blocks.gauss/default/t1",
    "q4_0/m6n24k32/blocks.gauss/repack/t1",
    "q4_0/m1n16k64/blocks.gauss/repack/t1",
    "q4_0/m6n24k32/blocks.gauss/kleidiai/t1",
    "q8_0/m6n24k32/blocks.gauss/kleidiai/t1",
    "q6_k/m5n16k512/blocks.gauss/repack/t1",
)

# 84 bytes of output leave slack before the guard page, 128 bytes do not.
SLACK = on(N2, "q8_0/m3n7k64/blocks.gauss/default/t1")
FULL = on(N2, "q8_0/m4n8k64/blocks.gauss/default/t1")

LEFT = r"^the kernel left its buffers: "
ILLEGAL = r"^SIGILL in \S*replaces_kernel\S*\+0x[0-9a-f]+ \(instruction 0x00000000\)"

CASES = (
    ("nibble_order", NIBBLES, Verdict.FAIL, r"\d+ of \d+ elements over budget"),
    ("high_scale_bit", SCALES, Verdict.FAIL, r"\d+ of \d+ elements over budget"),
    ("last_column", ANY, Verdict.FAIL, r"all wrong elements are zero, only column \d+ \(the last\) is wrong"),
    ("row_pair", ANY, Verdict.FAIL, r"adjacent columns are swapped \(columns 0 and 1 first\)"),
    ("tail", ANY, Verdict.FAIL, r"\d+ of \d+ elements over budget"),
    ("nan", ANY, Verdict.FAIL, r"the output is all NaN"),
    ("zeros", ANY, Verdict.FAIL, r"the output is all zeros"),
    ("no_kernel", ANY, Verdict.FAIL, r"^\d+ elements of the output were never written$"),
    ("other_kernel", ELSEWHERE, Verdict.VACUOUS, r"^the numbers are right, but \S.* ran 0 times; \S.* ran$"),
    ("illegal", SLACK, Verdict.CRASH, ILLEGAL),
    ("abort", SLACK, Verdict.CRASH, r"^SIGABRT.* it said: .*deliberate fault"),
    ("read_beyond", FULL, Verdict.GUARD, LEFT + r"read activations \+64 in \S*replaces_kernel"),
    ("write_beyond", SLACK, Verdict.GUARD, LEFT + r"write output \+0$"),
    ("write_beyond", FULL, Verdict.GUARD, LEFT + r"write output \+0 in "),
    ("write_input", FULL, Verdict.GUARD, LEFT + r"write activations @"),
)


@pytest.fixture(scope="module")
def lanes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lanes]:
    rig = Rig()
    if not rig.engine.emulated:
        pytest.skip("the profiles of this test are emulated")
    with Lanes(rig, {"stock": faulty(rig)}, tmp_path_factory.mktemp("run")) as made:
        yield made


@pytest.fixture(scope="module")
def sound(lanes: Lanes) -> dict[str, CellRecord]:
    """Every cell of this file without a fault."""
    ids = dict.fromkeys(name for _, cells, _, _ in CASES for name in cells)
    return lanes.run(sorted(ids, key=lambda name: name.rpartition("/")[2]))


def test_without_a_fault_every_cell_passes(sound: dict[str, CellRecord]) -> None:
    wrong = {name: (str(record.verdict), record.detail) for name, record in sound.items()}
    assert {name: found for name, found in wrong.items() if found[0] != "pass"} == {}
    assert all(record.share <= 1 and record.ran for record in sound.values())


@pytest.mark.parametrize(
    ("fault", "cells", "verdict", "words"),
    CASES,
    ids=[f"{fault}-{verdict}-{len(cells)}" for fault, cells, verdict, _ in CASES],
)
def test_with_the_fault(
    lanes: Lanes,
    sound: dict[str, CellRecord],
    fault: str,
    cells: tuple[str, ...],
    verdict: Verdict,
    words: str,
) -> None:
    found = lanes.run(cells, dict.fromkeys(cells, fault))
    got = {name: (str(record.verdict), record.detail) for name, record in found.items()}
    missed = {
        name: (kind, detail)
        for name, (kind, detail) in got.items()
        if kind != verdict or not re.search(words, detail)
    }
    assert missed == {}
    if verdict is Verdict.VACUOUS:
        assert all(record.share <= 1 for record in found.values()), "the numbers are right"
        assert all(found[name].ran.keys() != sound[name].ran.keys() for name in cells)


def test_a_hang_is_a_timeout(lanes: Lanes) -> None:
    (record,) = lanes.run(SLACK, dict.fromkeys(SLACK, "hang"), HANG_SECONDS).values()
    assert (record.verdict, record.detail) == (
        Verdict.TIMEOUT,
        "no answer within 2 s; the process was killed",
    )


def test_bytes_that_depend_on_the_thread_count_fail(lanes: Lanes) -> None:
    """The flipped bit is far inside the budget: only the comparison of thread counts sees it."""
    cells = on(N2, *(f"iq4_xs/m5n61k512/blocks.gauss/default/t{threads}" for threads in (1, 2, 4)))
    assert {record.verdict for record in lanes.run(cells).values()} == {Verdict.PASS}
    found = lanes.run(cells, dict.fromkeys(cells, "thread_dependent"))
    verdicts = [found[name].verdict for name in cells]
    assert verdicts == [Verdict.PASS, Verdict.FAIL, Verdict.FAIL]
    assert {found[name].detail for name in cells[1:]} == {
        "the bytes differ from those with 1 thread; no reason is declared in thread_dependent"
    }
    assert all(found[name].share <= 1 for name in cells)


def test_a_dead_process_costs_its_cell_alone(lanes: Lanes, sound: dict[str, CellRecord]) -> None:
    """Faults of every kind among sound cells of one lane: those give the bytes they always give."""
    cells = ANY[:8]
    deaths = {cells[0]: "illegal", cells[3]: "read_beyond", cells[4]: "abort", cells[6]: "nan"}
    found = lanes.run(cells, deaths)
    wanted = {"illegal": "crash", "read_beyond": "guard", "abort": "crash", "nan": "fail"}
    assert {name: str(found[name].verdict) for name in deaths} == {
        name: wanted[fault] for name, fault in deaths.items()
    }
    rest = [name for name in cells if name not in deaths]
    assert [found[name].digest for name in rest] == [sound[name].digest for name in rest]
    assert {found[name].verdict for name in rest} == {Verdict.PASS}
