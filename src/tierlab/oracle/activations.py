# SPDX-License-Identifier: MIT
"""The operands a path makes of its activations, recomputed by the path's published formula.

A code is round(x * (1/d)). Everything up to the rounding is IEEE float32 and recomputed as such; the
rounding of a tie is not: portable code rounds halves away from zero, NEON to even, and an
implementation may use 127/max instead of 1/(max/127). An element whose scaled value lies within
`TIE_WIDTH` of a half is *ambiguous*: both neighbours are legitimate, and its possible change is kept
in `slack` so that the judge can add |w| * slack to that output's budget.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tierlab.errors import UsageError
from tierlab.oracle.weights import to_bf16

if TYPE_CHECKING:
    from collections.abc import Callable

    from tierlab.oracle.decode import F64

F32 = NDArray[np.float32]
Flags = NDArray[np.bool_]

TIE_WIDTH = 4 * 2.0**-24
"""Relative width of the ambiguous zone: reciprocal, product and a second formula round once each."""


@dataclass(frozen=True)
class Codes:
    """Quantised activations of [rows, K] in blocks: the fields as a block stores them.

    `scale` [rows, blocks] is the stored scale, `inverse_of` the float32 scale the codes were made with;
    `code` and `other` [rows, blocks, block] are the code and its legitimate alternative (equal where
    unambiguous). `total` [rows, blocks] is q8_1's stored sum and `other_total` how far it may move.
    """

    scale: F64
    code: F64
    other: F64
    total: F64 | None = None
    total_slack: F64 | None = None

    @property
    def ambiguous(self) -> Flags:
        flags: Flags = self.code != self.other
        return flags


@dataclass(frozen=True)
class Activations:
    """Operands of the product, arrays [rows, K] float64.

    `slack` is how far an ambiguous element may legitimately differ (None: nowhere). `totals` and
    `totals_slack` [rows, K/32] are q8_1's block sums, which multiply a weight block's minimum.
    `undefined` [rows]: the formula says nothing of this row (NaN or infinite input to a quantiser).
    `overflowed` [rows]: the stored scale is infinite, so no output of this row can be finite.
    """

    value: F64
    slack: F64 | None
    totals: F64 | None
    totals_slack: F64 | None
    undefined: Flags
    overflowed: Flags


def nearest_two(scaled: F64) -> tuple[F64, F64]:
    """Rounded value and its alternative: different only within `TIE_WIDTH` of a half."""
    code = np.rint(scaled)
    below = np.floor(scaled)
    near = np.abs(scaled - below - 0.5) <= TIE_WIDTH * np.maximum(np.abs(scaled), 1)
    other = np.where(near, np.where(code == below, below + 1, below), code)
    return code, other


def encode_q8_0(x: F32) -> Codes:
    """Blocks of 32: d = max|x| / 127 stored as binary16, codes by the float32 1/d. x is [rows, K]."""
    blocks = x.reshape(len(x), -1, 32)
    d = np.abs(blocks).max(axis=2) / np.float32(127)
    with np.errstate(all="ignore"):
        inverse = np.where(d != 0, np.float32(1) / d, np.float32(0)).astype(np.float32)
        scaled = (blocks * inverse[..., None]).astype(np.float64)
        stored = d.astype(np.float16).astype(np.float64)
    # A subnormal d has an infinite reciprocal; its stored scale is 0, so the codes do not matter.
    scaled = np.where(np.isfinite(scaled), scaled, 0.0)
    code, other = nearest_two(scaled)
    return Codes(stored, code, other)


def encode_q8_1(x: F32) -> Codes:
    """As q8_0, and the sum s = d * sum(codes), in float32, stored as binary16."""
    codes = encode_q8_0(x)
    d = np.abs(x.reshape(len(x), -1, 32)).max(axis=2) / np.float32(127)

    def stored_sum(code: F64) -> F64:
        with np.errstate(all="ignore"):
            total: F64 = (d * code.sum(axis=2).astype(np.float32)).astype(np.float16).astype(np.float64)
        return total

    total = stored_sum(codes.code)
    move = (codes.other - codes.code).clip(min=0).sum(axis=2, keepdims=True)
    drop = (codes.other - codes.code).clip(max=0).sum(axis=2, keepdims=True)
    with np.errstate(all="ignore"):
        high = stored_sum(np.concatenate([codes.code, move], axis=2))
        low = stored_sum(np.concatenate([codes.code, drop], axis=2))
        slack = np.fmax(np.abs(high - total), np.abs(low - total))
    return Codes(codes.scale, codes.code, codes.other, total, np.nan_to_num(slack, nan=0.0, posinf=0.0))


def encode_q8_k(x: F32) -> Codes:
    """Blocks of 256: codes by -127/max (the signed element of largest magnitude), d = 1/(-127/max)."""
    blocks = x.reshape(len(x), -1, 256)
    where = np.abs(blocks).argmax(axis=2)
    peak = np.take_along_axis(blocks, where[..., None], axis=2)[..., 0]
    with np.errstate(all="ignore"):
        inverse = np.where(peak != 0, np.float32(-127) / peak, np.float32(0)).astype(np.float32)
        scale = np.where(inverse != 0, np.float32(1) / inverse, np.float32(0)).astype(np.float32)
        scaled = (blocks * inverse[..., None]).astype(np.float64)
    scaled = np.where(np.isfinite(scaled), scaled, 0.0)
    code, other = nearest_two(scaled)
    return Codes(scale.astype(np.float64), np.minimum(code, 127), np.minimum(other, 127))


def from_codes(x: F32, codes: Codes) -> Activations:
    """Operands from blocks of codes."""
    rows = len(x)
    infinite = ~np.isfinite(codes.scale)
    scale = np.where(infinite, 0.0, codes.scale)[..., None]
    value = (scale * codes.code).reshape(rows, -1)
    slack = None
    if codes.ambiguous.any():
        slack = (np.abs(scale) * np.abs(codes.other - codes.code)).reshape(rows, -1)
    totals = codes.total
    overflowed = np.asarray(infinite.any(axis=1))
    if totals is not None:
        overflowed = overflowed | ~np.isfinite(totals).all(axis=1)
        totals = np.nan_to_num(totals, nan=0.0, posinf=0.0, neginf=0.0)
    undefined = np.asarray(~np.isfinite(x).all(axis=1))
    return Activations(value, slack, totals, codes.total_slack, undefined, overflowed & ~undefined)


def _quantised(encode: Callable[[F32], Codes]) -> Callable[[F32], Activations]:
    return lambda x: from_codes(x, encode(x))


def _exact(value: F64) -> Activations:
    none = np.zeros(len(value), np.bool_)
    return Activations(value, None, None, None, none, none)


def _f16(x: F32) -> Activations:
    with np.errstate(over="ignore"):
        return _exact(x.astype(np.float16).astype(np.float64))


def _qai8dx(x: F32) -> Activations:
    """KleidiAI's per-row asymmetric int8: scale = 255 / (max - min), both bounds including 0.

    code = clamp(round(x * scale) + zero point); operand = (code - zero point) / scale. The zero point
    itself is rounded; a different zero point changes nothing but where the clamp acts.
    """
    finite = np.asarray(np.isfinite(x).all(axis=1))
    safe = np.where(finite[:, None], x, np.float32(0))
    low = np.minimum(safe.min(axis=1), np.float32(0))
    high = np.maximum(safe.max(axis=1), np.float32(0))
    with np.errstate(all="ignore"):
        scale = np.where(low == high, np.float32(1), np.float32(255) / (high - low)).astype(np.float32)
        recip = np.where(scale != 0, np.float32(1) / scale, np.float32(0)).astype(np.float64)
        down, up = low * scale, high * scale
        from_min = (np.float32(-128) + down) + (np.float32(127) + up) > 0
        point = np.clip(np.where(from_min, np.float32(-128) - down, np.float32(127) - up), -128, 127)
        scaled = (safe * scale[:, None]).astype(np.float64)
    # An infinite scale (a row of subnormals) has reciprocal 0: every operand is 0 whatever its code.
    zero, other_zero = nearest_two(np.nan_to_num(point.astype(np.float64)))
    code, other = nearest_two(np.where(np.isfinite(scaled), scaled, 0.0))
    value = _clamped(code, zero) * recip[:, None]
    options = [_clamped(c, z) * recip[:, None] for c in (code, other) for z in (zero, other_zero)]
    slack = np.abs(np.stack(options) - value).max(axis=0)
    return Activations(value, slack if slack.any() else None, None, None, ~finite, np.zeros(len(x), np.bool_))


def _clamped(code: F64, zero: F64) -> F64:
    point = zero[:, None]
    return np.clip(code + point, -128, 127) - point


ENCODERS: dict[str, Callable[[F32], Activations]] = {
    "f32": lambda x: _exact(x.astype(np.float64)),
    "f16": _f16,
    "bf16": lambda x: _exact(to_bf16(x)),
    "q8_0": _quantised(encode_q8_0),
    "q8_1": _quantised(encode_q8_1),
    "q8_k": _quantised(encode_q8_k),
    "qai8dx": _qai8dx,
}


def encode(name: str, x: F32) -> Activations:
    """Operands of activation rows x, float32 [rows, K], under the code called `name`."""
    try:
        encoder = ENCODERS[name.lower()]
    except KeyError:
        msg = f"unknown activation code '{name}'; known are {', '.join(ENCODERS)}"
        raise UsageError(msg) from None
    return encoder(np.ascontiguousarray(x, np.float32))
