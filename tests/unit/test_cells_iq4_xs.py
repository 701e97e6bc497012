# SPDX-License-Identifier: MIT
"""What matrix.yaml says of the patch series: presets, claims, and the kernel that must run on each CPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tierlab.cells.cell_id import parse_cell_id
from tierlab.cells.claims import expected_claim, expected_kernels, rule_of
from tierlab.cells.expand import expand
from tierlab.cells.load import load_matrix
from tierlab.cells.selection import Selection
from tierlab.errors import UsageError

if TYPE_CHECKING:
    from tierlab.cells.matrix import Matrix
    from tierlab.cells.model import Cell

ROOT = Path(__file__).parents[2]
NAME = "ggml_{kind}_iq4_xs_8x8_q8_K_{suffix}"


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    return load_matrix(ROOT / "matrix.yaml")


def asked(matrix: Matrix, shape: str, build: str, profile: str) -> Cell:
    """A claim's cell: it exists whether or not the path takes the operation."""
    return parse_cell_id(matrix, f"ggml.claims/iq4_xs/{shape}/none.none/repack/t1/{build}/{profile}")


def kernels(matrix: Matrix, m: int, build: str, profile: str, experts: str = "") -> tuple[str, ...]:
    suite = "ggml.mul_mat_id" if experts else "ggml.mul_mat"
    text = f"{suite}/iq4_xs/m{m}n16k256{experts}/blocks.gauss/repack/t1/{build}/{profile}"
    sets = expected_kernels(matrix, parse_cell_id(matrix, text))
    assert all(len(patterns) == 1 for patterns in sets)
    return tuple(patterns[0] for patterns in sets)


def gemm(suffix: str) -> str:
    return NAME.format(kind="gemm", suffix=suffix)


def gemv(suffix: str) -> str:
    return NAME.format(kind="gemv", suffix=suffix)


@pytest.mark.parametrize(
    ("profile", "few", "many"),
    [
        ("cortex-a76", "dotprod", "dotprod"),
        ("neoverse-n1", "dotprod", "dotprod"),
        ("i8mm-nosve", "dotprod", "dotprod"),  # armv8.2_2 is loaded, which has no I8MM
        ("neoverse-n2", "i8mm", "i8mm"),
        ("cortex-a710", "i8mm", "i8mm"),
        ("sve2-128", "i8mm", "i8mm"),
        ("neoverse-v1", "sve", "sve"),
        ("sve2-256", "sve", "sve"),
        ("sve2-384", "sve", "sve"),
        ("sve2-2048", "sve", "sve"),
        ("sme1-svl512", "i8mm", "i8mm"),
        ("sme2-svl128", "i8mm", "i8mm"),
        ("sme2-svl512", "i8mm", "sme2"),
        ("sme2-nosve", "dotprod", "sme2"),
    ],
)
def test_the_kernel_of_each_cpu(matrix: Matrix, profile: str, few: str, many: str) -> None:
    assert kernels(matrix, 1, "patched", profile) == (gemv("dotprod"),)
    assert kernels(matrix, 12, "patched", profile) == (gemm(few),)
    assert kernels(matrix, 16, "patched", profile) == (gemm(many),)
    assert kernels(matrix, 17, "patched", profile) == (gemm(many), gemv("dotprod"))
    assert kernels(matrix, 17, "patched", profile, "e4u2i1") == (gemv("dotprod"),)


def test_prefixes_of_the_series(matrix: Matrix) -> None:
    expected = {1: ("generic", "generic"), 2: ("i8mm", "generic"), 3: ("i8mm", "dotprod")}
    for count, (many, one) in expected.items():
        assert kernels(matrix, 17, f"patched-{count}", "neoverse-n2") == (gemm(many), gemv(one))
    assert kernels(matrix, 4, "patched-4", "neoverse-v1") == (gemm("i8mm"),)
    assert kernels(matrix, 4, "patched-5", "neoverse-v1") == (gemm("sve"),)
    assert kernels(matrix, 16, "patched-5", "sme2-nosve") == (gemm("dotprod"),)


@pytest.mark.parametrize("profile", ["cortex-a53", "cortex-a72", "a64fx"])
def test_nothing_is_claimed_below_dotprod(matrix: Matrix, profile: str) -> None:
    for shape in ("m1n8k256", "m5n64k512", "m1n8k256e4u2i1"):
        assert not expected_claim(matrix, asked(matrix, shape, "patched", profile))


