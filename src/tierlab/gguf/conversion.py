# SPDX-License-Identifier: MIT
"""Is a GGUF tensor what a converter makes of the checkpoint's? Each conversion as a view of the values."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tierlab.gguf.compare import Outcome, Values, distance, outcome, pieces
from tierlab.gguf.hf_names import PERMUTED, PLUS_ONE, TRANSPOSED, Source, conversions, permuted_rows
from tierlab.gguf.pairs import AS_IT_IS, Pair
from tierlab.gguf.roles import OTHER, role_of

if TYPE_CHECKING:
    from tierlab.gguf.data import F64, Stored

MOST_TRANSPOSED = 1 << 26
"""Elements of a matrix that is turned round in memory; those of GPT-2, which alone needs it, have 10
million."""


@dataclass(frozen=True)
class Permuted:
    """A query or key matrix (or bias) with the rows of each of `heads` heads in the order of the GGUF."""

    source: Source
    heads: int

    @property
    def elements(self) -> int:
        return self.source.elements

    def values(self, begin: int, count: int) -> tuple[F64, F64]:
        row = self.source.shape[0] if len(self.source.shape) > 1 else 1
        rows = self.elements // row // self.heads  # of a head
        first, last = begin // row // rows, -(-(begin + count) // (row * rows))
        order = permuted_rows((last - first) * rows, last - first)
        skipped = begin - first * rows * row
        value, step = self.source.values(first * rows * row, (last - first) * rows * row)

        def ordered(x: F64) -> F64:
            return x.reshape(-1, row)[order].reshape(-1)[skipped : skipped + count]

        return ordered(value), ordered(step)


@dataclass(frozen=True)
class Shifted:
    """A norm to which the converter added one, in float32."""

    source: Source

    @property
    def elements(self) -> int:
        return self.source.elements

    def values(self, begin: int, count: int) -> tuple[F64, F64]:
        value, step = self.source.values(begin, count)
        shifted = value + 1
        return shifted, np.maximum(step, np.abs(shifted) * 2.0**-23)


@dataclass(frozen=True)
class Transposed:
    """A matrix that the checkpoint holds the other way round."""

    source: Source

    @property
    def elements(self) -> int:
        return self.source.elements

    def values(self, begin: int, count: int) -> tuple[F64, F64]:
        return tuple(x[begin : begin + count] for x in self._turned)  # type: ignore[return-value]

    @cached_property
    def _turned(self) -> tuple[F64, F64]:
        row, rows = self.source.shape
        read = [self.source.values(*piece) for piece in pieces(self.elements)]
        value, step = (
            np.concatenate(each).reshape(rows, row).T.reshape(-1) for each in zip(*read, strict=True)
        )
        return value, step


def converted(name: str, source: Source, target: Stored, architecture: str, heads: int) -> Pair:
    """The first conversion that fits, in the order of what is expected; else the nearest one."""
    kinds, shapes = (source.parts[0].type, target.type), (source.shape, target.shape)
    computed = role_of(name, len(target.shape)) == OTHER
    ways = [
        way for way in conversions(name, architecture, source, target.shape) if _possible(way, source, heads)
    ]
    if not ways or not target.readable:
        return Pair(name, kinds, shapes, computed=computed)
    found: list[Pair] = []
    for number, way in enumerate(ways):
        apart = distance(_view(way, source, heads), target, kinds)
        expected = number == 0 or architecture != "llama"  # of other architectures too little is known
        result = outcome(apart, kinds)
        found.append(Pair(name, kinds, shapes, False, result, apart, way, expected, computed))
        if result is not Outcome.DIFFERENT:
            return found[-1]
    return min(found, key=lambda pair: pair.distance.nmse if pair.distance is not None else 0.0)


def _possible(way: str, source: Source, heads: int) -> bool:
    if way == PERMUTED:
        rows = source.elements // (source.shape[0] if len(source.shape) > 1 else 1)
        return heads > 0 and rows % (2 * heads) == 0
    return way != TRANSPOSED or source.elements <= MOST_TRANSPOSED


def _view(way: str, source: Source, heads: int) -> Values:
    views: dict[str, Values] = {
        AS_IT_IS: source,
        PERMUTED: Permuted(source, heads),
        PLUS_ONE: Shifted(source),
        TRANSPOSED: Transposed(source),
    }
    return views[way]
