# SPDX-License-Identifier: MIT
"""Model kernels in float32: blocks summed exactly in integers, scales applied in any order."""

from __future__ import annotations

import numpy as np

from tierlab.oracle.activations import encode
from tierlab.oracle.formats import FORMATS
from tierlab.oracle.weights import decode_rows

HALF_FIELDS: dict[str, tuple[int, ...]] = {
    "q1_0": (0,), "q2_0": (0,), "q4_0": (0,), "q4_1": (0, 2), "q5_0": (0,), "q5_1": (0, 2), "q8_0": (0,),
    "iq4_nl": (0,), "q2_k": (80, 82), "q3_k": (108,), "q4_k": (0, 2), "q5_k": (0, 2), "q6_k": (208,),
    "tq1_0": (52,), "tq2_0": (64,), "iq1_s": (0,), "iq2_xxs": (0,), "iq2_xs": (0,), "iq2_s": (0,),
    "iq3_xxs": (0,), "iq3_s": (0,), "iq4_xs": (0,),
}  # fmt: skip
"""Offsets of binary16 scales in a block, so that random blocks can be given ordinary scales."""


def rows_of(name: str, n: int, k: int, seed: int = 1) -> np.ndarray:
    """Random valid rows with scales near 1/64, uint8 [n, row bytes]."""
    rng = np.random.default_rng(seed)
    fmt = FORMATS[name]
    if fmt.block == 1:
        x = rng.standard_normal((n, k)).astype(np.float32)
        if name == "f16":
            return x.astype(np.float16).view(np.uint8)
        if name == "bf16":
            return (x.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
        return x.view(np.uint8)
    raw = rng.integers(0, 256, (n, k // fmt.block, fmt.nbytes), dtype=np.uint8)
    for at in HALF_FIELDS.get(name, ()):
        raw[..., at + 1] = (raw[..., at + 1] & 0x83) | 0x24
    if name == "mxfp4":
        raw[..., 0] = 120 + (raw[..., 0] & 7)
    if name == "nvfp4":
        raw[..., :4] = 0x30 + (raw[..., :4] & 15)
    if name == "iq1_m":
        raw[..., 55] = (raw[..., 55] & 15) | 0x20
    return raw.reshape(n, -1)


def activations(m: int, k: int, seed: int = 2) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((m, k)).astype(np.float32)


def blocked_kernel(name: str, raw: np.ndarray, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Exact block sums rounded to float32 once, then summed in float32 in a random order."""
    fmt = FORMATS[name]
    weights, operand = decode_rows(name, raw), encode(fmt.partner, x)
    width = 256 if fmt.partner == "q8_k" else 32
    parts = []
    for start in rng.permutation(x.shape[1] // width) * width:
        piece = np.s_[:, start : start + width]
        term = operand.value[piece] @ weights.main[piece].T
        parts.append(term.astype(np.float32) * np.float32(1))
        if weights.offset is not None and operand.totals is None:
            parts.append((operand.value[piece] @ weights.offset[piece].T).astype(np.float32))
        elif weights.offset is not None and operand.totals is not None:
            total = operand.totals[:, start // 32 : start // 32 + 1]
            parts.append((total @ weights.offset[:, start : start + 1].T).astype(np.float32))
    out = np.zeros((len(x), len(raw)), np.float32)
    for part in parts:
        out += part
    return out


def float_kernel(w: np.ndarray, x: np.ndarray, lanes: int, rng: np.random.Generator) -> np.ndarray:
    """float32 multiply and add into `lanes` accumulators, columns in a random order."""
    order = rng.permutation(x.shape[1])
    acc = np.zeros((lanes, len(x), len(w)), np.float32)
    for position, k in enumerate(order):
        acc[position % lanes] += x[:, k : k + 1] * w[:, k][None]
    while len(acc) > 1:
        acc = acc[0::2] + acc[1::2]
    return acc[0]


def half_kernel(w: np.ndarray, x: np.ndarray) -> np.ndarray:
    """binary16 fused multiply-add into 4 registers of 8 lanes, as ggml's f16 dot product sums."""
    steps = x.shape[1] // 32
    wide = np.zeros((len(x), len(w), 32), np.float16)
    for step in range(steps):
        piece = np.s_[:, step * 32 : step * 32 + 32]
        product = x[piece].astype(np.float64)[:, None] * w[piece].astype(np.float64)[None]
        wide = (wide.astype(np.float64) + product).astype(np.float16)
    registers = wide.reshape(len(x), len(w), 4, 8)
    pairs = registers[:, :, :2] + registers[:, :, 2:]
    return (pairs[:, :, 0] + pairs[:, :, 1]).astype(np.float32).sum(axis=2, dtype=np.float32)
