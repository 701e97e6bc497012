# SPDX-License-Identifier: MIT
"""Ten faults in the kernels of the patch series: each is caught by the cells named here, others see nothing.

Every fault is a patch on top of the series, in `data/iq4_xs_faults/`. All of them are in one library, and the
environment says which one is there, so that the kernels are compiled once for each architecture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from harness_rig import Rig
from lane_rig import Lanes

from tierlab.cells.builds import parse_build
from tierlab.judge.verdict import Verdict
from tierlab.toolchain.builds import build_tree
from tierlab.toolchain.diff import Patch
from tierlab.toolchain.flags import options_of
from tierlab.toolchain.sources import load_patches, patched_tree

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tierlab.run.record import CellRecord
    from tierlab.toolchain.build import Build

pytestmark = pytest.mark.engine

PATCHES = Path(__file__).with_name("data") / "iq4_xs_faults"
VARIABLE = "TIERLAB_IQ4_XS_FAULT"

# One backend each: DOTPROD (and SME2 where the CPU has it), and I8MM with SVE.
DOTPROD = "patched:armv8.2-a+dotprod:assertions"
I8MM = "patched:armv8.6-a+sve:assertions"


def on(build: str, profile: str, *cells: str) -> tuple[str, ...]:
    """Whole ids of `shape/path/threads` of IQ4_XS on random blocks."""
    made = []
    for cell in cells:
        shape, path, threads = cell.split("/")
        made.append(f"ggml.mul_mat/iq4_xs/{shape}/blocks.gauss/{path}/{threads}/{build}/{profile}")
    return tuple(made)


def n1(*cells: str) -> tuple[str, ...]:
    return on(DOTPROD, "neoverse-n1", *cells)


def n2(*cells: str) -> tuple[str, ...]:
    return on(I8MM, "neoverse-n2", *cells)


def sme2(*cells: str) -> tuple[str, ...]:
    return on(DOTPROD, "sme2-nosve", *cells)


def sve512(*cells: str) -> tuple[str, ...]:
    return on(I8MM, "sve2-512", *cells)


@dataclass(frozen=True)
class Fault:
    """`caught` are the cells that see it, `unseen` cells beside them that must not."""

    name: str
    caught: tuple[str, ...]
    unseen: tuple[str, ...]
    verdicts: frozenset[Verdict] = frozenset({Verdict.FAIL})
    detail: str = "elements over budget"


FAULTS = (
    Fault("lane-order", n2("m4n8k256/repack/t1", "m8n16k512/repack/t1"), n2("m1n16k256/repack/t1")),
    Fault(
        "scale-sign",
        n1("m1n16k512/repack/t1") + n2("m1n16k256/repack/t1"),
        n1("m4n16k512/repack/t1") + n2("m4n8k256/repack/t1"),
    ),
    Fault(
        "high-bits",
        n1("m1n16k256/repack/t1", "m4n16k256/repack/t1")
        + n2("m8n16k512/repack/t1")
        + sme2("m16n16k256/repack/t1")
        + sve512("m4n16k256/repack/t1"),
        n1("m4n16k256/default/t1") + n2("m4n16k256/default/t1"),
    ),
    Fault("nibble-halves", n1("m4n16k256/repack/t1"), n1("m1n16k256/repack/t1")),
    Fault(
        "remainder-rows",
        n2("m4n8k256/repack/t1", "m12n16k256/repack/t1"),
        n2("m8n16k512/repack/t1"),
        detail="never written",
    ),
    Fault("accumulator-reuse", n1("m1n16k256/repack/t1"), n1("m1n8k256/repack/t1", "m4n16k256/repack/t1")),
    Fault(
        "wrong-stride",
        n2("m8n136k256/repack/t3"),
        n2("m8n8k256/repack/t1", "m4n16k256/repack/t3"),
        frozenset({Verdict.FAIL, Verdict.GUARD}),
        "",
    ),
    Fault("missing-tail", n1("m4n16k768/repack/t1"), n1("m4n16k512/repack/t1", "m1n16k768/repack/t1")),
    Fault("za-not-zeroed", sme2("m16n16k512/repack/t1"), sme2("m16n16k256/repack/t1", "m4n16k512/repack/t1")),
    Fault(
        "wrong-predicate",
        sve512("m4n16k256/repack/t1"),
        n2("m4n16k256/repack/t1") + sve512("m1n16k256/repack/t1"),
        frozenset({Verdict.FAIL, Verdict.GUARD}),
        "",
    ),
)


@pytest.fixture(scope="module")
def rig() -> Rig:
    made = Rig()
    if not made.engine.emulated:
        pytest.skip("the profiles of this test are emulated")
    return made


@pytest.fixture(scope="module")
def builds(rig: Rig) -> dict[str, Build]:
    faults = [Patch(path.name, path.read_bytes()) for path in sorted(PATCHES.glob("*.patch"))]
    tree = patched_tree(patches=[*load_patches(), *faults], say=lambda _: None)
    return {
        name: build_tree(
            rig.engine, replace(tree, name=name), options_of(parse_build(name)), say=lambda _: None
        )
        for name in (DOTPROD, I8MM)
    }


@pytest.fixture(scope="module")
def sound(
    rig: Rig, builds: dict[str, Build], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, CellRecord]:
    """All cells of this file with no fault asked for."""
    cells = dict.fromkeys(cell for fault in FAULTS for cell in (*fault.caught, *fault.unseen))
    with Lanes(rig, builds, tmp_path_factory.mktemp("sound")) as lanes:
        return lanes.run(sorted(cells, key=lambda cell: cell.split("/")[-2:]))


@pytest.fixture
def found(
    rig: Rig, builds: dict[str, Build], tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[tuple[Fault, dict[str, CellRecord]]]:
    fault: Fault = request.param
    with Lanes(rig, builds, tmp_path, {VARIABLE: fault.name}) as lanes:
        yield fault, lanes.run((*fault.caught, *fault.unseen))


def test_there_are_ten_and_each_has_its_patch() -> None:
    patches = {path.stem.partition("-")[2] for path in PATCHES.glob("*.patch")}
    assert patches - {"switch"} == {fault.name for fault in FAULTS}
    assert len(FAULTS) == 10


def test_without_a_fault_every_cell_passes(sound: dict[str, CellRecord]) -> None:
    wrong = {cell: record.detail for cell, record in sound.items() if record.verdict is not Verdict.PASS}
    assert wrong == {}


@pytest.mark.parametrize("found", FAULTS, ids=lambda fault: fault.name, indirect=True)
def test_the_fault_is_caught(
    found: tuple[Fault, dict[str, CellRecord]], sound: dict[str, CellRecord]
) -> None:
    fault, records = found
    for cell in fault.caught:
        assert records[cell].verdict in fault.verdicts, f"{cell}: {records[cell].verdict}"
        assert fault.detail in records[cell].detail, cell
        if records[cell].ran:
            assert records[cell].ran == sound[cell].ran, "the same kernel"
    for cell in fault.unseen:
        assert records[cell].verdict is Verdict.PASS, f"{cell}: {records[cell].detail}"
        assert records[cell].digest == sound[cell].digest, cell
