# SPDX-License-Identifier: MIT
"""Random blocks: every valid pattern is reached, no invalid one, and no block drowns the others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import gguf
import numpy as np
import pytest

from tierlab.cells.blocks import random_blocks
from tierlab.cells.load import load_matrix
from tierlab.cells.weight_types import LARGE_BINADES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tierlab.cells.matrix import Field, WeightType

MATRIX = load_matrix(Path(__file__).parents[2] / "matrix.yaml")
BLOCKS = 6000


def blocks_of(kind: WeightType) -> NDArray[np.uint8]:
    return random_blocks(kind, BLOCKS, "a key")


def fields(*kinds: str) -> list[pytest.ParameterSet]:
    return [
        pytest.param(kind, field, id=f"{kind.name}.{field.name}")
        for kind in MATRIX.types.values()
        for field in kind.fields
        if field.kind in kinds
    ]


def part(kind: WeightType, field: Field) -> NDArray[np.uint8]:
    return np.ascontiguousarray(blocks_of(kind)[:, field.at : field.at + field.size])


@pytest.mark.parametrize(("kind", "field"), fields("bits"))
def test_bits_take_every_value_at_every_byte(kind: WeightType, field: Field) -> None:
    data = part(kind, field)
    assert all(len(np.unique(column)) == 256 for column in data.T)


@pytest.mark.parametrize(("kind", "field"), fields("f16"))
def test_f16_scales(kind: WeightType, field: Field) -> None:
    values = part(kind, field).view("<f2").astype(np.float64).ravel()
    assert field.exponent is not None
    low, high = field.exponent
    assert np.isfinite(values).all()
    size = np.abs(values)
    ordinary = (size >= 2.0**low) & (size < 2.0 ** (high + 1))
    assert 0.94 < ordinary.mean() < 0.98
    assert {-1.0, 1.0} <= set(np.sign(values[ordinary]))
    assert ((values == 0) & np.signbit(values)).any()
    assert ((values == 0) & ~np.signbit(values)).any()
    assert ((size > 0) & (size < 2.0**-14)).any(), "subnormal"
    assert ((size >= 2.0 ** (high + LARGE_BINADES)) & (size < 2.0 ** (high + LARGE_BINADES + 1))).any()
    assert size.max() < 2.0 ** (high + LARGE_BINADES + 1)


def test_f16_mantissas_take_every_value() -> None:
    (field,) = MATRIX.types["f16"].fields
    bits = random_blocks(MATRIX.types["f16"], 60_000, "a key").view("<u2").ravel()
    assert field.kind == "f16"
    assert len(np.unique(bits & 0x3FF)) == 1024


@pytest.mark.parametrize(("name", "dtype", "bits"), [("f32", "<u4", 23), ("bf16", "<u2", 7)])
def test_float_weights_are_finite_and_sometimes_subnormal(name: str, dtype: str, bits: int) -> None:
    pattern = blocks_of(MATRIX.types[name]).view(dtype).astype(np.uint64).ravel()
    exponent, mantissa = pattern >> np.uint64(bits) & np.uint64(0xFF), pattern & np.uint64((1 << bits) - 1)
    assert exponent.max() == 127 + 1 + LARGE_BINADES
    assert ((exponent == 0) & (mantissa > 0)).any()
    assert ((exponent == 0) & (mantissa == 0)).any()


def test_iq1_m_scale_is_spread_over_four_nibbles() -> None:
    words = part(MATRIX.types["iq1_m"], MATRIX.types["iq1_m"].fields[2]).view("<u2").astype(np.uint16)
    scale = words[:, 0] >> 12 | words[:, 1] >> 8 & 0x00F0 | words[:, 2] >> 4 & 0x0F00 | words[:, 3] & 0xF000
    values = np.abs(scale.view(np.float16).astype(np.float64))
    assert np.isfinite(values).all()
    assert 0.94 < ((values >= 2.0**-4) & (values < 2.0**-1)).mean() < 0.98
    assert len(np.unique(words[:, 0] & 0x0FFF)) > 3000, "the other twelve bits are sub-block scales"


def test_mxfp4_scale_is_never_nan() -> None:
    scale = part(MATRIX.types["mxfp4"], MATRIX.types["mxfp4"].fields[0])
    assert set(np.unique(scale)) == {0, 1, 2, 124, 125, 126, 129}


def test_nvfp4_scales_are_never_nan_nor_signed() -> None:
    scale = part(MATRIX.types["nvfp4"], MATRIX.types["nvfp4"].fields[0])
    assert 0x7F not in scale
    assert scale.max() == 0x7E
    assert set(range(8)) <= set(np.unique(scale)), "zero and the subnormals"
    assert set(range(5 << 3, 8 << 3)) <= set(np.unique(scale)), "every ordinary scale"


def test_ternary_codes_are_those_an_encoder_writes() -> None:
    trits = {(value * 256 + 242) // 243 for value in range(243)}
    four = {(value * 3 * 256 + 242) // 243 for value in range(81)}
    tq1_0 = MATRIX.types["tq1_0"]
    assert set(np.unique(part(tq1_0, tq1_0.fields[0]))) == trits
    assert set(np.unique(part(tq1_0, tq1_0.fields[1]))) == four
    codes = part(MATRIX.types["tq2_0"], MATRIX.types["tq2_0"].fields[0])
    assert {int(code >> shift & 3) for code in np.unique(codes) for shift in (0, 2, 4, 6)} == {0, 1, 2}


def decoded(name: str, blocks: NDArray[np.uint8]) -> NDArray[np.float64]:
    kind = gguf.GGMLQuantizationType[name.upper()]
    return np.asarray(gguf.quants.dequantize(blocks, kind), dtype=np.float64)


QUANTISED = [name for name in MATRIX.types if name not in ("f32", "f16", "bf16", "q1_0", "q2_0")]
"""q1_0 and q2_0 have no decoder in gguf 0.19."""


@pytest.mark.parametrize("name", QUANTISED)
def test_blocks_are_comparable(name: str) -> None:
    """A fault in a block shows in a row's sum only if the block's weights are not small beside the rest."""
    values = decoded(name, blocks_of(MATRIX.types[name]))
    assert np.isfinite(values).all()
    assert np.abs(values).max() < 4096
    norm = np.sqrt((values**2).mean(axis=1))
    middle = np.median(norm)
    assert 0.3 < middle < 4
    assert ((norm > middle / 8) & (norm < middle * 8)).mean() > 0.93


@pytest.mark.parametrize("name", QUANTISED)
def test_extremes_reach_the_ends(name: str) -> None:
    """Whole fields of one byte; the largest weight of such blocks is the largest the type has, or near."""
    kind = MATRIX.types[name]
    blocks = random_blocks(kind, 2000, "a key", style="extremes")
    for field in kind.fields:
        if field.kind in ("bits", "trits", "trits4", "codes2"):
            data = blocks[:, field.at : field.at + field.size]
            assert (data == data[:, :1]).all()
            assert len(np.unique(data)) >= 3
    extreme, ordinary = np.abs(decoded(name, blocks)), np.abs(decoded(name, blocks_of(kind)))
    assert np.isfinite(extreme).all()
    assert np.median(extreme.max(axis=1)) >= np.median(ordinary.max(axis=1)) / 8


def test_a_block_depends_on_its_key_alone() -> None:
    kind = MATRIX.types["q4_k"]
    assert (random_blocks(kind, 10, "a") == random_blocks(kind, 10, "a")).all()
    assert (random_blocks(kind, 10, "a") != random_blocks(kind, 10, "b")).mean() > 0.9


def test_limits_are_the_ends_of_binary16() -> None:
    kind = MATRIX.types["iq4_xs"]
    blocks = random_blocks(kind, 2000, "a key", style="limits")
    scales = np.ascontiguousarray(blocks[:, :2]).view("<f2").ravel()
    assert np.isfinite(scales).all()
    largest, smallest = float(np.finfo(np.float16).max), float(np.finfo(np.float16).smallest_subnormal)
    normal = float(np.finfo(np.float16).smallest_normal)
    sizes = {largest, normal, normal - smallest, smallest, 0.0}
    assert set(np.abs(scales).astype(np.float64)) == sizes
    assert {(float(abs(scale)), bool(np.signbit(scale))) for scale in scales} == {
        (size, sign) for size in sizes for sign in (False, True)
    }
    assert (blocks[:, 2:] == random_blocks(kind, 2000, "a key")[:, 2:]).all()


def test_blocks_of_iq4_xs_have_every_scale_and_code() -> None:
    blocks = blocks_of(MATRIX.types["iq4_xs"])
    high = np.ascontiguousarray(blocks[:, 2:4]).view("<u2")
    low = blocks[:, 4:8]
    for part in range(8):
        scale = (low[:, part // 2] >> (4 * (part % 2)) & 15) | (high[:, 0] >> (2 * part) & 3) << 4
        assert set(scale.tolist()) == set(range(64))
    codes = blocks[:, 8:]
    assert all(
        set((column & 15).tolist()) == set((column >> 4).tolist()) == set(range(16)) for column in codes.T
    )
