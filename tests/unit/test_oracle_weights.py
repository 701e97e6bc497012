# SPDX-License-Identifier: MIT
"""The decoders agree with the gguf package wherever it knows the format, and are exact where it rounds."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from tierlab.errors import UsageError
from tierlab.oracle.formats import FORMATS, format_of
from tierlab.oracle.weights import decode_rows, transformed

OWN_ONLY = ("q1_0", "q2_0")
ROUNDED_BY_GGUF = ("q4_1", "q5_1", "q2_k", "q4_k", "q5_k")


def random_rows(name: str, rows: int = 24, blocks: int = 4) -> np.ndarray:
    rng = np.random.default_rng(7)
    return rng.integers(0, 256, (rows, blocks * FORMATS[name].nbytes), dtype=np.uint8)


@pytest.mark.parametrize("name", [n for n in FORMATS if n not in OWN_ONLY])
def test_sizes_and_values_match_gguf(name: str) -> None:
    kind = gguf.GGMLQuantizationType[name.upper()]
    assert gguf.GGML_QUANT_SIZES[kind] == (FORMATS[name].block, FORMATS[name].nbytes)
    raw = random_rows(name)
    mine = decode_rows(name, raw)
    with np.errstate(all="ignore"):
        theirs = gguf.dequantize(raw, kind).astype(np.float64)
    finite = np.isfinite(theirs) & np.isfinite(mine.value)
    assert finite.mean() > 0.8
    tolerance = 2.0**-24 * mine.magnitude[finite] if name in ROUNDED_BY_GGUF else 0.0
    assert (np.abs(theirs[finite] - mine.value[finite]) <= tolerance).all()


@pytest.mark.parametrize("name", FORMATS)
def test_step_and_magnitude_are_consistent(name: str) -> None:
    weights = decode_rows(name, random_rows(name))
    finite = np.isfinite(weights.value)
    assert (weights.magnitude[finite] >= np.abs(weights.value[finite]) * (1 - 1e-12)).all()
    assert (weights.step[finite] >= 0).all()
    if weights.offset is not None:
        assert (weights.main[finite] + weights.offset[finite] == weights.value[finite]).all()


def test_one_bit_and_two_bit_blocks() -> None:
    d = np.array([1.5], np.float16).view(np.uint8)
    one = np.concatenate([d, np.array([0b00000101] + [0] * 15, np.uint8)])[None]
    value = decode_rows("q1_0", one).value[0]
    assert value[:4].tolist() == [1.5, -1.5, 1.5, -1.5]
    assert (value[8:] == -1.5).all()
    two = np.concatenate([d, np.array([0b11100100] + [0b01010101] * 15, np.uint8)])[None]
    value = decode_rows("q2_0", two).value[0]
    assert value[:4].tolist() == [-1.5, 0.0, 1.5, 3.0]
    assert (value[4:] == 0).all()


def test_row_int8_is_what_the_formula_says() -> None:
    raw = np.zeros((1, 34), np.uint8)
    raw[0, :2] = np.array([0.5], np.float16).view(np.uint8)
    raw[0, 2:6] = np.array([127, -64, 1, 0], np.int8).view(np.uint8)
    weights = transformed(decode_rows("q8_0", raw), "row_int8")
    assert weights.value[0, :4].tolist() == [63.5, -32.0, 0.5, 0.0]
    assert (weights.step == 0.5).all()


def test_f16_product_rounds_to_binary16() -> None:
    raw = np.zeros((1, 18), np.uint8)
    scale = np.array([0x3C01], np.uint16)  # 1 + 2^-10: seven times it needs twelve bits
    raw[0, :2] = scale.view(np.uint8)
    raw[0, 2] = 0x0F
    weights = transformed(decode_rows("q4_0", raw), "f16_product")
    exact = 7 * (1 + 2.0**-10)
    assert weights.value[0, 0] == float(np.float16(exact))
    assert weights.value[0, 0] != exact


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UsageError, match="no weight format 'q9_9'"):
        format_of("q9_9")
    with pytest.raises(UsageError, match="do not hold whole q4_0 blocks"):
        decode_rows("q4_0", np.zeros((2, 17), np.uint8))
    with pytest.raises(UsageError, match="unknown weight transform"):
        transformed(decode_rows("q4_0", np.zeros((1, 18), np.uint8)), "sideways")
