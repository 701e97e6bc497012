# SPDX-License-Identifier: MIT
"""Weights as a kernel uses them: decoded blocks, or what a path turns them into first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tierlab.errors import UsageError
from tierlab.oracle import grids
from tierlab.oracle.decode import DECODERS, F64, U8, Parts
from tierlab.oracle.formats import format_of

TRANSFORMS = ("plain", "row_int8", "f16_product", "bf16")


@dataclass(frozen=True)
class Weights:
    """Rows of weights, all arrays [rows, K] float64.

    `value` is what multiplies an activation, `magnitude` the sum of the absolute parts that a kernel
    adds apart (equal to |value| without an offset), `step` the smallest change of one code. `main`
    and `offset` are the parts themselves where the format has a minimum.
    """

    value: F64
    magnitude: F64
    step: F64
    main: F64
    offset: F64 | None


def decode_rows(name: str, rows: U8) -> Weights:
    """Decode weight rows, uint8 [rows, row bytes] of type `name`, exactly."""
    fmt = format_of(name)
    name = name.lower()
    if rows.ndim != 2 or rows.shape[1] % fmt.nbytes:
        msg = f"rows of {rows.shape} bytes do not hold whole {name} blocks of {fmt.nbytes} bytes"
        raise UsageError(msg)
    raw = np.ascontiguousarray(rows).reshape(-1, fmt.nbytes)
    with np.errstate(invalid="ignore", over="ignore"):  # blocks whose scale is NaN or infinite
        parts = DECODERS[name](raw) if name in DECODERS else grids.decode(name, raw)
        return _assemble(parts, (len(rows), rows.shape[1] // fmt.nbytes * fmt.block))


def transformed(weights: Weights, transform: str) -> Weights:
    """What a path makes of decoded weights before it multiplies; see `TRANSFORMS`."""
    if transform == "plain":
        return weights
    if transform == "row_int8":
        return _row_int8(weights)
    if transform == "f16_product":
        return _f16_product(weights)
    if transform == "bf16":
        return _single(to_bf16(weights.value.astype(np.float32)), np.abs(weights.value) * 2.0**-7)
    msg = f"unknown weight transform '{transform}'; known are {', '.join(TRANSFORMS)}"
    raise UsageError(msg)


def to_bf16(x: np.ndarray) -> F64:
    """float32 -> bfloat16, round to nearest even, as float64."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + ((bits >> np.uint64(16)) & np.uint64(1))) >> np.uint64(16)) << np.uint64(16)
    value = rounded.astype(np.uint32).view(np.float32).astype(np.float64)
    return np.where(np.isnan(x), np.nan, value)


def _assemble(parts: Parts, shape: tuple[int, int]) -> Weights:
    def shaped(x: F64) -> F64:
        return np.ascontiguousarray(x, np.float64).reshape(shape)

    main, step = shaped(parts.main), shaped(parts.step)
    if parts.offset is None:
        return Weights(main, np.abs(main), step, main, None)
    offset = shaped(parts.offset)
    return Weights(main + offset, np.abs(main) + np.abs(offset), step, main, offset)


def _single(value: F64, step: F64) -> Weights:
    return Weights(value, np.abs(value), step, value, None)


def _row_int8(weights: Weights) -> Weights:
    """KleidiAI's q8_0 path: each row again to int8 with one float32 scale.

    scale = max|w| / 127, code = w * (1 / scale) rounded to nearest, halves away from zero; every step
    in float32, all of them IEEE operations, so the codes are known without ambiguity.
    """
    w = weights.value.astype(np.float32)
    scale = np.abs(w).max(axis=1, keepdims=True) / np.float32(127)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        inverse = np.where(scale > 0, np.float32(1) / scale, np.float32(0)).astype(np.float32)
        scaled = (w * inverse).astype(np.float64)
    code = np.clip(np.trunc(scaled + np.copysign(0.5, scaled)), -127, 127)
    wide = np.broadcast_to(scale.astype(np.float64), code.shape)
    return _single(code * wide, wide.copy())


def _f16_product(weights: Weights) -> Weights:
    """KleidiAI's SME2 q4_0 GEMM multiplies code and scale in binary16 before the outer product."""
    with np.errstate(over="ignore"):
        value = weights.main.astype(np.float16).astype(np.float64)
    return _single(value, weights.step)
