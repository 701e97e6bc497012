# SPDX-License-Identifier: MIT
"""The vocabulary of the matrix as frozen values: profiles, shapes, problems, cells.

A *problem* names the inputs (operation, types, shape, distributions) and nothing else; a *cell* is a
problem on one build, path, thread count and profile. Inputs and oracle depend on the problem and
the run's seed alone, so the same problem has the same bytes on every CPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Profile:
    """An emulated CPU and what it promises.

    `emulator` is a key of `tierlab.emulator` (`qemu-11.1`, `qemu-10.0`) or `none` (native execution).
    `features` are the promised tiers and flags, by the names that the harness hello uses.
    `vector_bits`/`streaming_bits` are the promised SVE and SME vector lengths, None without the unit.
    """

    name: str
    emulator: str
    cpu: str
    features: frozenset[str]
    vector_bits: int | None
    streaming_bits: int | None
    products: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Shape:
    """Size of one matrix product: weights [N, K] times activations [M, K] gives [M, N].

    `batch` is (ne2, ne3) of the activations, `weight_batch` that of the weights (each divides its
    partner: ggml broadcasts weights). With `experts` > 0 the operation is MUL_MAT_ID: `used` experts
    for each of the M tokens, the last `idle` experts selected by no token. `strided` activations are
    a view with padding between rows.
    """

    m: int
    n: int
    k: int
    batch: tuple[int, int] = (1, 1)
    weight_batch: tuple[int, int] = (1, 1)
    experts: int = 0
    used: int = 0
    idle: int = 0
    strided: bool = False

    @cached_property
    def id(self) -> str:
        """Self-describing, stable: `m5n64k512`, `m4n8k256b2x3w1x3`, `m7n64k256e8u2i3`, `…s` if strided."""
        text = f"m{self.m}n{self.n}k{self.k}"
        if self.batch != (1, 1) or self.weight_batch != (1, 1):
            text += f"b{self.batch[0]}x{self.batch[1]}w{self.weight_batch[0]}x{self.weight_batch[1]}"
        if self.experts:
            text += f"e{self.experts}u{self.used}i{self.idle}"
        return text + ("s" if self.strided else "")


@dataclass(frozen=True)
class Problem:
    """What is computed, on which inputs.

    `suite` is e.g. `ggml.mul_mat`; `op` the wire operation (`mul_mat`, `mul_mat_id`, `quantize`,
    `dequantize`, `claim`); `weight_type` and `activation_type` are ggml's type names in lower case.
    `weights` and `activations` name distributions of `tierlab.cells.inputs`.
    """

    suite: str
    op: str
    weight_type: str
    activation_type: str
    shape: Shape
    weights: str
    activations: str

    @cached_property
    def id(self) -> str:
        types = self.weight_type
        if self.activation_type != "f32":
            types += f".{self.activation_type}"
        return f"{self.suite}/{types}/{self.shape.id}/{self.weights}.{self.activations}"


@dataclass(frozen=True)
class Cell:
    """One point of the matrix; `id` says all of it and is enough to run it again."""

    problem: Problem
    path: str
    threads: int
    build: str
    profile: str

    @cached_property
    def id(self) -> str:
        return f"{self.problem.id}/{self.path}/t{self.threads}/{self.build}/{self.profile}"

    @property
    def lane(self) -> LaneKey:
        return LaneKey(self.build, self.profile, self.problem.suite)


@dataclass(frozen=True, order=True)
class LaneKey:
    """The cells that one harness process streams: same build, profile and suite."""

    build: str
    profile: str
    suite: str

    @property
    def id(self) -> str:
        return f"{self.suite}/{self.build}/{self.profile}"
