# SPDX-License-Identifier: MIT
"""A problem's tensors into the arena, and the request that names them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tierlab.harness.messages import Request

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tierlab.cells.matrix import Matrix
    from tierlab.cells.model import Cell, Problem
    from tierlab.harness.arena import Slot

ROW_PADDING = 64
"""Bytes between the rows of strided activations; they hold NaNs, so that a kernel that reads them shows."""


@dataclass(frozen=True)
class Inputs:
    """The tensors of one problem, as ggml stores them; None where the operation has no such operand.

    weights uint8 [planes…, N, row bytes]; activations [ne3, ne2, M, K] in the activation type (bf16 as
    uint16); values the same as float32, for the oracle; ids int32 [M, used].
    """

    weights: NDArray[np.uint8] | None
    activations: NDArray[np.generic] | None
    values: NDArray[np.float32] | None
    ids: NDArray[np.int32] | None


def output_bytes(matrix: Matrix, problem: Problem) -> int:
    """Size of the output: float32 but for `quantize`, which makes blocks; 0 for `claim`."""
    shape = problem.shape
    match problem.op:
        case "claim":
            return 0
        case "dequantize":
            return 4 * shape.n * shape.k
        case "quantize":
            code = matrix.codes[problem.weight_type]
            return shape.m * (shape.k // code.block) * code.bytes
        case "mul_mat_id":
            return 4 * shape.m * shape.used * shape.n
    return 4 * shape.batch[0] * shape.batch[1] * shape.m * shape.n


def place(slot: Slot, number: int, cell: Cell, inputs: Inputs, size: int) -> Request:
    """Empty the slot, copy the tensors into it, reserve `size` bytes for the output.

    Raises HarnessError if the problem does not fit.
    """
    slot.reset()
    problem, shape = cell.problem, cell.problem.shape
    stride = None
    weights = None if inputs.weights is None else slot.put(inputs.weights)
    activations = None
    if inputs.activations is not None:
        rows = inputs.activations
        if shape.strided:
            rows, stride = padded_rows(rows)
        activations = slot.put(rows)
    return Request(
        cell=number,
        op=problem.op,
        weight_type=problem.weight_type,
        activation_type=problem.activation_type,
        shape=(shape.m, shape.n, shape.k),
        batch=(*shape.batch, *shape.weight_batch),
        experts=(shape.experts, shape.used) if shape.experts else None,
        path=cell.path,
        threads=cell.threads,
        weights=weights,
        activations=activations,
        ids=None if inputs.ids is None else slot.put(inputs.ids),
        output=slot.reserve(size) if size else None,
        row_stride=stride,
    )


def padded_rows(rows: NDArray[np.generic]) -> tuple[NDArray[np.uint8], int]:
    """Rows [..., K] with ROW_PADDING bytes of NaN after each, flat; and the stride in bytes."""
    row_bytes = rows.shape[-1] * rows.dtype.itemsize
    stride = row_bytes + ROW_PADDING
    padded = np.full((rows.size // rows.shape[-1], stride), 0xFF, np.uint8)
    padded[:, :row_bytes] = np.ascontiguousarray(rows).reshape(len(padded), -1).view(np.uint8)
    return padded.reshape(-1), stride
