# SPDX-License-Identifier: MIT
"""Random valid blocks of any weight type, from the layout that `matrix.yaml` gives.

`blocks`: every field's every bit pattern can occur (all codes, all high scale bits), scales of either
sign within a few binades so that each block matters in a row's sum, and now and then a scale of ±0, a
subnormal one, one eight times larger. Left out, because no encoder writes them or the format gives them
no finite value: Inf and NaN scales; E8M0 0xff and UE4M3 0x7f (NaN) and UE4M3 with the unused sign bit;
the 13 bytes that no five trits pack to; the fourth two-bit code of a ternary type.

`extremes`: whole fields filled with one telling byte (all zeros, all ones, sign bits), which drives
integer accumulators to their ends.

`limits`: binary16 scales from the ends of the format: ±largest, ±smallest normal, ±largest and ±smallest
subnormal, ±0; everything else as in `blocks`. One such block drowns another, so rows of one block show most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tierlab.cells.streams import below, byte_array, words
from tierlab.cells.weight_types import LARGE_BINADES

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tierlab.cells.matrix import Field, WeightType

ZERO, MINUS_ZERO, SUBNORMAL, LARGE = 8, 16, 32, 40
"""Of 1024 scales: below the first number +0, below the second −0, and so on; the rest is ordinary."""

_TRIT_BYTES = np.array([(value * 256 + 242) // 243 for value in range(243)], dtype=np.uint8)
"""TQ1_0 packs five trits v into the byte ceil(v · 256 / 243)."""
_TRIT4_BYTES = _TRIT_BYTES[np.arange(81) * 3]
"""Four trits are packed like five whose last is 0."""
_CODE_BYTES = np.array(
    [a | b << 2 | c << 4 | d << 6 for a in range(3) for b in range(3) for c in range(3) for d in range(3)],
    dtype=np.uint8,
)
_LIMITS = np.array(
    [0x7BFF, 0xFBFF, 0x0400, 0x8400, 0x03FF, 0x83FF, 0x0001, 0x8001, 0x0000, 0x8000], dtype="<u2"
)
"""Bit patterns of binary16; no Inf, no NaN."""
_TELLING = np.array([0x00, 0xFF, 0x7F, 0x80, 0x0F, 0xF0, 0x88, 0x77, 0xAA, 0x55], dtype=np.uint8)


def random_blocks(kind: WeightType, count: int, key: str, *, style: str = "blocks") -> NDArray[np.uint8]:
    """`count` blocks [count, bytes a block] that depend on the type's layout, `style` and `key` alone."""
    blocks = np.zeros((count, kind.bytes), dtype=np.uint8)
    for field in kind.fields:
        name = f"{key}/{field.name}"
        value = _STYLE[style](field, count, name)
        blocks[:, field.at : field.at + field.size] = value
    return blocks


def _bits(field: Field, count: int, key: str) -> NDArray[np.uint8]:
    return byte_array(key, count * field.size).reshape(count, field.size)


def _chosen(field: Field, count: int, key: str, table: NDArray[np.uint8]) -> NDArray[np.uint8]:
    index = below(words(key, count * field.size), 0, len(table))
    return table[index].reshape(count, field.size)


def _extreme(field: Field, count: int, key: str) -> NDArray[np.uint8]:
    tables = {
        "bits": _TELLING,
        "codes2": _CODE_BYTES[[0, 40, 80]],
        "trits": _TRIT_BYTES[[0, 121, 242]],
        "trits4": _TRIT4_BYTES[[0, 40, 80]],
    }
    if field.kind in tables:
        table = tables[field.kind]
        return np.repeat(table[below(words(key, count), 0, len(table))][:, None], field.size, axis=1)
    return _FILL[field.kind](field, count, key, ordinary=True)


