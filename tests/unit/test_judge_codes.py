# SPDX-License-Identifier: MIT
"""Step one (activation codes) and dequantised weights, each field with a fault that must be caught."""

from __future__ import annotations

import numpy as np
import pytest
from budget_kernels import rows_of

from tierlab.errors import UsageError
from tierlab.judge.codes import judge_codes, judge_dequantised
from tierlab.judge.verdict import Verdict
from tierlab.oracle.activations import encode_q8_0, encode_q8_1, encode_q8_k
from tierlab.oracle.formats import FORMATS
from tierlab.oracle.weights import decode_rows


def gauss(rows: int = 3, k: int = 512) -> np.ndarray:
    return np.random.default_rng(4).standard_normal((rows, k)).astype(np.float32)


def stored(name: str, x: np.ndarray) -> np.ndarray:
    """Blocks as a right quantiser stores them, uint8 [blocks, bytes]."""
    encode = {"q8_0": encode_q8_0, "q8_1": encode_q8_1, "q8_k": encode_q8_k}[name]
    codes = encode(x)
    code = codes.code.astype(np.int8).reshape(-1, codes.code.shape[2]).view(np.uint8)
    scale = codes.scale.reshape(-1, 1)
    if name == "q8_k":
        sums = codes.code.reshape(-1, 16, 16).sum(axis=2).astype("<i2").view(np.uint8)
        return np.concatenate([scale.astype("<f4").view(np.uint8), code, sums], axis=1)
    head = scale.astype("<f2").view(np.uint8)
    if codes.total is not None:
        head = np.concatenate([head, codes.total.reshape(-1, 1).astype("<f2").view(np.uint8)], axis=1)
    return np.concatenate([head, code], axis=1)


@pytest.mark.parametrize("name", ["q8_0", "q8_1", "q8_k"])
@pytest.mark.parametrize("scale", [1.0, 1e-7, 1e-40, 5e6, 1e30, 0.0])
def test_right_codes_pass(name: str, scale: float) -> None:
    x = (gauss() * scale).astype(np.float32)
    assert judge_codes(name, stored(name, x), x).verdict is Verdict.PASS


@pytest.mark.parametrize("name", ["q8_0", "q8_1", "q8_K"])
def test_a_code_off_by_one_away_from_a_tie_fails(name: str) -> None:
    x = gauss()
    raw = stored(name.lower(), x)
    raw[2, 9] += 1
    found = judge_codes(name, raw, x)
    assert found.verdict is Verdict.FAIL
    assert "1 codes differ by up to 1" in found.detail


def test_either_neighbour_of_a_half_passes_and_a_third_code_fails() -> None:
    x = np.zeros((1, 32), np.float32)
    x[0, :2] = [127.0, 2.5]
    for code, verdict in ((2, Verdict.PASS), (3, Verdict.PASS), (1, Verdict.FAIL), (4, Verdict.FAIL)):
        raw = stored("q8_0", x)
        raw[0, 3] = code
        assert judge_codes("q8_0", raw, x).verdict is verdict


@pytest.mark.parametrize(("name", "byte"), [("q8_0", 0), ("q8_1", 0), ("q8_k", 0)])
def test_a_wrong_scale_fails(name: str, byte: int) -> None:
    x = gauss()
    raw = stored(name, x)
    raw[1, byte] ^= 1
    assert "scale" in judge_codes(name, raw, x).detail


def test_wrong_sums_fail() -> None:
    x = gauss()
    raw = stored("q8_k", x)
    raw[3, 270] += 1
    assert "1 bsums are not the sum" in judge_codes("q8_k", raw, x).detail
    raw = stored("q8_1", x)
    raw[3, 2] ^= 2
    assert "1 stored sums are not the sum" in judge_codes("q8_1", raw, x).detail


def test_undefined_blocks_are_not_compared_and_others_are() -> None:
    x = gauss(1, 64)
    raw = stored("q8_0", x)
    x[0, 5] = np.nan
    raw[0, 4] += 9
    assert judge_codes("q8_0", raw, x).verdict is Verdict.PASS
    raw[1, 4] += 9
    assert judge_codes("q8_0", raw, x).verdict is Verdict.FAIL
    x[0, 40] = np.nan
    assert judge_codes("q8_0", raw, x).verdict is Verdict.VACUOUS


@pytest.mark.parametrize("name", ["f16", "bf16", "f32"])
def test_conversions_are_exact(name: str) -> None:
    x = gauss(2, 48)
    x[0, :4] = [np.inf, -0.0, 1e-41, 65520.0]
    bits = {"f32": x, "bf16": None, "f16": None}[name]
    if name == "f16":
        with np.errstate(over="ignore"):
            bits = x.astype(np.float16)
    elif name == "bf16":
        wide = x.view(np.uint32).astype(np.uint64)
        bits = ((wide + 0x7FFF + ((wide >> 16) & 1)) >> 16).astype(np.uint16)
    assert bits is not None
    raw = np.ascontiguousarray(bits).view(np.uint8)
    assert judge_codes(name, raw, x).verdict is Verdict.PASS
    wrong = raw.copy()
    wrong[1, 0] ^= 1
    assert "row 1 element 0" in judge_codes(name, wrong, x).detail
    sign = raw.copy()
    width = raw.shape[1] // 48
    sign[0, 2 * width - 1] ^= 0x80
    assert judge_codes(name, sign, x).verdict is Verdict.FAIL


@pytest.mark.parametrize("name", FORMATS)
def test_dequantised_weights(name: str) -> None:
    raw = rows_of(name, 4, max(512, FORMATS[name].block))
    right = decode_rows(name, raw).value.astype(np.float32)
    assert judge_dequantised(name, raw, right).verdict is Verdict.PASS
    wrong = right.copy()
    wrong[2, 7] = np.nextafter(wrong[2, 7], np.float32(np.inf)) * np.float32(1 + 2.0**-20) + np.float32(1e-30)
    found = judge_dequantised(name, raw, wrong)
    assert found.verdict is Verdict.FAIL
    assert "row 2 element 7" in found.detail


def test_unknown_formats_and_empty_outputs() -> None:
    with pytest.raises(UsageError, match="no formula is known"):
        judge_codes("q4_0", np.zeros((1, 18), np.uint8), gauss(1, 32))
    empty = judge_dequantised("q4_0", np.zeros((0, 18), np.uint8), np.zeros((0, 32), np.float32))
    assert empty.verdict is Verdict.VACUOUS
