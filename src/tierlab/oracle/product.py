# SPDX-License-Identifier: MIT
"""Products in float64, one batch plane (or one expert) at a time.

The oracle's own error is at most (K + 2) * 2^-53 * S, some 2^-29 * K of one float32 rounding; the
budget adds it (`judge.budget`), so it need not be argued away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tierlab.errors import UsageError
from tierlab.oracle.activations import Activations, encode
from tierlab.oracle.decode import F64, U8
from tierlab.oracle.expectation import Expectation, Rule
from tierlab.oracle.weights import Weights, decode_rows, transformed

if TYPE_CHECKING:
    from collections.abc import Iterator

FAULT_ROWS, FAULT_COLUMNS = 4, 32
"""How many outputs are searched for the smallest visible fault."""
HALF_LANES, HALF_REGISTERS = 8, 4
"""Layout of the binary16 accumulators of ggml's f16 kernel: four registers of eight lanes."""
CHUNK = 1 << 20
"""Weights decoded at once, and elements of a temporary of the accumulator model: 8 MB an array."""


@dataclass(frozen=True)
class Operands:
    """What a path multiplies: activation code, weight transform, and whether it sums in binary16."""

    activation: str
    weight: str = "plain"
    half_chain: bool = False

    @property
    def key(self) -> str:
        """Short name, the same for equal operands: part of a cache key."""
        return f"{self.activation}.{self.weight}" + (".half" if self.half_chain else "")


def expect(
    weight_type: str,
    weights: U8,
    activations: NDArray[np.float32],
    operands: Operands,
    ids: NDArray[np.int32] | None = None,
) -> Expectation:
    """The answer for a matrix product; shapes are ggml's.

    weights uint8 [ne03, ne02, N, row bytes] (or [experts, N, row bytes] with `ids`), activations
    float32 [ne3, ne2, M, K], output rows in order [ne3, ne2, M] (or [M, used]).
    """
    pieces = _experts(weights, activations, ids) if ids is not None else _planes(weights, activations)
    rows = int(ids.size) if ids is not None else int(np.prod(activations.shape[:-1]))
    return _assemble(weight_type, pieces, rows, activations.shape[-1], weights.shape[-2], operands)


Piece = tuple[NDArray[np.intp], U8, NDArray[np.float32]]


def _planes(weights: U8, activations: NDArray[np.float32]) -> Iterator[Piece]:
    """Batch planes: ggml repeats each weight plane over consecutive activation planes."""
    w = weights.reshape((1,) * (4 - weights.ndim) + weights.shape)
    a = activations.reshape((1,) * (4 - activations.ndim) + activations.shape)
    if a.shape[0] % w.shape[0] or a.shape[1] % w.shape[1]:
        msg = f"weight planes {w.shape[:2]} do not divide the activation planes {a.shape[:2]}"
        raise UsageError(msg)
    order = np.arange(int(np.prod(a.shape[:3]))).reshape(a.shape[:3])
    repeat3, repeat2 = a.shape[0] // w.shape[0], a.shape[1] // w.shape[1]
    for i3 in range(w.shape[0]):
        for i2 in range(w.shape[1]):
            block = np.s_[i3 * repeat3 : (i3 + 1) * repeat3, i2 * repeat2 : (i2 + 1) * repeat2]
            yield order[block].reshape(-1), w[i3, i2], a[block].reshape(-1, a.shape[3])


def _experts(weights: U8, activations: NDArray[np.float32], ids: NDArray[np.int32]) -> Iterator[Piece]:
    """MUL_MAT_ID: each token's row times the experts it selects."""
    tokens = activations.reshape(-1, activations.shape[-1])
    w = weights.reshape(-1, *weights.shape[-2:])
    if ids.size and not 0 <= int(ids.min()) <= int(ids.max()) < len(w):
        msg = f"expert ids run from {ids.min()} to {ids.max()} but there are {len(w)} experts"
        raise UsageError(msg)
    flat = ids.reshape(-1)
    token_of = np.arange(flat.size) // ids.shape[-1]
    for expert in np.unique(flat):
        rows = np.flatnonzero(flat == expert)
        yield rows, w[expert], tokens[token_of[rows]]


