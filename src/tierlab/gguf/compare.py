# SPDX-License-Identifier: MIT
"""Two tensors by value: how far apart they are, and whether quantisation explains it.

A quantiser that rounds to the nearest code is off by half a step at most, in each of the two files. So if
two quantised tensors come from the same weights, the root mean square of their difference is at most that
of the sum of their half steps. (Some quantisers clip a few weights, or weigh errors; that moves single
weights over the limit, not the mean: nearest-code quantisers use up 0.41 to 0.58 of it.) What is smaller
than the steps cannot be seen: a change of the weights below them passes. Floats are sharper: of one type
they must be equal; of two, equal within the rounding of both, weight by weight.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

import numpy as np

from tierlab.gguf.data import CHUNK, F64

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tierlab.gguf.types import TensorType

HALF_GAPS = {
    # iq4: neighbouring values of the code book lie 9 (one step) to 24 apart.
    **dict.fromkeys(("iq4_nl", "iq4_xs"), 24 / 9 / 2),
    # E2M1: 0.5 (one step) to 2 apart; a scale that is a power of two clips what lies between 6 and 8.
    **dict.fromkeys(("mxfp4", "nvfp4"), 2.0),
    # Groups of four or eight weights share one code of a sparse book: a weight may miss its nearest value.
    **dict.fromkeys(("iq1_s", "iq1_m", "iq3_xxs", "iq3_s"), 1.0),
    # One bit: what lies beyond both codes is clipped, and that is most of a Gaussian's energy.
    "q1_0": 1.0,
    **dict.fromkeys(("iq2_xxs", "iq2_xs", "iq2_s"), 35 / 17),
}
"""Type → the largest rounding error of a weight, in steps; 0.5 for the types with even steps and the
floats."""


class Outcome(StrEnum):
    """Of the values of two tensors, the best first."""

    EQUAL = "equal"
    ROUNDED = "equal within the rounding of their float types"
    EXPLAINED = "apart by no more than their quantisers' steps"
    DIFFERENT = "different"


class Values(Protocol):
    """What can be compared: values and steps of a range of elements."""

    @property
    def elements(self) -> int: ...

    def values(self, begin: int, count: int) -> tuple[F64, F64]: ...


@dataclass
class Distance:
    """Sums over the elements of two tensors; NaN facing NaN counts as equal and in no sum."""

    count: int = 0
    equal: int = 0
    broken: int = 0
    largest: float = 0.0
    beyond: int = 0
    seen: int = 0
    power: float = 0.0
    low: float = float("inf")
    high: float = float("-inf")
    shift: float | None = None
    sums: F64 = field(default_factory=lambda: np.zeros(7))

    def add(self, a: F64, b: F64, allowed: F64) -> None:
        """Take in a piece: values of both, and how far apart each pair may be by rounding alone."""
        self.count += a.size
        same = a == b
        with np.errstate(invalid="ignore", over="ignore"):
            sum_of_all = a.sum() + b.sum()
        if not np.isfinite(sum_of_all):
            same |= np.isnan(a) & np.isnan(b)
            finite = np.isfinite(a) & np.isfinite(b)
            self.broken += int(np.count_nonzero(~finite & ~same))
            a, b, allowed = a[finite], b[finite], allowed[finite]
        self.equal += int(np.count_nonzero(same))
        if a.size:
            self._finite(a, b, allowed)

    def _finite(self, a: F64, b: F64, allowed: F64) -> None:
        if self.shift is None:
            self.shift = float(a.mean())
        apart = np.abs(a - b)
        self.largest = max(self.largest, float(apart.max()))
        # One unit in the last place of float64: the allowance itself is rounded.
        self.beyond += int(np.count_nonzero(apart > allowed * (1 + 2.0**-50)))
        x, y = a - self.shift, b - self.shift
        self.sums += [
            *(x.sum(), y.sum(), x @ x, y @ y, x @ y),
            *(apart @ apart, allowed @ allowed),
        ]  # fmt: skip
        self.power += float(a @ a)
        self.seen += a.size
        self.low, self.high = min(self.low, float(a.min())), max(self.high, float(a.max()))

    @property
    def nmse(self) -> float:
        """Mean square of the difference over that of the first tensor; NaN if that is zero."""
        return float(self.sums[5] / self.power) if self.power else float("nan")

    @property
    def correlation(self) -> float:
        """Pearson's; NaN where one of the two is constant."""
        if self.constant:
            return float("nan")
        x, y, xx, yy, xy = self.sums[:5]
        variances = (xx - x * x / self.seen) * (yy - y * y / self.seen)
        return float((xy - x * y / self.seen) / np.sqrt(variances)) if variances > 0 else float("nan")

    @property
    def constant(self) -> bool:
        """Whether the first tensor holds one value only, and so says little."""
        return self.low >= self.high

    @property
    def used(self) -> float:
        """Root mean square of the difference over that of what rounding explains; infinite where that is
        0."""
        if not self.sums[5]:
            return 0.0
        return float(np.sqrt(self.sums[5] / self.sums[6])) if self.sums[6] else float("inf")


def distance(a: Values, b: Values, kinds: tuple[TensorType, TensorType]) -> Distance:
    """Walk through both tensors, which have the same number of elements."""
    factors = [HALF_GAPS.get(kind.name, 0.5) for kind in kinds]
    found = Distance()
    for begin, count in pieces(a.elements):
        (x, step_x), (y, step_y) = a.values(begin, count), b.values(begin, count)
        found.add(x, y, factors[0] * step_x + factors[1] * step_y)
    return found


def pieces(elements: int) -> Iterator[tuple[int, int]]:
    """(begin, count) of pieces of CHUNK elements."""
    for begin in range(0, elements, CHUNK):
        yield begin, min(CHUNK, elements - begin)


def outcome(found: Distance, kinds: tuple[TensorType, TensorType]) -> Outcome:
    """What the distance means for tensors of these types."""
    if found.equal == found.count:
        return Outcome.EQUAL
    if found.broken:
        return Outcome.DIFFERENT
    if any(kind.quantised for kind in kinds):
        return Outcome.EXPLAINED if found.used <= 1 else Outcome.DIFFERENT
    return Outcome.ROUNDED if kinds[0] != kinds[1] and not found.beyond else Outcome.DIFFERENT
