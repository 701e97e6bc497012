# SPDX-License-Identifier: MIT
"""Every budget is shown to bite, and legitimate roundings are shown not to be bitten."""

from __future__ import annotations

import numpy as np
import pytest
from budget_kernels import activations, blocked_kernel, float_kernel, half_kernel, rows_of

from tierlab.harness.messages import Answer
from tierlab.judge.budget import bound
from tierlab.judge.judge import judge_product, resolution
from tierlab.judge.scheme import Machine, Scheme, schemes
from tierlab.judge.verdict import Judgement, Verdict
from tierlab.oracle.activations import encode
from tierlab.oracle.expectation import Expectation
from tierlab.oracle.formats import FORMATS
from tierlab.oracle.product import Operands, expect
from tierlab.oracle.weights import decode_rows

N2 = Machine("aarch64", "libggml-cpu-armv8.6_2.so", frozenset({"asimd", "dotprod", "i8mm", "sve", "sve2"}))
N1 = Machine("aarch64", "libggml-cpu-armv8.2_2.so", frozenset({"asimd", "fp16", "dotprod"}))
OK = Answer(1, "ok", claimed=True)
QUANTISED = [name for name, fmt in FORMATS.items() if fmt.block > 1]


def problem(
    name: str, m: int = 8, n: int = 24, k: int = 512, machine: Machine = N2
) -> tuple[np.ndarray, np.ndarray, Scheme, Expectation]:
    raw, x = rows_of(name, n, k), activations(m, k)
    (scheme,) = schemes("default", name, machine, m=m, ran={})
    return raw, x, scheme, expect(name, raw[None, None], x[None, None], scheme.operands)


def verdict(out: np.ndarray, scheme: Scheme, e: Expectation) -> Judgement:
    return judge_product(OK, np.asarray(out, np.float32), [(scheme, e)])


def recomputed(name: str, raw: np.ndarray, x: np.ndarray, scheme: Scheme) -> np.ndarray:
    """A kernel with a fault: everything right but for the bytes it was given."""
    return expect(name, raw[None, None], x[None, None], scheme.operands).y.astype(np.float32)


@pytest.mark.parametrize("name", QUANTISED)
def test_no_false_alarm_in_any_order(name: str) -> None:
    rng = np.random.default_rng(11)
    worst = 0.0
    for k in (512, 4096):
        raw, x, scheme, e = problem(name, m=24, n=40, k=k)
        for _ in range(3):
            found = verdict(blocked_kernel(name, raw, x, rng), scheme, e)
            assert found.verdict is Verdict.PASS, found.detail
            worst = max(worst, found.share)
    assert 0 < worst < 0.5


@pytest.mark.parametrize(("lanes", "k"), [(16, 512), (16, 4096), (32, 257), (4, 33)])
def test_no_false_alarm_for_float_in_any_order(lanes: int, k: int) -> None:
    raw, x, scheme, e = problem("f32", m=24, n=40, k=k)
    found = verdict(float_kernel(raw.view(np.float32), x, lanes, np.random.default_rng(5)), scheme, e)
    assert found.verdict is Verdict.PASS, found.detail
    assert found.share < 0.5


@pytest.mark.parametrize("k", [64, 512, 4096])
def test_binary16_sums_fit_their_own_budget_and_no_other(k: int) -> None:
    raw, x, scheme, e = problem("f16", m=6, n=20, k=k, machine=N1)
    assert e.chain is not None
    out = half_kernel(raw.view(np.float16), x.astype(np.float16))
    found = verdict(out, scheme, e)
    assert found.verdict is Verdict.PASS, found.detail
    assert 0.01 < found.share < 0.7
    (wide,) = schemes("default", "f16", N2, m=6, ran={})
    assert verdict(out, wide, e_without_chain(e)).verdict is Verdict.FAIL


def e_without_chain(e: Expectation) -> Expectation:
    return Expectation(e.y, e.s, e.k, e.fault, e.fault_rows)


@pytest.mark.parametrize("name", FORMATS)
def test_half_the_operands_fails(name: str) -> None:
    raw, x, scheme, e = problem(name)
    half = x.copy()
    half[:, 256:] = 0
    assert verdict(recomputed(name, raw, half, scheme), scheme, e).verdict is Verdict.FAIL


@pytest.mark.parametrize("name", FORMATS)
def test_a_dropped_tail_element_fails(name: str) -> None:
    raw, x, scheme, e = problem(name)
    short = e.y - _last_term(name, raw, x, scheme)
    assert verdict(short, scheme, e).verdict is Verdict.FAIL


