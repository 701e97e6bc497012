# SPDX-License-Identifier: MIT
"""From an answer to a judgement: claims, the names of what ran, the matrix's lambda."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from budget_kernels import activations, rows_of

from tierlab.cells.cell_id import parse_cell_id
from tierlab.cells.load import load_matrix
from tierlab.harness.messages import Answer
from tierlab.judge.verdict import Verdict
from tierlab.oracle.product import Operands, expect
from tierlab.run.judging import CellJudge, with_plain_names

if TYPE_CHECKING:
    from tierlab.judge.verdict import Judgement
    from tierlab.oracle.expectation import Expectation

MATRIX = load_matrix(Path(__file__).parents[2] / "matrix.yaml")
RAW, X = rows_of("q4_0", 16, 64), activations(5, 64)
DOT = "ggml_vec_dot_q4_0_q8_0"
GEMM, GEMV = "ggml_gemm_q4_0_4x4_q8_0", "ggml_gemv_q4_0_4x4_q8_0"
ANSWER = Answer(1, "ok", claimed=True, ran={DOT: 80})
HELLO = SimpleNamespace(
    arch="aarch64", variant="libggml-cpu-armv8.2_2.so", features=frozenset({"asimd", "dotprod"}), kernels=9
)


def expectation(operands: Operands) -> Expectation:
    return expect("q4_0", RAW[None, None], X[None, None], operands)


class OneProblem:
    """The problem store of one problem."""

    disagreeing = ""

    def inputs(self, problem: Any) -> Any:
        return None

    def disagreement(self, problem: Any) -> str:
        return self.disagreeing

    def expectation(self, problem: Any, operands: Operands) -> Expectation:
        return expectation(operands)


def judge(
    answer: Answer, path: str = "default", problems: Any = None, matrix: Any = MATRIX, **error: float
) -> Judgement:
    """The judgement of a cell on neoverse-n1; `relative` is an error in units of each element's S."""
    cell = parse_cell_id(MATRIX, f"ggml.mul_mat/q4_0/m5n16k64/blocks.gauss/{path}/t1/stock/neoverse-n1")
    e = expectation(Operands("q8_0"))
    output = (e.y + error.get("relative", 0.0) * e.s).astype(np.float32)
    made = CellJudge(matrix, problems or OneProblem(), HELLO)  # type: ignore[arg-type]
    return made.judge(cell, answer, output.reshape(-1).view(np.uint8))


def test_a_sound_cell_passes() -> None:
    assert judge(ANSWER).verdict is Verdict.PASS


def test_a_path_that_does_not_take_what_it_should_drifts() -> None:
    unclaimed = replace(ANSWER, status="unclaimed", claimed=False, ran={})
    found = judge(unclaimed, "repack")
    assert found.verdict is Verdict.DRIFT
    assert found.detail == "the path does not take an operation that it should take"


def test_a_path_that_takes_what_it_should_not_drifts() -> None:
    """Weights of more than two dimensions are not for the repacked kernels."""
    cell = parse_cell_id(MATRIX, "ggml.mul_mat/q4_0/m5n16k64/blocks.gauss/repack/t1/stock/neoverse-n1")
    planes = replace(cell.problem.shape, batch=(2, 1), weight_batch=(2, 1))
    cell = replace(cell, problem=replace(cell.problem, shape=planes))
    made = CellJudge(MATRIX, OneProblem(), HELLO)  # type: ignore[arg-type]
    assert made.judge(cell, ANSWER, np.zeros(0, np.uint8)).verdict is Verdict.DRIFT
    unclaimed = replace(ANSWER, status="unclaimed", claimed=False)
    assert made.judge(cell, unclaimed, np.zeros(0, np.uint8)).verdict is Verdict.VACUOUS


@pytest.mark.parametrize(
    ("ran", "plain"),
    [
        ({DOT: 80}, {DOT: 80}),
        ({f"{DOT}.constprop.0": 80}, {DOT: 80}),
        ({f"{DOT}.isra.0": 50, DOT: 30}, {DOT: 80}),
        ({f"{DOT}@quants.c": 50, f"{DOT}@other.c": 30}, {DOT: 80}),
        ({f"other|{DOT}": 80}, {"other": 80, DOT: 80}),
        ({f"{DOT}.isra.0|{DOT}": 80}, {DOT: 80}),
    ],
)
def test_calls_count_under_the_names_of_the_source(ran: dict[str, int], plain: dict[str, int]) -> None:
    answer = replace(ANSWER, ran=ran)
    assert with_plain_names(answer).ran == plain
    assert judge(answer).verdict is Verdict.PASS


def test_the_wrong_kernel_is_vacuous_under_any_name() -> None:
    found = judge(replace(ANSWER, ran={"ggml_vec_dot_q4_1_q8_1.constprop.0|quantize_row_q8_0@a.c": 80}))
    assert found.verdict is Verdict.VACUOUS
    assert found.detail == (
        f"the numbers are right, but {DOT} ran 0 times; ggml_vec_dot_q4_1_q8_1, quantize_row_q8_0 ran"
    )


def test_five_rows_of_a_repacked_product_need_both_kernels() -> None:
    assert judge(replace(ANSWER, ran={GEMM: 1, GEMV: 1}), "repack").verdict is Verdict.PASS
    for ran in ({GEMM: 1}, {GEMV: 5}):
        assert judge(replace(ANSWER, ran=ran), "repack").verdict is Verdict.VACUOUS


def test_the_operands_follow_a_kernel_with_a_joined_name() -> None:
    """An alias must not hide which of KleidiAI's packings ran, nor invent a second one."""
    name = "kai_run_matmul_clamp_f32_qsi8d32p4x4_qsi4c32p4x4_16x4_neon_dotprod"
    assert (
        judge(replace(ANSWER, ran={f"alias|{name}.constprop.0@kernel.c": 2}), "kleidiai").verdict
        is Verdict.PASS
    )


def test_kernels_of_two_packings_drift() -> None:
    ran = {
        "kai_run_matmul_clamp_f32_qsi8d32p4x4_qsi4c32p4x4_16x4_neon_dotprod": 1,
        "kai_run_matmul_clamp_f32_f16p1vlx2_qsi4c32p4vlx2_1vlx4vl_sme2_mopa": 1,
    }
    found = judge(replace(ANSWER, ran=ran), "kleidiai")
    assert found.verdict is Verdict.DRIFT
    assert "KleidiAI's dispatch rule allows one" in found.detail


def test_lambda_is_that_of_the_matrix() -> None:
    strict = replace(MATRIX, budgets=replace(MATRIX.budgets, lam=0.01))
    assert judge(ANSWER, relative=1e-7).verdict is Verdict.PASS
    assert judge(ANSWER, relative=1e-7, matrix=strict).verdict is Verdict.FAIL


def test_disagreeing_oracles_judge_nothing_but_a_guard_is_a_guard() -> None:
    problems = OneProblem()
    problems.disagreeing = "the two oracles disagree: row 0"
    found = judge(ANSWER, problems=problems)
    assert (found.verdict, found.detail) == (Verdict.UNTESTED, "the two oracles disagree: row 0")
    assert judge(replace(ANSWER, guard="write output +0"), problems=problems).verdict is Verdict.GUARD