def test_claims(matrix: Matrix) -> None:
    def taken(shape: str, build: str) -> bool:
        return expected_claim(matrix, asked(matrix, shape, build, "neoverse-n2"))

    assert taken("m1n8k256", "patched")
    assert taken("m1n8k256e4u2i1", "patched")
    assert not taken("m1n4k256", "patched")
    assert not taken("m1n12k256", "patched")
    assert not taken("m1n8k256", "stock")
    assert not taken("m1n8k256", "user")
    # ggml counts no dimension of one at the end, and MUL_MAT_ID wants three.
    assert not taken("m1n8k256e1u1i0", "patched")


def test_a_path_that_does_not_take_it_is_wrong_use(matrix: Matrix) -> None:
    with pytest.raises(UsageError, match="path repack does not take it on neoverse-n2 in build stock"):
        parse_cell_id(matrix, "ggml.mul_mat/iq4_xs/m1n8k256/blocks.gauss/repack/t1/stock/neoverse-n2")


def test_vector_lengths_from(matrix: Matrix) -> None:
    rule = replace(
        matrix.paths["repack"].rules[0], types=frozenset({"iq4_xs"}), variant=frozenset(), vector_bits=None
    )
    cases = [
        (
            {"vector_bits_from": 256},
            {"sve2-256", "sve2-384", "a64fx"},
            {"sve2-128", "cortex-a53", "sme2-nosve"},
        ),
        (
            {"streaming_bits_from": 512},
            {"sme2-svl512", "sme2-nosve", "sme1-svl512"},
            {"sme2-svl128", "sve2-512"},
        ),
    ]
    for wanted, fits, others in cases:
        path = replace(matrix.paths["repack"], rules=(replace(rule, **wanted),))  # type: ignore[arg-type]
        changed = replace(matrix, paths={**matrix.paths, "repack": path})
        taken = {
            name for name in fits | others if rule_of(changed, asked(matrix, "m1n8k256", "patched", name))
        }
        assert taken == fits


def test_the_24(matrix: Matrix) -> None:
    cells = list(expand(matrix, Selection(preset="iq4_xs-24")))
    assert len(cells) == 24
    assert {cell.build for cell in cells} == {"patched"}
    assert {cell.path for cell in cells} == {"repack"}
    assert {cell.profile for cell in cells} == {"neoverse-n1", "neoverse-n2"}
    assert {cell.problem.weight_type for cell in cells} == {"iq4_xs", "q4_k"}
    sizes = {(cell.problem.shape.n, cell.problem.shape.k, cell.problem.shape.m) for cell in cells}
    assert sizes == {(64, 512, 1), (64, 512, 4), (64, 512, 5), (64, 256, 8), (128, 1024, 9), (8, 256, 16)}


def test_default_holds_the_presets_of_the_series(matrix: Matrix) -> None:
    everything = {cell.id for cell in expand(matrix, Selection(preset="default", builds=("patched",)))}
    for preset in ("iq4_xs", "iq4_xs-24"):
        assert {cell.id for cell in expand(matrix, Selection(preset=preset))} <= everything


def test_the_preset_covers_what_kernels_get_wrong(matrix: Matrix) -> None:
    cells = [
        cell
        for cell in expand(matrix, Selection(preset="iq4_xs", profiles=("sme2-nosve",)))
        if cell.path == "repack" and cell.problem.op in ("mul_mat", "mul_mat_id")
    ]
    products = [cell.problem for cell in cells if cell.problem.op == "mul_mat"]
    assert {problem.shape.m for problem in products} >= {*range(1, 34), 128, 129, 160}
    assert {problem.shape.k for problem in products} >= {256 << power for power in range(6)}
    assert {cell.threads for cell in cells} == set(range(1, 17))
    assert any(problem.shape.batch != (1, 1) for problem in products)
    experts = {cell.problem.shape.experts for cell in cells if cell.problem.op == "mul_mat_id"}
    assert {2, 64} <= experts
    assert any(cell.problem.shape.idle for cell in cells)
    assert {problem.weights for problem in products} == {"blocks", "gauss", "extremes", "limits"}
    assert {problem.activations for problem in products} >= {
        "onehot",
        "alternating",
        "huge",
        "negzero",
        "zeros",
    }