def _last_term(name: str, raw: np.ndarray, x: np.ndarray, scheme: Scheme) -> np.ndarray:
    a = encode(scheme.operands.activation, x).value[:, -1:]
    return a @ decode_rows(name, raw).main[:, -1:].T


@pytest.mark.parametrize(
    "name", ["q4_0", "q4_1", "q5_0", "q5_1", "q4_k", "q5_k", "iq4_nl", "iq4_xs", "mxfp4"]
)
def test_a_flipped_low_bit_of_one_code_fails(name: str) -> None:
    raw, x, scheme, e = problem(name)
    raw[5, -3] ^= 1  # the low nibble of a byte of codes: one step of one weight of row 5
    found = verdict(recomputed(name, raw, x, scheme), scheme, e)
    assert found.verdict is Verdict.FAIL
    assert "only column 5" in found.detail


def test_one_wrong_nibble_in_a_million_fails() -> None:
    raw, x, scheme, e = problem("q4_0", m=2, n=2048, k=512)
    assert raw.size * 16 // 18 * 2 == 2048 * 512
    raw[1234, 18 * 7 + 9] ^= 0x10
    found = verdict(recomputed("q4_0", raw, x, scheme), scheme, e)
    assert found.verdict is Verdict.FAIL
    assert "only column 1234" in found.detail


@pytest.mark.parametrize(
    ("name", "byte", "mask"), [("iq4_xs", 2, 0x03), ("q4_k", 4, 0xC0), ("q5_k", 4, 0xC0), ("q3_k", 104, 0x03)]
)
def test_dropped_high_scale_bits_fail(name: str, byte: int, mask: int) -> None:
    raw, x, scheme, e = problem(name)
    raw[:, byte] |= mask
    e = expect(name, raw[None, None], x[None, None], scheme.operands)
    raw[:, byte] &= 255 ^ mask
    assert verdict(recomputed(name, raw, x, scheme), scheme, e).verdict is Verdict.FAIL


def test_swapped_nibbles_rows_and_columns_fail() -> None:
    raw, x, scheme, e = problem("q4_0", n=23)
    swapped = raw.reshape(23, -1, 18).copy()
    swapped[..., 2:] = (swapped[..., 2:] << 4) | (swapped[..., 2:] >> 4)
    assert verdict(recomputed("q4_0", swapped.reshape(23, -1), x, scheme), scheme, e).verdict is Verdict.FAIL
    out = e.y.astype(np.float32)
    out[[4, 5]] = out[[5, 4]]
    assert "adjacent rows are swapped" in verdict(out, scheme, e).detail
    out = e.y.astype(np.float32)
    out[:, -1] = 0
    assert "only column 22 (the last) is wrong" in verdict(out, scheme, e).detail


@pytest.mark.parametrize("value", [0.0, np.nan, np.inf])
@pytest.mark.parametrize("name", ["q4_0", "q6_k", "bf16"])
def test_constant_outputs_fail(name: str, value: float) -> None:
    _, _, scheme, e = problem(name)
    assert verdict(np.full(e.y.shape, value), scheme, e).verdict is Verdict.FAIL


def test_unquantised_activations_are_not_close_enough() -> None:
    """The product of raw activations is a different question; its answer must fail."""
    raw, x, scheme, e = problem("q4_0")
    raw_product = expect("q4_0", raw[None, None], x[None, None], Operands("f32")).y
    assert verdict(raw_product, scheme, e).verdict is Verdict.FAIL


@pytest.mark.parametrize("name", ["q1_0", "q2_0", "q4_0", "tq1_0", "tq2_0", "iq2_xs", "iq2_s"])
def test_resolution_sees_every_single_code_fault_of_coarse_types(name: str) -> None:
    _, _, scheme, e = problem(name)
    assert resolution(e, bound(e, scheme.counts)) > 1


def test_budget_grows_with_ambiguous_codes_and_covers_both_roundings() -> None:
    raw, x, scheme, _ = problem("q4_0", m=1)
    x[0, :32] = np.arange(32) / 2 + 0.25  # scaled by 127 / 127: every other code is a half
    x[0, 31] = 127.0
    e = expect("q4_0", raw[None, None], x[None, None], scheme.operands)
    assert e.tie is None  # quarters: no halves
    x[0, :31] = np.arange(31) + 0.5
    e = expect("q4_0", raw[None, None], x[None, None], scheme.operands)
    assert e.tie is not None
    for direction in (-(2.0**-10), 2.0**-10):
        nudged = x.copy()
        nudged[0, :31] += np.float32(direction)
        assert verdict(recomputed("q4_0", raw, nudged, scheme), scheme, e).verdict is Verdict.PASS
