# SPDX-License-Identifier: MIT
"""A fault in one line of a kernel: cells that reach it fail, all others give the bytes of the sound build."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from harness_rig import Rig
from lane_rig import Lanes

from tierlab.judge.verdict import Verdict
from tierlab.toolchain.builds import build_tree
from tierlab.toolchain.cache import remove_tree
from tierlab.toolchain.flags import Mode, Options
from tierlab.toolchain.sources import user_tree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tierlab.run.record import CellRecord

pytestmark = pytest.mark.engine

# As the tests of builds: so that the compiler cache has all but the two changed files.
ONE_MARCH = Options(mode=Mode.MARCH, march="armv8.2-a+dotprod")

# File of arch/arm, kernel, its line, what it becomes. The kernels for one -march with dotprod and no I8MM.
FAULTS = (
    # The mask of the low nibbles loses a bit.
    (
        "quants.c",
        "void ggml_vec_dot_q4_0_q8_0(",
        "const uint8x16_t m4b = vdupq_n_u8(0x0F);",
        "const uint8x16_t m4b = vdupq_n_u8(0x07);",
    ),
    # The minima of four columns take the scale of the next row of activations.
    (
        "repack.cpp",
        "void ggml_gemm_q4_K_8x4_q8_K(",
        "sbd_min_4567[2]   = vmulq_laneq_f32(q4_dmin_4567, q8_d_0123, 2);",
        "sbd_min_4567[2]   = vmulq_laneq_f32(q4_dmin_4567, q8_d_0123, 3);",
    ),
)

BROKEN = (
    "ggml.mul_mat/q4_0/m5n16k64/blocks.gauss/default/t1",
    "ggml.mul_mat/q4_0/m1n64k96/blocks.gauss/default/t1",
    "ggml.mul_mat_id/q4_0/m1n16k64e8u2i2/blocks.gauss/default/t1",
    "ggml.mul_mat/q4_k/m4n24k768/blocks.gauss/repack/t1",
    "ggml.mul_mat/q4_k/m6n24k256/blocks.gauss/repack/t1",
)
SOUND = (
    # The same types where the faulty kernels do not run.
    "ggml.mul_mat/q4_0/m6n24k32/blocks.gauss/repack/t1",
    "ggml.mul_mat/q4_0/m6n24k32/blocks.gauss/kleidiai/t1",
    "ggml.mul_mat/q4_k/m5n16k512/blocks.gauss/default/t1",
    "ggml.mul_mat/q4_k/m1n16k512/blocks.gauss/repack/t1",
    # A single block of weights is the odd one, which the kernel leaves to portable code.
    "ggml.mul_mat/q4_0/m5n16k32/blocks.gauss/default/t1",
    # Types whose kernels lie in the same two files.
    "ggml.mul_mat/iq4_xs/m5n61k512/blocks.gauss/default/t1",
    "ggml.mul_mat/q4_1/m5n16k64/blocks.gauss/default/t1",
    "ggml.mul_mat/q6_k/m6n24k256/blocks.gauss/repack/t1",
    "ggml.mul_mat/q8_0/m6n24k32/blocks.gauss/repack/t1",
    "ggml.quantize/q8_0/m5n1k96/none.gauss/default/t1",
    "ggml.dequantize/q4_0/m1n8k64/blocks.none/default/t1",
)


def spoil(directory: Path, file: str, kernel: str, line: str, instead: str) -> None:
    """Change the last such line of one function."""
    source = directory / file
    text = source.read_text()
    start = text.index(kernel)
    end = text.index("\nvoid ", start)
    at = text.rindex(line, start, end)
    source.write_text(text[:at] + instead + text[at + len(line) :])


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, CellRecord]]]:
    """Build → cell without its build and profile → record, of all cells of this file."""
    rig = Rig()
    if not rig.engine.emulated:
        pytest.skip("the profile of this test is emulated")
    copy = tmp_path_factory.mktemp("user") / "llama.cpp"
    shutil.copytree(rig.tree.ggml, copy / "ggml")
    for fault in FAULTS:
        spoil(copy / "ggml/src/ggml-cpu/arch/arm", *fault)
    trees = {"stock": rig.tree, "user": user_tree(copy)}
    builds = {
        name: build_tree(rig.engine, tree, ONE_MARCH, say=lambda _: None) for name, tree in trees.items()
    }
    with Lanes(rig, builds, tmp_path_factory.mktemp("run")) as lanes:
        yield {
            name: {
                cell.removesuffix(f"/{name}/neoverse-n1"): record
                for cell, record in lanes.run(
                    f"{cell}/{name}/neoverse-n1" for cell in (*BROKEN, *SOUND)
                ).items()
            }
            for name in builds
        }
    remove_tree(
        builds["user"].log.parent
    )  # a folder's work is kept under the folder's name: never used again


def test_the_sound_build_passes_everywhere(found: dict[str, dict[str, CellRecord]]) -> None:
    wrong = {cell: record.detail for cell, record in found["stock"].items() if record.verdict != "pass"}
    assert wrong == {}


@pytest.mark.parametrize("cell", BROKEN)
def test_the_faulty_kernel_fails(found: dict[str, dict[str, CellRecord]], cell: str) -> None:
    record = found["user"][cell]
    assert record.verdict is Verdict.FAIL, record.detail
    assert record.share > 100
    assert record.ran == found["stock"][cell].ran


def test_a_wrong_scale_is_told_by_its_place(found: dict[str, dict[str, CellRecord]]) -> None:
    """Row 2 of four, the right half of each eight columns."""
    detail = found["user"]["ggml.mul_mat/q4_k/m4n24k768/blocks.gauss/repack/t1"].detail
    assert "12 of 96 elements over budget" in detail
    assert "only row 2 is wrong" in detail


@pytest.mark.parametrize("cell", SOUND)
def test_every_other_kernel_gives_the_same_bytes(found: dict[str, dict[str, CellRecord]], cell: str) -> None:
    record = found["user"][cell]
    assert record.verdict is Verdict.PASS, record.detail
    assert record.digest
    assert record.digest == found["stock"][cell].digest