def _assemble(
    weight_type: str, pieces: Iterator[Piece], rows: int, k: int, n: int, operands: Operands
) -> Expectation:
    full: dict[str, F64] = {"y": np.zeros((rows, n)), "s": np.zeros((rows, n))}
    rule = np.zeros((rows, n), np.uint8)
    fault, fault_rows = np.zeros((0, 0)), np.zeros(0, np.intp)
    group = max(FAULT_COLUMNS, CHUNK // max(1, k))
    for index, raw, x in pieces:
        a = encode(operands.activation, x)
        rule[index[a.overflowed]] = Rule.NONFINITE
        rule[index[a.undefined]] = Rule.UNDEFINED
        for start in range(0, n, group):
            w = transformed(decode_rows(weight_type, raw[start : start + group]), operands.weight)
            for name, part in _multiply(w, a, operands.half_chain).items():
                full.setdefault(name, np.zeros((rows, n)))[index, start : start + group] = part
            if not fault.size:
                fault = smallest_fault(w, a)
                fault_rows = np.asarray(index[: len(fault)], np.intp)
    return Expectation(
        y=full["y"], s=full["s"], k=k, fault=fault, fault_rows=fault_rows,
        tie=full.get("tie"), chain=full.get("chain"), chain_squares=full.get("chain_squares"),
        rule=rule if rule.any() else None,
    )  # fmt: skip


def _multiply(w: Weights, a: Activations, half_chain: bool) -> dict[str, F64]:
    """y, s and, where there is any, tie and chain: arrays [rows of a, rows of w]."""
    if a.totals is not None and w.offset is not None:
        out = _with_totals(w, a)
    else:
        finite = np.isfinite(a.value)
        value = a.value if finite.all() else np.where(finite, a.value, 0.0)
        out = {"y": value @ w.value.T, "s": np.abs(value) @ w.magnitude.T}
        if a.slack is not None:
            out["tie"] = a.slack @ np.abs(w.value).T
        if value is not a.value:
            _infinite_rows(out["y"], w, a)
    if half_chain:
        out |= half_chains(w, a)
    return out


def _with_totals(w: Weights, a: Activations) -> dict[str, F64]:
    """q4_1, q5_1: the minimum of a weight block multiplies the stored sum of an activation block."""
    assert a.totals is not None
    assert w.offset is not None
    minimum = np.ascontiguousarray(w.offset[:, ::32])
    out = {
        "y": a.value @ w.main.T + a.totals @ minimum.T,
        "s": np.abs(a.value) @ np.abs(w.main).T + np.abs(a.totals) @ np.abs(minimum).T,
    }
    if a.slack is not None and a.totals_slack is not None:
        out["tie"] = a.slack @ np.abs(w.main).T + a.totals_slack @ np.abs(minimum).T
    return out


def _infinite_rows(y: F64, w: Weights, a: Activations) -> None:
    """Rows with Inf or NaN operands: IEEE decides, in any order of summation."""
    bad = ~np.isfinite(a.value)
    for row in np.flatnonzero(bad.any(axis=1)):
        where = np.flatnonzero(bad[row])
        with np.errstate(invalid="ignore"):
            y[row] = (w.value[:, where] * a.value[row, where]).sum(axis=1)


def half_chains(w: Weights, a: Activations) -> dict[str, F64]:
    """Running partial sums of binary16 accumulators: sum |s_j| and sum s_j^2 over every rounding.

    The main loop adds products into 4 registers of 8 lanes, then adds the registers pairwise; the
    rest of the row (K mod 32) is summed in float64 by the kernel and rounds nothing here. Below
    2^-14 a binary16 rounding is absolute, hence the floor.
    """
    lanes = HALF_LANES * HALF_REGISTERS
    steps = a.value.shape[1] // lanes
    linear = np.zeros((len(a.value), len(w.value)))
    squares = np.zeros_like(linear)
    if not steps:
        return {"chain": linear, "chain_squares": squares}
    value = np.where(np.isfinite(a.value), a.value, 0.0)[:, : steps * lanes].reshape(-1, steps, lanes)
    weight = w.value[:, : steps * lanes].reshape(-1, steps, lanes)
    group = max(1, CHUNK // max(1, len(weight) * steps * lanes))
    for start in range(0, len(value), group):
        part = slice(start, start + group)
        running = np.abs(np.cumsum(value[part, None] * weight[None], axis=2, dtype=np.float64))
        np.maximum(running, 2.0**-14, out=running)
        linear[part] = running.sum(axis=(2, 3))
        squares[part] = np.einsum("mnsl,mnsl->mn", running, running)
        _register_sums(value[part], weight, linear[part], squares[part])
    return {"chain": linear, "chain_squares": squares}


def _register_sums(value: F64, weight: F64, linear: F64, squares: F64) -> None:
    lane = np.einsum("msl,nsl->mnl", value, weight).reshape(len(value), len(weight), HALF_REGISTERS, -1)
    pairs = lane[:, :, :2] + lane[:, :, 2:]
    for sums in (pairs, pairs.sum(axis=2, keepdims=True)):
        size = np.maximum(np.abs(sums), 2.0**-14)
        linear += size.sum(axis=(2, 3))
        squares += (size**2).sum(axis=(2, 3))


def smallest_fault(w: Weights, a: Activations) -> F64:
    """The least change of an output by one step of one weight code, for a sample of the outputs."""
    value = np.abs(a.value[:FAULT_ROWS])
    value = np.where(np.isfinite(value) & (value > 0), value, np.inf)
    step = w.step[:FAULT_COLUMNS]
    step = np.where(step > 0, step, np.inf)
    least = np.empty((len(value), len(step)))
    for row, x in enumerate(value):
        least[row] = (step * x).min(axis=1)
    return least
