# SPDX-License-Identifier: MIT
"""Exact float64 values of ggml's block formats, from the published layouts.

A weight is `scale * code + offset`. The three parts stay apart because kernels treat them apart: the
rounding errors of a format with a minimum are relative to both parts, not to their difference.
Products of a binary16 scale, a small integer scale and a code need at most 28 significant bits, so
they are exact in float64 (the float32 products of the `gguf` package round for q6_K, and for every
format with an offset).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Callable

F64 = NDArray[np.float64]
U8 = NDArray[np.uint8]

IQ4_VALUES = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float64)
E2M1_DOUBLED = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.float64)


@dataclass(frozen=True)
class Parts:
    """Decoded blocks, each array [blocks, weights of a block] float64.

    `main` is scale*code; `offset` the additive part or None; `step` the size of the smallest change
    of one code.
    """

    main: F64
    offset: F64 | None
    step: F64


def half(field: U8) -> F64:
    """Little-endian binary16 fields, [blocks, 2 bytes] -> [blocks, 1] float64."""
    return np.ascontiguousarray(field).view("<f2").astype(np.float64)


def nibbles(packed: U8) -> U8:
    """[blocks, n] bytes -> [blocks, 2n]: all low nibbles, then all high ones."""
    return np.concatenate([packed & 15, packed >> 4], axis=1)


def _plain(scale: F64, code: F64, gap: float = 1.0) -> Parts:
    scale = np.broadcast_to(scale, code.shape)
    return Parts(scale * code, None, np.abs(scale) * gap)


def _high_bits(field: U8) -> U8:
    return np.unpackbits(field, axis=1, bitorder="little")


def _q1_0(raw: U8) -> Parts:
    bits = _high_bits(raw[:, 2:])
    return _plain(half(raw[:, :2]), bits.astype(np.float64) * 2 - 1, gap=2.0)


def _q2_0(raw: U8) -> Parts:
    fields = (raw[:, 2:, None] >> np.array([0, 2, 4, 6], np.uint8)) & 3
    return _plain(half(raw[:, :2]), fields.reshape(len(raw), 64).astype(np.float64) - 1)


def _q4_0(raw: U8) -> Parts:
    return _plain(half(raw[:, :2]), nibbles(raw[:, 2:]).astype(np.float64) - 8)


def _with_minimum(scale: F64, minimum: F64, code: F64) -> Parts:
    scale = np.broadcast_to(scale, code.shape)
    return Parts(scale * code, np.broadcast_to(minimum, code.shape), np.abs(scale))


def _q4_1(raw: U8) -> Parts:
    return _with_minimum(half(raw[:, :2]), half(raw[:, 2:4]), nibbles(raw[:, 4:]).astype(np.float64))


def _q5_0(raw: U8) -> Parts:
    code = nibbles(raw[:, 6:]) | (_high_bits(raw[:, 2:6]) << 4)
    return _plain(half(raw[:, :2]), code.astype(np.float64) - 16)


def _q5_1(raw: U8) -> Parts:
    code = nibbles(raw[:, 8:]) | (_high_bits(raw[:, 4:8]) << 4)
    return _with_minimum(half(raw[:, :2]), half(raw[:, 2:4]), code.astype(np.float64))


def _q8_0(raw: U8) -> Parts:
    return _plain(half(raw[:, :2]), raw[:, 2:].view(np.int8).astype(np.float64))


def _iq4_nl(raw: U8) -> Parts:
    return _plain(half(raw[:, :2]), IQ4_VALUES[nibbles(raw[:, 2:])], gap=9.0)


def _mxfp4(raw: U8) -> Parts:
    scale = np.ldexp(1.0, raw[:, :1].astype(np.int32) - 128)
    return _plain(scale, E2M1_DOUBLED[nibbles(raw[:, 1:])])


def ue4m3_half(field: U8) -> F64:
    """Unsigned E4M3 scales, halved because the E2M1 table is doubled; 0x7f (its NaN) counts as 0."""
    exponent = (field >> 3).astype(np.int32) & 15
    mantissa = (field & 7).astype(np.float64)
    normal = np.ldexp(1 + mantissa / 8, exponent - 8)
    value = np.where(exponent == 0, np.ldexp(mantissa, -10), normal)
    return np.where((field == 0) | (field == 0x7F), 0.0, value)


def _nvfp4(raw: U8) -> Parts:
    scale = np.repeat(ue4m3_half(raw[:, :4]), 16, axis=1)
    packed = raw[:, 4:].reshape(-1, 8)
    code = E2M1_DOUBLED[nibbles(packed)].reshape(len(raw), 64)
    return _plain(scale, code)


def _crumbs(packed: U8) -> U8:
    """Two-bit fields of q2_K and q3_K: 32 bytes hold 128 weights, four planes of 32."""
    planes = packed.reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8).reshape(1, 1, 4, 1)
    return _bytes(planes & 3).reshape(-1, 256)


def _bytes(x: NDArray[Any]) -> U8:
    return x.astype(np.uint8, copy=False)


def _spread(scale: F64, width: int) -> F64:
    return np.repeat(scale, width, axis=1)


def _q2_k(raw: U8) -> Parts:
    scale = _spread(half(raw[:, 80:82]) * (raw[:, :16] & 15), 16)
    minimum = _spread(half(raw[:, 82:84]) * (raw[:, :16] >> 4), 16)
    return _with_minimum(scale, -minimum, _crumbs(raw[:, 16:80]).astype(np.float64))


def _q3_k(raw: U8) -> Parts:
    packed = raw[:, 96:108]
    low = nibbles(packed[:, :8])
    high = ((packed[:, None, 8:] >> np.array([0, 2, 4, 6], np.uint8).reshape(1, 4, 1)) & 3).reshape(-1, 16)
    scale = half(raw[:, 108:110]) * ((low | (high << 4)).astype(np.float64) - 32)
    bit = (raw[:, None, :32] >> np.arange(8, dtype=np.uint8).reshape(1, 8, 1)) & 1
    code = _crumbs(raw[:, 32:96]).astype(np.float64) - 4 * (1 - bit.reshape(-1, 256).astype(np.float64))
    return _plain(_spread(scale, 16), code)


def _six_bit_scales(field: U8) -> tuple[F64, F64]:
    """Scales and minima of q4_K/q5_K: twelve bytes hold eight six-bit pairs."""
    first, second, third = field[:, :4], field[:, 4:8], field[:, 8:]
    scale = np.concatenate([first & 63, (third & 15) | ((first >> 6) << 4)], axis=1)
    minimum = np.concatenate([second & 63, (third >> 4) | ((second >> 6) << 4)], axis=1)
    return scale.astype(np.float64), minimum.astype(np.float64)


def _q4_k(raw: U8, high: U8 | None = None) -> Parts:
    scale, minimum = _six_bit_scales(raw[:, 4:16])
    packed = raw[:, -128:].reshape(-1, 4, 1, 32)
    code = ((packed >> np.array([0, 4], np.uint8).reshape(1, 1, 2, 1)) & 15).reshape(-1, 256)
    if high is not None:
        code = code | (high << 4)
    return _with_minimum(
        _spread(half(raw[:, :2]) * scale, 32),
        _spread(-half(raw[:, 2:4]) * minimum, 32),
        code.astype(np.float64),
    )


def _q5_k(raw: U8) -> Parts:
    bit = (raw[:, None, 16:48] >> np.arange(8, dtype=np.uint8).reshape(1, 8, 1)) & 1
    return _q4_k(raw, _bytes(bit).reshape(-1, 256))


def _q6_k(raw: U8) -> Parts:
    low = raw[:, :128].reshape(-1, 2, 1, 64) >> np.array([0, 4], np.uint8).reshape(1, 1, 2, 1)
    high = raw[:, 128:192].reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8).reshape(1, 1, 4, 1)
    code = (low & 15).reshape(-1, 256) | ((high & 3).reshape(-1, 256) << 4)
    scale = half(raw[:, 208:210]) * raw[:, 192:208].view(np.int8)
    return _plain(_spread(scale, 16), code.astype(np.float64) - 32)


def _iq4_xs(raw: U8) -> Parts:
    high = np.ascontiguousarray(raw[:, 2:4]).view("<u2") >> (2 * np.arange(8, dtype=np.uint16))
    low = np.stack([raw[:, 4:8] & 15, raw[:, 4:8] >> 4], axis=2).reshape(-1, 8)
    scale = half(raw[:, :2]) * (low + ((high & 3) << 4).astype(np.float64) - 32)
    packed = raw[:, 8:].reshape(-1, 16)
    code = IQ4_VALUES[nibbles(packed)].reshape(-1, 256)
    return _plain(_spread(scale, 32), code, gap=9.0)


def _f32(raw: U8) -> Parts:
    value = np.ascontiguousarray(raw).view("<f4").astype(np.float64)
    return Parts(value, None, np.abs(value) * 2.0**-23)


def _f16(raw: U8) -> Parts:
    value = half(raw)
    return Parts(value, None, np.maximum(np.abs(value) * 2.0**-10, 2.0**-24))


def _bf16(raw: U8) -> Parts:
    wide = np.ascontiguousarray(raw).view("<u2").astype(np.uint32) << 16
    value = wide.view(np.float32).astype(np.float64)
    return Parts(value, None, np.abs(value) * 2.0**-7)


DECODERS: dict[str, Callable[[U8], Parts]] = {
    "f32": _f32, "f16": _f16, "bf16": _bf16,
    "q1_0": _q1_0, "q2_0": _q2_0, "q4_0": _q4_0, "q4_1": _q4_1, "q5_0": _q5_0, "q5_1": _q5_1, "q8_0": _q8_0,
    "iq4_nl": _iq4_nl, "mxfp4": _mxfp4, "nvfp4": _nvfp4,
    "q2_k": _q2_k, "q3_k": _q3_k, "q4_k": _q4_k, "q5_k": _q5_k, "q6_k": _q6_k, "iq4_xs": _iq4_xs,
}  # fmt: skip
"""Formats decoded here; the codebook formats are in `grids`."""
