# SPDX-License-Identifier: MIT
"""The project's own matrix: what it must hold, and the schema that describes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from jsonschema import Draft202012Validator

from tierlab.cells.cell_id import parse_cell_id
from tierlab.cells.claims import expected_claim, expected_kernels
from tierlab.cells.expand import expand
from tierlab.cells.load import load_matrix
from tierlab.cells.schema import SCHEMA, VERDICTS, schema_text
from tierlab.cells.selection import Selection
from tierlab.cells.worth import false_alarms, needed_lambda
from tierlab.judge.verdict import Verdict

if TYPE_CHECKING:
    from tierlab.cells.matrix import Matrix

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    return load_matrix(ROOT / "matrix.yaml")


def test_schema_file_is_what_the_code_says() -> None:
    text = (ROOT / "docs" / "matrix.schema.json").read_text(encoding="utf-8")
    assert text == schema_text(), "write it anew: python -m tierlab.cells.schema > docs/matrix.schema.json"
    Draft202012Validator.check_schema(json.loads(text))


def test_schema_closes_every_record() -> None:
    """No mapping of the file takes a key that nobody reads."""

    def walk(schema: dict[str, object]) -> None:
        if schema.get("type") == "object":
            assert "additionalProperties" in schema
        for value in schema.values():
            for part in value if isinstance(value, list) else [value]:
                if isinstance(part, dict):
                    walk(part)

    walk(SCHEMA)


def test_verdicts_are_those_of_the_judge() -> None:
    assert set(VERDICTS) == {verdict.value for verdict in Verdict}


def test_profiles(matrix: Matrix) -> None:
    needed = {"cortex-a53", "cortex-a72", "cortex-a76", "neoverse-n1", "neoverse-v1", "neoverse-n2", "a64fx"}
    assert needed <= set(matrix.profiles)
    sve2 = {
        p.vector_bits for p in matrix.profiles.values() if "sve2" in p.features and "sme" not in p.features
    }
    assert {128, 256, 384, 512, 1024, 2048} <= sve2
    sme = [p for p in matrix.profiles.values() if "sme" in p.features]
    assert all("sme_fa64=off" in p.cpu and "sme_fa64" not in p.features for p in sme)
    assert [p.emulator for p in sme if "sme2" not in p.features] == ["qemu-10.0"]
    assert len({p.streaming_bits for p in sme if "sve" in p.features and "sme2" in p.features}) == 2
    assert [p.streaming_bits for p in sme if "sve" not in p.features] == [512]


@pytest.mark.parametrize(
    ("profile", "variant"),
    [
        ("cortex-a53", "armv8.0_1"),
        ("neoverse-n1", "armv8.2_2"),
        ("neoverse-v1", "armv8.6_1"),
        ("neoverse-n2", "armv8.6_2"),
        ("a64fx", "armv8.0_1"),
        ("sme2-svl512", "armv9.2_2"),
        ("sme2-nosve", "armv8.2_2"),
    ],
)
def test_variant(matrix: Matrix, profile: str, variant: str) -> None:
    """Measured: the backend that ggml loads."""
    assert matrix.variant_of[profile].name == variant


def test_every_type_of_ggml_with_its_size(matrix: Matrix) -> None:
    gguf = pytest.importorskip("gguf")
    sizes = {kind.name.lower(): size for kind, size in gguf.GGML_QUANT_SIZES.items()}
    # gguf 0.19 does not know q2_0; its block is two bytes of scale and 64 two-bit codes.
    sizes["q2_0"] = (64, 18)
    assert {name: (kind.block, kind.bytes) for name, kind in matrix.types.items()} == {
        name: sizes[name] for name in matrix.types
    }
    assert len(matrix.types) == 28


def claims(matrix: Matrix, types: str, shape: str, path: str, profile: str) -> bool:
    cell = parse_cell_id(matrix, f"ggml.claims/{types}/{shape}/none.none/{path}/t1/stock/{profile}")
    return expected_claim(matrix, cell)


@pytest.mark.parametrize(
    ("types", "shape", "path", "profile", "claimed"),
    [
        ("q4_0", "m1n8k32", "repack", "cortex-a72", False),
        ("q4_0", "m1n8k32", "repack", "neoverse-n1", True),
        ("q4_0", "m1n4k32", "repack", "neoverse-n1", True),
        ("q4_0", "m1n6k32", "repack", "neoverse-n1", False),
        ("q4_0", "m1n1k32", "repack", "neoverse-n1", False),
        ("q4_k", "m1n4k256", "repack", "neoverse-n2", False),
        ("q4_k", "m1n8k256", "repack", "neoverse-n2", True),
        ("q4_k", "m1n8k256", "repack", "a64fx", False),
        ("iq4_xs", "m1n8k256", "repack", "neoverse-n2", False),
        ("q2_k", "m1n8k256", "repack", "neoverse-n2", False),
        ("q4_0", "m1n8k32e4u2i1", "repack", "neoverse-n1", True),
        ("q4_0", "m1n8k32b2x1w2x1", "repack", "neoverse-n1", False),
        ("q4_0", "m1n3k32", "kleidiai", "neoverse-n1", True),
        ("q4_0", "m1n1k32", "kleidiai", "neoverse-n1", False),
        ("q4_0", "m1n8k32e4u2i1", "kleidiai", "neoverse-n1", False),
        ("q4_0", "m1n8k32b2x2w1x1", "kleidiai", "neoverse-n1", False),
        ("q4_0", "m1n8k32", "kleidiai", "a64fx", False),
        ("f32", "m1n8k33", "kleidiai", "neoverse-n2", False),
        ("f32", "m1n8k33", "kleidiai", "sme1-svl512", True),
        ("q4_k", "m1n8k256", "kleidiai", "sme2-svl512", False),
    ],
)
def test_claims(matrix: Matrix, types: str, shape: str, path: str, profile: str, claimed: bool) -> None:
    """Read off ggml's own selection code and confirmed by running it."""
    assert claims(matrix, types, shape, path, profile) is claimed


