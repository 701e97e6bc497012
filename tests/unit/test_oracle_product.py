# SPDX-License-Identifier: MIT
"""Products: batches, broadcast, experts, sums, special values, and the trip through the cache."""

from __future__ import annotations

import numpy as np
import pytest

from tierlab.errors import UsageError
from tierlab.oracle.expectation import Expectation, Rule
from tierlab.oracle.product import Operands, expect

EXACT = Operands("f32")


def f32_rows(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values, np.float32).view(np.uint8)


def gauss(*shape: int, seed: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_plain_product_and_sum_of_magnitudes() -> None:
    w, a = gauss(7, 40), gauss(1, 1, 5, 40, seed=6)
    e = expect("f32", f32_rows(w)[None, None], a, EXACT)
    w64, a64 = w.astype(np.float64), a[0, 0].astype(np.float64)
    assert np.allclose(e.y, a64 @ w64.T, rtol=1e-13)
    assert np.allclose(e.s, np.abs(a64) @ np.abs(w64).T, rtol=1e-13)
    assert e.rule is None
    assert e.tie is None
    assert e.k == 40


def test_weight_planes_are_repeated_over_consecutive_activation_planes() -> None:
    w, a = gauss(1, 2, 3, 8), gauss(2, 4, 5, 8, seed=6)
    e = expect("f32", f32_rows(w), a, EXACT)
    want = np.stack(
        [
            [a[i3, i2].astype(np.float64) @ w[0, i2 // 2].astype(np.float64).T for i2 in range(4)]
            for i3 in range(2)
        ]
    )
    assert np.allclose(e.y.reshape(2, 4, 5, 3), want, rtol=1e-12)


def test_planes_that_do_not_divide_are_refused() -> None:
    with pytest.raises(UsageError, match="do not divide"):
        expect("f32", f32_rows(gauss(1, 3, 2, 8)), gauss(1, 4, 1, 8), EXACT)


def test_experts_pick_their_rows() -> None:
    w, a = gauss(4, 3, 8), gauss(5, 1, 8, seed=6)
    ids = np.array([[0, 2], [2, 1], [0, 1], [2, 0], [1, 2]], np.int32)
    e = expect("f32", f32_rows(w), a, EXACT, ids)
    want = np.einsum("tunk,tk->tun", w[ids].astype(np.float64), a[:, 0].astype(np.float64))
    assert np.allclose(e.y.reshape(5, 2, 3), want, rtol=1e-12)
    with pytest.raises(UsageError, match="there are 4 experts"):
        expect("f32", f32_rows(w), a, EXACT, ids + 2)


def test_minimum_of_q4_1_multiplies_the_stored_sum() -> None:
    raw = np.zeros((1, 20), np.uint8)
    raw[0, :4] = np.array([0.0, 3.0], np.float16).view(np.uint8)  # scale 0: only the minimum acts
    a = gauss(1, 1, 1, 32)
    e = expect("q4_1", raw[None, None], a, Operands("q8_1"))
    d = np.abs(a).max() / np.float32(127)
    codes = np.rint(a * (np.float32(1) / d))
    assert e.y[0, 0] == 3.0 * float(np.float16(d * codes.sum(dtype=np.float32)))


def test_infinite_and_nan_operands_follow_ieee() -> None:
    a = np.ones((1, 1, 4, 4), np.float32)
    a[0, 0, 0, 1], a[0, 0, 1, 1:3], a[0, 0, 2, 0] = np.inf, [np.inf, -np.inf], np.nan
    w = np.ones((2, 4), np.float32)
    w[1, 1] = 0
    y = expect("f32", f32_rows(w)[None, None], a, EXACT).y
    assert y[0, 0] == np.inf
    assert np.isnan(y[0, 1])
    assert np.isnan(y[1, 0])
    assert np.isnan(y[2]).all()
    assert y[3].tolist() == [4.0, 3.0]


def test_rules_for_overflow_and_undefined_rows() -> None:
    a = gauss(1, 1, 3, 32)
    a[0, 0, 1, 0], a[0, 0, 2, 0] = 1e9, np.nan
    raw = np.random.default_rng(1).integers(0, 256, (1, 1, 2, 18), dtype=np.uint8)
    raw[..., 1] = 0x20
    rule = expect("q4_0", raw, a, Operands("q8_0")).rule
    assert rule is not None
    assert rule.tolist() == [[Rule.BOUND] * 2, [Rule.NONFINITE] * 2, [Rule.UNDEFINED] * 2]


def test_smallest_fault_is_one_step_of_the_least_activation() -> None:
    raw = np.zeros((1, 1, 1, 18), np.uint8)
    raw[..., :2] = np.array([0.5], np.float16).view(np.uint8)
    a = np.full((1, 1, 1, 32), 127.0, np.float32)
    a[..., 9], a[..., 10] = 2.0, 0.0
    assert expect("q4_0", raw, a, Operands("q8_0")).fault.tolist() == [[1.0]]


def test_half_chain_of_constant_products() -> None:
    ones = np.ones((1, 1, 1, 64), np.float32)
    e = expect(
        "f16", np.ones((1, 1, 1, 64), np.float16).view(np.uint8), ones, Operands("f16", half_chain=True)
    )
    # 32 lanes with partial sums 1 and 2, then 16 and 8 lanes of register sums 4 and 8
    assert e.chain is not None
    assert e.chain_squares is not None
    assert e.chain[0, 0] == 32 * 3 + 16 * 4 + 8 * 8
    assert e.chain_squares[0, 0] == 32 * 5 + 16 * 16 + 8 * 64


def test_many_rows_are_decoded_in_groups_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    w, a = gauss(100, 64), gauss(2, 2, 3, 64, seed=6)
    whole = expect("f32", f32_rows(w)[None, None], a, EXACT)
    monkeypatch.setattr("tierlab.oracle.product.CHUNK", 1)
    grouped = expect("f32", f32_rows(w)[None, None], a, EXACT)
    assert np.allclose(whole.y, grouped.y, rtol=1e-13, atol=1e-13)
    assert np.array_equal(whole.fault, grouped.fault)


def test_short_rows_never_reach_the_half_accumulators() -> None:
    ones = np.ones((1, 1, 2, 31), np.float32)
    e = expect(
        "f16", np.ones((1, 1, 3, 31), np.float16).view(np.uint8), ones, Operands("f16", half_chain=True)
    )
    assert e.chain is not None
    assert e.chain.shape == (2, 3)
    assert not e.chain.any()
    assert (e.y == 31).all()


@pytest.mark.parametrize("operands", [Operands("f16", half_chain=True), Operands("q8_0")])
def test_an_expectation_survives_the_cache(operands: Operands) -> None:
    a = gauss(1, 1, 3, 64)
    a[0, 0, 1] = np.array([127, 2.5] + [1] * 62, np.float32)
    kind = "f16" if operands.half_chain else "q8_0"
    w = (
        gauss(4, 64).astype(np.float16).view(np.uint8)
        if operands.half_chain
        else np.full((4, 68), 16, np.uint8)
    )
    e = expect(kind, w[None, None], a, operands)
    back = Expectation.from_arrays(e.to_arrays())
    assert back.k == e.k
    for name, value in e.to_arrays().items():
        assert np.array_equal(back.to_arrays()[name], value), name
    assert (back.tie is None) == (e.tie is None)


def test_operand_keys_tell_schemes_apart() -> None:
    keys = {
        o.key for o in (Operands("f16"), Operands("f16", "f16_product"), Operands("f16", half_chain=True))
    }
    assert len(keys) == 3
