# SPDX-License-Identifier: MIT
"""One tensor in two models: same bytes, same values, or how far apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tierlab.gguf.compare import Distance, Outcome, distance, outcome, pieces

if TYPE_CHECKING:
    from tierlab.gguf.data import Stored
    from tierlab.gguf.types import TensorType

AS_IT_IS = "as it is"


@dataclass(frozen=True)
class Pair:
    """`identical`: same type and bytes. `outcome` and `distance` are None where shapes differ or values
    cannot be read.

    Between a checkpoint and a GGUF, `conversion` is what a converter did; `expected` is False where only
    one fits that the architecture does not have; `computed` marks tensors that converters compute by
    formulas.
    """

    name: str
    kinds: tuple[TensorType, TensorType]
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    identical: bool = False
    outcome: Outcome | None = None
    distance: Distance | None = None
    conversion: str = AS_IT_IS
    expected: bool = True
    computed: bool = False

    @property
    def same_shape(self) -> bool:
        return self.outcome is not None or self.shapes[0] == self.shapes[1]

    @property
    def quantised(self) -> bool:
        return any(kind.quantised for kind in self.kinds)

    @property
    def decides(self) -> bool:
        """Whether it is a float tensor, which no quantiser touches, and holds more than one value."""
        return not self.quantised and self.distance is not None and not self.distance.constant

    @property
    def unread(self) -> bool:
        """Whether nothing can be said of its values."""
        return self.outcome is None or (self.computed and self.outcome is Outcome.DIFFERENT)

    @property
    def wrong(self) -> bool:
        return self.outcome is Outcome.DIFFERENT and not self.computed


def paired(name: str, a: Stored, b: Stored) -> Pair:
    """Compare one tensor of both."""
    kinds, shapes = (a.type, b.type), (a.shape, b.shape)
    if a.shape != b.shape:
        return Pair(name, kinds, shapes)
    identical = a.type == b.type and a.order == b.order and _same_bytes(a, b)
    if not (a.readable and b.readable) or (identical and a.type.quantised):
        return Pair(name, kinds, shapes, identical, Outcome.EQUAL if identical else None)
    found = distance(a, b, kinds)
    return Pair(name, kinds, shapes, identical, Outcome.EQUAL if identical else outcome(found, kinds), found)


def _same_bytes(a: Stored, b: Stored) -> bool:
    return all(np.array_equal(a.raw(*piece), b.raw(*piece)) for piece in pieces(a.elements))
