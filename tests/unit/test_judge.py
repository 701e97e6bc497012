# SPDX-License-Identifier: MIT
"""Verdicts: their order, the kernels that must have run, schemes, hybrid products."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from budget_kernels import activations, rows_of

from tierlab.errors import HarnessError
from tierlab.harness.messages import Answer
from tierlab.judge.judge import idle_kernels, judge_claim, judge_product
from tierlab.judge.scheme import Machine, Scheme, machine_of, schemes
from tierlab.judge.verdict import Verdict
from tierlab.oracle.expectation import Rule
from tierlab.oracle.product import Operands, expect

if TYPE_CHECKING:
    from tierlab.oracle.expectation import Expectation

M4 = Machine(
    "aarch64", "libggml-cpu-armv8.2_2.so", frozenset({"asimd", "fp16", "dotprod", "i8mm", "sme", "sme2"})
)
A53 = Machine("aarch64", "libggml-cpu-armv8.0_1.so", frozenset({"asimd"}))
X86 = Machine("x86_64", "static", frozenset())
DOT = "ggml_vec_dot_q4_0_q8_0"
GOOD = Answer(1, "ok", claimed=True, ran={DOT: 40})
F16P = "kai_run_matmul_clamp_f32_f16p1vlx2_qsi4c32p4vlx2_1vlx4vl_sme2_mopa"
QSI8 = "kai_run_matmul_clamp_f32_qsi8d32p4x8_qsi4c32p4x8_16x4_neon_i8mm"
QAI8 = "kai_run_matmul_clamp_f32_qai8dxp4x8_qsi8cxp4x8_16x4_neon_i8mm"


@pytest.fixture
def cell() -> tuple[np.ndarray, Scheme, Expectation]:
    raw, x = rows_of("q4_0", 8, 128), activations(5, 128)
    (scheme,) = schemes("default", "q4_0", A53, m=5, ran=GOOD.ran)
    e = expect("q4_0", raw[None, None], x[None, None], scheme.operands)
    return e.y.astype(np.float32), scheme, e


def test_right_numbers_from_the_right_kernel_pass(cell: tuple[np.ndarray, Scheme, Expectation]) -> None:
    out, scheme, e = cell
    found = judge_product(GOOD, out, [(scheme, e)], expected_kernels=((DOT,),))
    assert found.verdict is Verdict.PASS
    assert 0 < found.share < 1
    assert found.resolution > 1
    assert found.detail == ""


def test_right_numbers_from_another_kernel_are_vacuous(cell: tuple[np.ndarray, Scheme, Expectation]) -> None:
    out, scheme, e = cell
    expected = (("ggml_gemm_q4_0_*",), (DOT,))
    found = judge_product(GOOD, out, [(scheme, e)], expected_kernels=expected)
    assert found.verdict is Verdict.VACUOUS
    assert "ggml_gemm_q4_0_* ran 0 times" in found.detail
    assert DOT in found.detail
    assert (
        judge_product(GOOD, out, [(scheme, e)], expected_kernels=expected, counting=False).verdict
        is Verdict.PASS
    )


def test_zero_calls_are_no_run() -> None:
    assert (
        idle_kernels({DOT: 0}, ((DOT,),))
        == f"the numbers are right, but {DOT} ran 0 times; no counted kernel ran"
    )
    assert idle_kernels({DOT: 3}, (("x", DOT),)) == ""
    assert idle_kernels({DOT: 3, "other_generic": 3}, ((DOT,),)) == ""


def test_a_kernel_that_hands_on_to_its_portable_twin_computed_nothing() -> None:
    found = idle_kernels({DOT: 3, f"{DOT}_generic": 2}, (("*dot*",),))
    assert found == f"the numbers are right, but portable code made them: {DOT}_generic ran 2 times"


def test_wrong_numbers_fail_before_anyone_asks_what_ran(cell: tuple[np.ndarray, Scheme, Expectation]) -> None:
    out, scheme, e = cell
    out[2, 3] += 1e-3
    found = judge_product(GOOD, out, [(scheme, e)], expected_kernels=(("never",),))
    assert found.verdict is Verdict.FAIL
    assert found.share > 1
    assert "row 2 column 3" in found.detail


@pytest.mark.parametrize(
    ("change", "verdict", "text"),
    [
        ({"guard": "write output +4"}, Verdict.GUARD, "write output +4"),
        ({"status": "error", "message": "no buffer"}, Verdict.FAIL, "no buffer"),
        ({"unwritten": 7}, Verdict.FAIL, "7 elements of the output were never written"),
        ({"unstable": 2}, Verdict.FAIL, "2 elements differ between repetitions"),
        ({"status": "unclaimed", "claimed": False}, Verdict.VACUOUS, "nothing was computed"),
    ],
)
def test_what_makes_numbers_meaningless_comes_first(
    cell: tuple[np.ndarray, Scheme, Expectation], change: dict[str, object], verdict: Verdict, text: str
) -> None:
    out, scheme, e = cell
    found = judge_product(replace(GOOD, **change), out, [(scheme, e)])
    assert found.verdict is verdict
    assert text in found.detail


def test_claims(cell: tuple[np.ndarray, Scheme, Expectation]) -> None:
    out, scheme, e = cell
    unclaimed = replace(GOOD, status="unclaimed", claimed=False)
    assert judge_product(unclaimed, out, [(scheme, e)], claim_expected=True).verdict is Verdict.DRIFT
    assert judge_product(unclaimed, out, [(scheme, e)], claim_expected=False).verdict is Verdict.VACUOUS
    assert judge_product(GOOD, out, [(scheme, e)], claim_expected=False).verdict is Verdict.DRIFT
    assert judge_claim(GOOD, True).verdict is Verdict.PASS
    assert "does not take an operation that it should take" in judge_claim(unclaimed, True).detail
    assert "takes an operation that it should not take" in judge_claim(GOOD, False).detail


def test_an_output_of_the_wrong_size_fails(cell: tuple[np.ndarray, Scheme, Expectation]) -> None:
    out, scheme, e = cell
    assert "39 elements, 40 were asked for" in judge_product(GOOD, out.reshape(-1)[:39], [(scheme, e)]).detail


def test_nothing_compared_is_vacuous() -> None:
    raw, x = rows_of("q4_0", 4, 32), np.full((2, 32), np.nan, np.float32)
    (scheme,) = schemes("default", "q4_0", A53, m=2, ran={})
    e = expect("q4_0", raw[None, None], x[None, None], scheme.operands)
    found = judge_product(GOOD, np.zeros((2, 4), np.float32), [(scheme, e)])
    assert found.verdict is Verdict.VACUOUS
    assert "nothing was compared" in found.detail


@pytest.mark.parametrize(
    ("path", "kind", "machine", "ran", "operands", "family", "name"),
    [
        ("default", "q4_K", A53, {}, Operands("q8_k"), "vec_dot", "q4_k"),
        ("repack", "q4_K", M4, {}, Operands("q8_k"), "repack", "q4_k"),
        ("default", "q5_1", X86, {}, Operands("q8_1"), "generic", "q5_1"),
        ("default", "f16", A53, {}, Operands("f16"), "vec_dot", "f16"),
        ("default", "f16", M4, {"ggml_vec_dot_f16": 3},
         Operands("f16", half_chain=True), "vec_dot", "f16_half"),
        ("default", "f16", M4, {"kai_run_matmul_clamp_f32_bf16p2vlx2_bf16p2vlx2_2vlx2vl_sme2_mopa": 1},
         Operands("bf16", "bf16"), "kleidiai", "bf16p"),
        ("kleidiai", "q4_0", M4, {F16P: 1}, Operands("f16", "f16_product"), "kleidiai", "f16p"),
        ("kleidiai", "q4_0", M4, {QSI8: 1}, Operands("q8_0"), "kleidiai", "qsi8d32p"),
        ("kleidiai", "q8_0", M4, {QAI8: 2}, Operands("qai8dx", "row_int8"), "kleidiai", "qai8dxp"),
        ("kleidiai", "f32", M4, {"kai_run_matmul_clamp_f32_f32_f32p2vlx1b_1x16vl_sme2_mla": 1},
         Operands("f32"), "kleidiai", "f32p"),
        ("kleidiai", "q4_0", A53, {DOT: 3}, Operands("q8_0"), "vec_dot", "q4_0"),
        ("kleidiai", "q4_0", M4, None, Operands("f16", "f16_product"), "kleidiai", "f16p"),
        ("default", "f16", M4, None, Operands("bf16", "bf16"), "kleidiai", "bf16p"),
        ("kleidiai", "q8_0", M4, None, Operands("qai8dx", "row_int8"), "kleidiai", "qai8dxp"),
    ],
)  # fmt: skip
def test_the_scheme_follows_the_kernel_that_ran(
    path: str,
    kind: str,
    machine: Machine,
    ran: dict[str, int] | None,
    operands: Operands,
    family: str,
    name: str,
) -> None:
    (found,) = schemes(path, kind, machine, m=5, ran=ran)
    assert (found.operands, found.family, found.name) == (operands, family, name)
    assert found.counts.chain(512) > 0


def test_bf16_activations_are_widened_for_f32_weights() -> None:
    (found,) = schemes("default", "f32", A53, m=1, activation_type="bf16", ran={})
    assert found.operands == Operands("f32")


def test_two_schemes_only_where_the_dispatch_rule_splits() -> None:
    ran = {F16P: 3, QSI8: 5}
    assert len(schemes("kleidiai", "q4_0", M4, m=128, threads=2, ran=ran)) == 2
    for m, threads in ((127, 2), (128, 1)):
        with pytest.raises(HarnessError, match="dispatch rule allows one"):
            schemes("kleidiai", "q4_0", M4, m=m, threads=threads, ran=ran)
    with pytest.raises(HarnessError, match="no operand scheme is known for the KleidiAI kernel"):
        schemes("kleidiai", "q4_0", M4, m=1, ran={"kai_run_matmul_clamp_f32_q9p_q9p": 1})


def hybrid() -> tuple[list[tuple[Scheme, Expectation]], np.ndarray]:
    raw, x = rows_of("q4_0", 24, 64), activations(128, 64)
    found = schemes("kleidiai", "q4_0", M4, m=128, threads=2, ran={F16P: 1, QSI8: 1})
    pairs = [(s, expect("q4_0", raw[None, None], x[None, None], s.operands)) for s in found]
    out = np.concatenate([pairs[0][1].y[:, :9], pairs[1][1].y[:, 9:]], axis=1).astype(np.float32)
    return pairs, out


def test_a_hybrid_product_is_judged_column_by_column() -> None:
    pairs, out = hybrid()
    assert judge_product(GOOD, out, pairs).verdict is Verdict.PASS
    mixed = out.copy()
    mixed[:64, 3] = pairs[1][1].y[:64, 3]  # one column from two kernels: no thread does that
    found = judge_product(GOOD, mixed, pairs)
    assert found.verdict is Verdict.FAIL
    assert "column 3" in found.detail
    out[7, 20] = np.nan
    assert judge_product(GOOD, out, pairs).verdict is Verdict.FAIL


def test_a_hybrid_product_keeps_the_rules_of_each_columns_owner() -> None:
    """Row 5 is undefined for the second kernel alone: a NaN is allowed in its columns and in no others."""
    (first, second), out = hybrid()
    rule = np.zeros(out.shape, np.uint8)
    rule[5] = Rule.UNDEFINED
    pairs = [first, (second[0], replace(second[1], rule=rule))]
    out[5, 15] = np.nan
    found = judge_product(GOOD, out, pairs)
    assert found.verdict is Verdict.PASS
    assert np.isfinite([found.max_abs, found.nmse, found.ulp]).all()
    out[5, 3] = np.nan
    found = judge_product(GOOD, out, pairs)
    assert found.verdict is Verdict.FAIL
    assert "row 5 column 3" in found.detail


def test_a_hybrid_product_keeps_the_ties_of_each_columns_owner() -> None:
    (first, second), out = hybrid()
    tie = np.zeros(out.shape)
    tie[7] = 0.01
    pairs = [first, (second[0], replace(second[1], tie=tie))]
    out[7, 15] += np.float32(0.009)
    assert judge_product(GOOD, out, pairs).verdict is Verdict.PASS
    out[8, 15] += np.float32(0.009)
    found = judge_product(GOOD, out, pairs)
    assert found.verdict is Verdict.FAIL
    assert "row 8 column 15" in found.detail


def test_a_hybrid_product_without_a_defined_element_is_vacuous() -> None:
    pairs, out = hybrid()
    rule = np.full(out.shape, Rule.UNDEFINED, np.uint8)
    found = judge_product(GOOD, out, [(scheme, replace(e, rule=rule)) for scheme, e in pairs])
    assert found.verdict is Verdict.VACUOUS


def test_the_resolution_of_a_hybrid_product_is_that_of_the_coarser_budget() -> None:
    pairs, out = hybrid()
    alone = [judge_product(GOOD, e.y.astype(np.float32), [(scheme, e)]).resolution for scheme, e in pairs]
    assert judge_product(GOOD, out, pairs).resolution == min(alone)
    assert alone[0] != alone[1]


def test_lambda_is_the_callers() -> None:
    """In the probabilistic branch the budget is proportional to it: share and resolution are its inverse."""
    raw, x = rows_of("f32", 8, 4096), activations(5, 4096)
    (scheme,) = schemes("default", "f32", A53, m=5, ran={})
    e = expect("f32", raw[None, None], x[None, None], scheme.operands)
    out = (e.y + 1e-7 * e.s).astype(np.float32)
    four, eight = (judge_product(GOOD, out, [(scheme, e)], lam=lam) for lam in (4.0, 8.0))
    assert judge_product(GOOD, out, [(scheme, e)]) == eight
    assert four.share == pytest.approx(2 * eight.share, rel=1e-3)
    assert four.resolution == pytest.approx(2 * eight.resolution, rel=1e-3)
    assert (four.verdict, eight.verdict) == (Verdict.PASS, Verdict.PASS)
    assert judge_product(GOOD, out, [(scheme, e)], lam=0.01).verdict is Verdict.FAIL


def test_resolution_is_sampled_where_the_expert_is() -> None:
    """The first expert answers rows 1 and 3; an expert with large weights must not lend its budget."""
    raw, x = rows_of("q4_0", 4, 64), activations(2, 64)
    ids = np.array([[1, 0], [1, 0]], np.int32)
    scheme = Scheme(Operands("q8_0"), "vec_dot", "q4_0")
    large = raw.copy().reshape(4, -1, 18)
    large[..., :2] = (large[..., :2].copy().view(np.float16) * np.float16(64)).view(np.uint8)
    experts = np.stack([raw, large.reshape(raw.shape)])
    e = expect("q4_0", experts, x[None, None], scheme.operands, ids)
    assert e.fault_rows.tolist() == [1, 3]
    alone = expect("q4_0", raw[None, None], x[None, None], scheme.operands)
    found = judge_product(GOOD, e.y.astype(np.float32), [(scheme, e)])
    wanted = judge_product(GOOD, alone.y.astype(np.float32), [(scheme, alone)])
    assert found.resolution == wanted.resolution


@pytest.mark.parametrize(
    ("compiled", "f16_sums", "half"),
    [
        ({"fp16"}, "wide", True),
        ({"fp16", "sve"}, "wide", False),
        ({"fp16", "sve"}, "sve", False),
        ({"fp16", "sve"}, "neon", True),
        ({"dotprod"}, "neon", False),
    ],
)
def test_f16_sums_follow_what_was_compiled(compiled: set[str], f16_sums: str, half: bool) -> None:
    features = {"asimd", "fp16", "sve", "dotprod"}
    machine = machine_of(
        "aarch64", "libggml-cpu.so", features, compiled=frozenset(compiled), f16_sums=f16_sums
    )
    (scheme,) = schemes("default", "f16", machine, m=1)
    assert scheme.operands.half_chain is half
