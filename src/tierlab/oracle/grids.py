# SPDX-License-Identifier: MIT
"""The codebook formats (IQ1, IQ2, IQ3) and the ternary ones, dequantised by the `gguf` package.

Their products have at most 22 significant bits, so the package's float32 results are exact as long
as the block scale is not subnormal in float32, which a binary16 scale cannot be. The package does
not tell the scale of a group; it is decoded here, to know the size of one code step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import gguf
import numpy as np

from tierlab.oracle.decode import F64, U8, Parts, half

if TYPE_CHECKING:
    from collections.abc import Callable


def _u32(field: U8) -> F64:
    return (np.ascontiguousarray(field).view("<u4") >> 28).astype(np.float64)


def _nibble_pairs(field: U8) -> F64:
    return np.stack([field & 15, field >> 4], axis=2).reshape(len(field), -1).astype(np.float64)


def _iq1_s(raw: U8) -> F64:
    high = np.ascontiguousarray(raw[:, 34:50]).view("<u2")
    return half(raw[:, :2]) * (2 * ((high >> 12) & 7).astype(np.float64) + 1)


def _iq1_m(raw: U8) -> F64:
    words = np.ascontiguousarray(raw[:, 48:56]).view("<u2")
    top = (words & 0xF000) >> np.array([12, 8, 4, 0], np.uint16)
    d: F64 = np.bitwise_or.reduce(top, axis=1).astype("<u2").view("<f2").astype(np.float64)[:, None]
    three = (words[:, :, None] >> np.array([0, 3, 6, 9], np.uint16)) & 7
    scale: F64 = 2 * three.reshape(len(raw), 16).astype(np.float64) + 1
    return d * scale


SCALES: dict[str, tuple[Callable[[U8], F64], float, float]] = {
    "iq1_s": (_iq1_s, 1.0, 0.125),
    "iq1_m": (_iq1_m, 1.0, 0.125),
    "iq2_xxs": (lambda r: half(r[:, :2]) * (0.5 + _u32(r[:, 2:66])[:, 1::2]) / 4, 17.0, 0.0),
    "iq2_xs": (lambda r: half(r[:, :2]) * (0.5 + _nibble_pairs(r[:, 66:74])) / 4, 17.0, 0.0),
    "iq2_s": (lambda r: half(r[:, :2]) * (0.5 + _nibble_pairs(r[:, 74:82])) / 4, 17.0, 0.0),
    "iq3_xxs": (lambda r: half(r[:, :2]) * (0.5 + _u32(r[:, 66:98])) / 2, 8.0, 0.0),
    "iq3_s": (lambda r: half(r[:, :2]) * (1 + 2 * _nibble_pairs(r[:, 106:110])), 2.0, 0.0),
    "tq1_0": (lambda r: half(r[:, 52:54]), 1.0, 0.0),
    "tq2_0": (lambda r: half(r[:, 64:66]), 1.0, 0.0),
}
"""Format -> (scale of each group, smallest gap between codes, size of the grid's shift)."""


def decode(name: str, raw: U8) -> Parts:
    """Decode [blocks, bytes] of a codebook format."""
    kind = gguf.GGMLQuantizationType[name.upper()]
    value = gguf.dequantize(raw, kind).astype(np.float64).reshape(len(raw), 256)
    scales, gap, shift = SCALES[name]
    group = scales(raw)
    scale = np.repeat(group, 256 // group.shape[1], axis=1)
    if not shift:
        return Parts(value, None, np.abs(scale) * gap)
    # IQ1: value = scale * (grid ± 1/8), and kernels sum the two terms apart.
    grid = np.round(np.divide(value, scale, out=np.zeros_like(value), where=scale != 0))
    main = scale * grid
    return Parts(main, value - main, np.abs(scale) * gap)