@pytest.mark.parametrize(
    ("cell", "kernels"),
    [
        ("q4_k/m5n8k256/blocks.gauss/default/t1/stock/cortex-a53", [("ggml_vec_dot_q4_K_q8_K",)]),
        ("bf16/m5n8k3/blocks.gauss/default/t1/stock/cortex-a53", [("ggml_vec_dot_bf16",)]),
        ("q4_0/m3n8k32/blocks.gauss/repack/t1/stock/neoverse-n1", [("ggml_gemv_q4_0_4x4_q8_0",)]),
        ("q4_0/m4n8k32/blocks.gauss/repack/t1/stock/neoverse-v1", [("ggml_gemm_q4_0_8x8_q8_0",)]),
        (
            "q4_0/m5n8k32/blocks.gauss/repack/t1/stock/neoverse-n2",
            [("ggml_gemm_q4_0_4x8_q8_0",), ("ggml_gemv_q4_0_4x8_q8_0",)],
        ),
        (
            "q6_k/m4n8k256/blocks.gauss/repack/t1/stock/sme2-nosve",
            [("ggml_gemm_q6_K_8x4_q8_K",)],
        ),
        (
            "q4_0/m5n8k32/blocks.gauss/kleidiai/t1/stock/sme2-nosve",
            [("kai_run_matmul_clamp_f32_f16p1vlx2_qsi4c32p4vlx2_1vlx4vl_sme2_mopa",)],
        ),
        (
            "q4_0/m5n8k32/blocks.gauss/kleidiai/t4/stock/sme2-nosve",
            [("kai_run_matmul_clamp_f32_qsi8d32p4x8_qsi4c32p4x8_16x4_neon_i8mm",)],
        ),
        (
            "q4_0/m1n8k32/blocks.gauss/kleidiai/t1/stock/sve2-256",
            [("kai_run_matmul_clamp_f32_qsi8d32p1x8_qsi4c32p8x8_1x8_sve_dotprod",)],
        ),
        (
            "f16/m2n8k3/blocks.gauss/default/t1/stock/sme2-svl128",
            [("kai_run_matmul_clamp_f32_bf16p2vlx2_bf16p2vlx2_2vlx2vl_sme2_mopa",)],
        ),
        ("f16/m1n8k3/blocks.gauss/default/t1/stock/sme2-svl128", [("ggml_vec_dot_f16",)]),
        ("f16.f16/m2n8k3/blocks.gauss/default/t1/stock/sme2-svl128", [("ggml_vec_dot_f16",)]),
    ],
)
def test_kernels(matrix: Matrix, cell: str, kernels: list[tuple[str, ...]]) -> None:
    assert list(expected_kernels(matrix, parse_cell_id(matrix, f"ggml.mul_mat/{cell}"))) == kernels


