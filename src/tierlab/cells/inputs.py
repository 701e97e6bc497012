# SPDX-License-Identifier: MIT
"""The bytes that a problem computes on: made natively, the same on every profile, path and build.

They depend on the run's seed, on the part of the problem that names them (a key below) and on
`streams.GENERATION`; quantised Gaussians besides on the quantiser, which is the gguf package for the
simple types and ggml's own (through a callback) for the others. Keys are shared on purpose: weights do
not depend on M, activations not on the weight type (except `denormals`), so that one quantisation and one
dequantisation serve many problems.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tierlab.cells.blocks import random_blocks
from tierlab.cells.distributions import activation_rows
from tierlab.cells.streams import normal, words
from tierlab.errors import HarnessError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tierlab.cells.matrix import Matrix, WeightType
    from tierlab.cells.model import Problem

    Quantize = Callable[[str, NDArray[np.float32]], bytes | NDArray[np.uint8]]
    """(type name, float32 [rows, K]) → the blocks of all rows, through ggml's own quantiser."""


def weights_key(problem: Problem) -> str:
    """What names the weights: equal keys mean equal bytes (for one seed)."""
    shape = problem.shape
    planes = f"e{shape.experts}" if shape.experts else f"w{shape.weight_batch[0]}x{shape.weight_batch[1]}"
    return f"weights/{problem.weight_type}/n{shape.n}k{shape.k}{planes}/{problem.weights}"


def activations_key(problem: Problem, codes: str) -> str:
    """What names the activations: equal keys mean equal bytes (for one seed)."""
    shape = problem.shape
    rows = f"m{shape.m}k{shape.k}b{shape.batch[0]}x{shape.batch[1]}"
    types = (
        f"{problem.activation_type}.{codes}"
        if problem.activations == "denormals"
        else problem.activation_type
    )
    return f"activations/{types}/{rows}/{problem.activations}"


def ids_key(problem: Problem) -> str:
    """What names the experts that the tokens choose."""
    shape = problem.shape
    return f"ids/m{shape.m}e{shape.experts}u{shape.used}i{shape.idle}"


def codes_of(matrix: Matrix, problem: Problem) -> str:
    """The type that the problem's activations are converted to before they are multiplied."""
    return problem.weight_type if problem.op == "quantize" else matrix.types[problem.weight_type].codes


def weights(
    matrix: Matrix, problem: Problem, seed: int, quantize: Quantize | None = None
) -> NDArray[np.uint8]:
    """The weight tensor's bytes: uint8 [ne03, ne02, N, row bytes], with experts [experts, N, row bytes].

    `quantize` is needed for `gauss` weights of types whose `quantizer` is `native`; HarnessError
    if it is missing or answers with the wrong number of bytes.
    """
    kind = matrix.types[problem.weight_type]
    shape = problem.shape
    planes = (shape.experts,) if shape.experts else (shape.weight_batch[1], shape.weight_batch[0])
    rows = int(np.prod(planes)) * shape.n
    key = f"{seed}/{weights_key(problem)}"
    if problem.weights == "gauss":
        data = _quantised(kind, normal(key, rows * shape.k).reshape(rows, shape.k), quantize)
    else:
        count = rows * shape.k // kind.block
        data = random_blocks(kind, count, key, style=problem.weights)
    return data.reshape(*planes, shape.n, kind.row_bytes(shape.k))


def activations(matrix: Matrix, problem: Problem, seed: int) -> NDArray[np.float32] | NDArray[np.uint16]:
    """The activations [ne3, ne2, M, K]: float32, or the bits of f16/bf16 as uint16.

    MUL_MAT_ID reads the same memory as [M, 1, K]: each token once. Strides are the caller's affair.
    """
    shape = problem.shape
    codes = codes_of(matrix, problem)
    key = f"{seed}/{activations_key(problem, codes)}"
    rows = shape.batch[0] * shape.batch[1] * shape.m
    values = activation_rows(problem.activations, rows, shape.k, key, codes)
    values = values.reshape(shape.batch[1], shape.batch[0], shape.m, shape.k)
    if problem.activation_type == "f16":
        return values.astype(np.float16).view(np.uint16)
    if problem.activation_type == "bf16":
        return to_bf16(values)
    return values


def ids(problem: Problem, seed: int) -> NDArray[np.int32]:
    """The experts of each token: int32 [M, used], all different within a token, never an idle one."""
    shape = problem.shape
    active = shape.experts - shape.idle
    lots = words(f"{seed}/{ids_key(problem)}", shape.m * active).reshape(shape.m, active)
    return np.argsort(lots, axis=1, kind="stable")[:, : shape.used].astype(np.int32)


def as_float32(activation_type: str, values: NDArray[np.float32] | NDArray[np.uint16]) -> NDArray[np.float32]:
    """The values of activations that `activations` made, whatever their type; exact."""
    if activation_type == "f16":
        return values.view(np.float16).astype(np.float32)
    if activation_type == "bf16":
        return (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return values.astype(np.float32, copy=False)


def to_bf16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """float32 → bfloat16 bits, to nearest, ties to even; NaN stays a (quiet) NaN."""
    bits = np.ascontiguousarray(values).view(np.uint32).astype(np.uint64)
    rounded = (bits + np.uint64(0x7FFF) + (bits >> np.uint64(16) & np.uint64(1))) >> np.uint64(16)
    return np.where(np.isnan(values), bits >> np.uint64(16) | np.uint64(0x40), rounded).astype(np.uint16)


def _quantised(kind: WeightType, values: NDArray[np.float32], quantize: Quantize | None) -> NDArray[np.uint8]:
    if kind.quantizer == "cast":
        return _cast(kind, values)
    if kind.quantizer == "gguf":
        # Imported here: the package costs more time than the rest of this layer together.
        from gguf import GGMLQuantizationType
        from gguf.quants import quantize as by_gguf

        return np.asarray(by_gguf(values, GGMLQuantizationType[kind.name.upper()]), dtype=np.uint8)
    if quantize is None:
        msg = (
            f"Gaussian weights of type {kind.name} need ggml's own quantiser, and none was given; "
            "the cell cannot be run. Build the native reference harness, or select blocks instead of gauss."
        )
        raise HarnessError(msg)
    answer = quantize(kind.name, values)
    data = np.frombuffer(answer, dtype=np.uint8) if isinstance(answer, bytes) else answer.reshape(-1)
    want = values.shape[0] * kind.row_bytes(values.shape[1])
    if data.size != want:
        msg = (
            f"the quantiser returned {data.size} bytes of {kind.name} for {values.shape[0]} rows of "
            f"{values.shape[1]}, not {want}; the cell cannot be run. Compare the type's block in matrix.yaml "
            "with the tree's."
        )
        raise HarnessError(msg)
    return data


def _cast(kind: WeightType, values: NDArray[np.float32]) -> NDArray[np.uint8]:
    if kind.name == "f16":
        return values.astype("<f2").view(np.uint8)
    if kind.name == "bf16":
        return to_bf16(values).astype("<u2").view(np.uint8)
    return values.astype("<f4").view(np.uint8)
