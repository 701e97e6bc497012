# SPDX-License-Identifier: MIT
"""Activation codes by formula, ambiguity at ties, and everything a quantiser does not define."""

from __future__ import annotations

import numpy as np
import pytest

from tierlab.errors import UsageError
from tierlab.oracle.activations import encode, encode_q8_0, encode_q8_1, encode_q8_k


def gauss(rows: int, k: int, seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, k)).astype(np.float32)


def test_q8_0_codes_and_scale() -> None:
    x = np.zeros((1, 32), np.float32)
    x[0, :3] = [127.0, -63.2, 0.6]
    codes = encode_q8_0(x)
    assert codes.scale[0, 0] == 1.0
    assert codes.code[0, 0, :3].tolist() == [127.0, -63.0, 1.0]
    assert not codes.ambiguous.any()


def test_a_half_is_ambiguous_between_its_neighbours() -> None:
    x = np.zeros((1, 32), np.float32)
    x[0, :4] = [127.0, 2.5, -3.5, 2.5 + 2.0**-8]
    codes = encode_q8_0(x)
    assert codes.ambiguous[0, 0].tolist() == [False, True, True] + [False] * 29
    assert {codes.code[0, 0, 1], codes.other[0, 0, 1]} == {2.0, 3.0}
    assert {codes.code[0, 0, 2], codes.other[0, 0, 2]} == {-4.0, -3.0}
    a = encode("q8_0", x)
    assert a.slack is not None
    assert a.slack[0, :4].tolist() == [0.0, 1.0, 1.0, 0.0]


def test_scale_is_rounded_to_binary16_but_the_reciprocal_is_not() -> None:
    x = gauss(4, 64)
    codes = encode_q8_0(x)
    d = np.abs(x.reshape(4, 2, 32)).max(axis=2) / np.float32(127)
    assert (codes.scale == d.astype(np.float16).astype(np.float64)).all()
    expected = np.rint((x.reshape(4, 2, 32) * (np.float32(1) / d)[..., None]).astype(np.float64))
    assert (codes.code == expected).all()


def test_q8_1_sum_is_stored_as_binary16() -> None:
    x = gauss(3, 96)
    codes = encode_q8_1(x)
    assert codes.total is not None
    d = np.abs(x.reshape(3, 3, 32)).max(axis=2) / np.float32(127)
    want = (d * codes.code.sum(axis=2).astype(np.float32)).astype(np.float16)
    assert (codes.total == want).all()


def test_q8_1_slack_covers_the_other_rounding() -> None:
    x = np.zeros((1, 32), np.float32)
    x[0, :3] = [127.0, 2.5, 4.5]
    codes = encode_q8_1(x)
    assert codes.total is not None
    assert codes.total_slack is not None
    away = 127.0 + 3 + 5
    assert abs(away - codes.total[0, 0]) <= codes.total_slack[0, 0]
    assert codes.total_slack[0, 0] <= 2.0


def test_q8_k_maps_the_largest_element_to_minus_127() -> None:
    x = gauss(2, 512)
    codes = encode_q8_k(x)
    peak = np.take_along_axis(codes.code, np.abs(x.reshape(2, 2, 256)).argmax(axis=2)[..., None], axis=2)
    assert (peak == -127).all()
    assert (np.abs(codes.scale[..., None] * codes.code - x.reshape(2, 2, 256)).max()) < 0.02


@pytest.mark.parametrize("name", ["q8_0", "q8_1", "q8_k"])
def test_zero_and_subnormal_rows_give_exact_zeros(name: str) -> None:
    x = np.zeros((2, 256), np.float32)
    x[1] = np.float32(1e-40)
    a = encode(name, x)
    assert not a.value.any()
    assert not a.undefined.any()
    assert not a.overflowed.any()


def test_huge_rows_overflow_the_stored_scale() -> None:
    x = gauss(2, 32)
    x[1, 5] = 1e8
    a = encode("q8_0", x)
    assert a.overflowed.tolist() == [False, True]
    assert encode("q8_k", np.repeat(x, 8, axis=1)).overflowed.tolist() == [False, False]


@pytest.mark.parametrize("name", ["q8_0", "q8_1", "q8_k", "qai8dx"])
def test_nan_and_infinity_are_undefined_for_quantisers(name: str) -> None:
    x = gauss(3, 256)
    x[1, 7] = np.nan
    x[2, 9] = np.inf
    assert encode(name, x).undefined.tolist() == [False, True, True]


def test_conversions_keep_infinity_and_round_to_even() -> None:
    x = np.array([[1 + 2.0**-8, 1 + 3 * 2.0**-8, np.inf, 1e30]], np.float32)
    assert encode("bf16", x).value[0, :3].tolist() == [1.0, 1 + 2.0**-6, np.inf]
    assert encode("f16", x).value[0, 3] == np.inf
    assert np.isnan(encode("bf16", np.array([[np.nan]], np.float32)).value).all()


def test_qai8dx_is_affine_with_zero_exactly_representable() -> None:
    x = gauss(4, 64)
    x[:, 3] = 0
    a = encode("qai8dx", x)
    assert (a.value[:, 3] == 0).all()
    step = (np.maximum(x.max(axis=1), 0) - np.minimum(x.min(axis=1), 0)) / 255
    assert (np.abs(a.value - x) <= step[:, None] * 1.01).all()


def test_unknown_code_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown activation code 'q7'"):
        encode("q7", np.zeros((1, 32), np.float32))