def test_no_kernels_where_none_is_counted(matrix: Matrix) -> None:
    cell = parse_cell_id(matrix, "ggml.dequantize/q4_k/m1n8k256/blocks.none/default/t1/stock/cortex-a53")
    assert expected_kernels(matrix, cell) == ()


def test_mul_mat_id_repacked_is_gemv_row_by_row(matrix: Matrix) -> None:
    text = "ggml.mul_mat_id/q4_k/m9n8k256e4u2i1/blocks.gauss/repack/t1/stock/neoverse-n2"
    assert expected_kernels(matrix, parse_cell_id(matrix, text)) == (("ggml_gemv_q4_K_8x8_q8_K",),)


def test_presets(matrix: Matrix) -> None:
    default = list(expand(matrix, Selection()))
    quick = list(expand(matrix, Selection(preset="quick")))
    assert 20_000 <= len(default) <= 30_000
    assert len(quick) <= len(default) / 10
    assert len({cell.profile for cell in default}) >= 14
    assert len({cell.profile for cell in quick}) >= 6
    for cells in (default, quick):
        assert {cell.problem.weight_type for cell in cells} >= set(matrix.types)
        assert {cell.path for cell in cells} == set(matrix.paths)
        assert {cell.problem.suite for cell in cells} == set(matrix.suites)
        assert len({cell.id for cell in cells}) == len(cells)
    shapes = [cell.problem.shape for cell in default if cell.problem.op == "mul_mat"]
    assert {1, 2, 3, 4, 5, 7, 8, 9, 16, 31, 33, 128, 129, 160} <= {shape.m for shape in shapes}
    assert {1, 3, 61, 72} <= {shape.n for shape in shapes}
    assert any(shape.strided for shape in shapes)
    assert any(shape.batch[1] > 1 and shape.weight_batch != shape.batch for shape in shapes)
    assert {1, 2, 4, 8, 16} <= {cell.threads for cell in default}
    assert max(shape.m * shape.n * shape.k for shape in shapes) <= 5_000_000


def test_each_type_reaches_each_path_that_takes_it(matrix: Matrix) -> None:
    pairs = {
        (cell.path, cell.problem.weight_type) for cell in expand(matrix, Selection(suites=("ggml.mul_mat",)))
    }
    repacked = {"q4_0", "q8_0", "q1_0", "iq4_nl", "mxfp4", "q4_k", "q5_k", "q6_k"}
    assert pairs == (
        {("default", name) for name in matrix.types}
        | {("repack", name) for name in repacked}
        | {("kleidiai", name) for name in ("q4_0", "q8_0", "f32")}
    )


def test_budget_arithmetic() -> None:
    lam = needed_lambda(1e6, 365, 1e-3)
    assert false_alarms(lam, 1e6, 365) == pytest.approx(1e-3)
    assert lam == pytest.approx(7.39, abs=0.01)