def _limit(field: Field, count: int, key: str) -> NDArray[np.uint8]:
    if field.kind != "f16":
        return _ordinary(field, count, key)
    index = below(words(key, count * (field.size // 2)), 0, len(_LIMITS))
    return _LIMITS[index].view(np.uint8).reshape(count, field.size)


def _ordinary(field: Field, count: int, key: str) -> NDArray[np.uint8]:
    return _FILL[field.kind](field, count, key)


def _draw(
    field: Field, source: NDArray[np.uint64], *, ordinary: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each item the binade of its scale and its place in the table of 1024 (1023: ordinary)."""
    low, high = field.exponent or (0, 0)
    binade = below(source, 1, high - low + 1) + low
    place = np.full(source.shape, 1023, dtype=np.int64) if ordinary else below(source, 17, 1024)
    large = (place >= SUBNORMAL) & (place < LARGE)
    return np.where(large, high + LARGE_BINADES, binade), place


def _float_bits(
    field: Field, count: int, key: str, mantissa_bits: int, bias: int, *, ordinary: bool
) -> NDArray[np.uint64]:
    """IEEE-like bit patterns: sign, exponent with `bias`, mantissa."""
    source = words(key, count)
    binade, place = _draw(field, source, ordinary=ordinary)
    mantissa = (source >> np.uint64(40)) & np.uint64((1 << mantissa_bits) - 1)
    exponent = (binade + bias).astype(np.uint64)
    sign = source & np.uint64(1)
    is_zero = place < MINUS_ZERO
    sign = np.where(is_zero, (place >= ZERO).astype(np.uint64), sign)
    subnormal = (place >= MINUS_ZERO) & (place < SUBNORMAL)
    exponent = np.where(is_zero | subnormal, np.uint64(0), exponent)
    mantissa = np.where(is_zero, np.uint64(0), np.where(subnormal, mantissa | np.uint64(1), mantissa))
    width = mantissa_bits + (5 if bias == 15 else 8)
    pattern: NDArray[np.uint64] = sign << np.uint64(width) | exponent << np.uint64(mantissa_bits) | mantissa
    return pattern


def _f16(field: Field, count: int, key: str, *, ordinary: bool = False) -> NDArray[np.uint8]:
    bits = _float_bits(field, count * (field.size // 2), key, 10, 15, ordinary=ordinary)
    return bits.astype("<u2").view(np.uint8).reshape(count, field.size)


def _bf16(field: Field, count: int, key: str, *, ordinary: bool = False) -> NDArray[np.uint8]:
    bits = _float_bits(field, count * (field.size // 2), key, 7, 127, ordinary=ordinary)
    return bits.astype("<u2").view(np.uint8).reshape(count, field.size)


def _f32(field: Field, count: int, key: str, *, ordinary: bool = False) -> NDArray[np.uint8]:
    bits = _float_bits(field, count * (field.size // 4), key, 23, 127, ordinary=ordinary)
    return bits.astype("<u4").view(np.uint8).reshape(count, field.size)


def _f16_nibbles(field: Field, count: int, key: str, *, ordinary: bool = False) -> NDArray[np.uint8]:
    """IQ1_M: the top nibble of each of four 16-bit words is a nibble of the fp16 scale, lowest first."""
    scale = _float_bits(field, count, f"{key}/d", 10, 15, ordinary=ordinary)
    rest = byte_array(key, count * 8).view("<u2").reshape(count, 4).astype(np.uint64) & np.uint64(0x0FFF)
    shifts = np.array([0, 4, 8, 12], dtype=np.uint64)
    nibbles = (scale[:, None] >> shifts) & np.uint64(0xF)
    return (rest | nibbles << np.uint64(12)).astype("<u2").view(np.uint8).reshape(count, 8)


def _e8m0(field: Field, count: int, key: str, *, ordinary: bool = False) -> NDArray[np.uint8]:
    """MXFP4's scale is 2^(e − 128); e = 0 and 1 are float32 subnormals with patterns of their own."""
    source = words(key, count * field.size)
    binade, place = _draw(field, source, ordinary=ordinary)
    value = np.where(place < SUBNORMAL, below(source, 48, 3), binade + 128)
    return value.astype(np.uint8).reshape(count, field.size)


def _ue4m3(field: Field, count: int, key: str, *, ordinary: bool = False) -> NDArray[np.uint8]:
    """NVFP4's scales: 4 exponent bits (bias 7), 3 mantissa bits; 0 and the seven subnormals included."""
    source = words(key, count * field.size)
    binade, place = _draw(field, source, ordinary=ordinary)
    mantissa = below(source, 48, 8)
    value = np.where(place < SUBNORMAL, mantissa, (binade + 7) << 3 | mantissa)
    # The largest value there is (448) once in 1024: more often, and it would drown whole rows.
    value = np.where(place == LARGE, 0x7E, value)
    return value.astype(np.uint8).reshape(count, field.size)


_FILL: dict[str, Callable[..., NDArray[np.uint8]]] = {
    "bits": _bits,
    "codes2": lambda field, count, key: _chosen(field, count, key, _CODE_BYTES),
    "trits": lambda field, count, key: _chosen(field, count, key, _TRIT_BYTES),
    "trits4": lambda field, count, key: _chosen(field, count, key, _TRIT4_BYTES),
    "f16": _f16,
    "f16_nibbles": _f16_nibbles,
    "bf16": _bf16,
    "f32": _f32,
    "e8m0": _e8m0,
    "ue4m3": _ue4m3,
}

_STYLE: dict[str, Callable[[Field, int, str], NDArray[np.uint8]]] = {
    "blocks": _ordinary,
    "extremes": _extreme,
    "limits": _limit,
}
