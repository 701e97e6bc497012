# SPDX-License-Identifier: MIT
"""The largest error an output element may have, from the number of roundings it passes through.

|error| <= c(n) * u * S + tie + the oracle's own error + what subnormals lose, with
c(n) = min(lambda * sqrt(n), n / (1 - n u)): the probabilistic bound of Higham and Mary (2019) for long
chains, the worst case for short ones (below lambda^2 roundings the worst case is the smaller, and
no rounding can break it). docs/budget.md derives the counts and the choice of lambda.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from tierlab.errors import ConfigError
from tierlab.oracle.expectation import columns_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tierlab.oracle.expectation import Expectation

F32_MAX = float(np.finfo(np.float32).max)
F16_MAX = 65504.0
F64_UNIT = 2.0**-53
SUBNORMAL = 2.0**-149


@dataclass(frozen=True)
class Counts:
    """Roundings of one kernel family for one type; see roundings.yaml for the fields."""

    block: int
    each: int
    fixed: int
    tail: int
    unit: float
    gain: int | None
    headroom: int
    lam: float
    why: str = ""

    def chain(self, k: int) -> int:
        """n: the longest chain of roundings of an element of a product of length k."""
        return self.each * math.ceil(k / self.block) + self.fixed + (k % self.tail if self.tail else 0)

    def factor(self, k: int) -> float:
        """c(n) * u, the share of S that rounding may change."""
        n = self.chain(k)
        worst = n * self.unit / (1 - n * self.unit)
        return min(self.lam * math.sqrt(n) * self.unit, worst)

    def absolute(self, k: int) -> float:
        """What subnormal intermediates may lose, whatever the size of S."""
        if self.gain is None:
            return 0.0
        blocks = math.ceil(k / self.block)
        return SUBNORMAL * (self.chain(k) + 2.0**self.gain * blocks)


@dataclass(frozen=True)
class Bound:
    """A budget for every element, float64, and where the accumulator may legitimately overflow."""

    budget: NDArray[np.float64]
    may_overflow: NDArray[np.bool_] | None

    @classmethod
    def select_columns(cls, parts: Sequence[Bound], owner: NDArray[np.intp]) -> Bound:
        """The bound whose column j is that of `parts[owner[j]]`."""
        budget = columns_of([part.budget for part in parts], owner, 0.0)
        return cls(budget, columns_of([part.may_overflow for part in parts], owner, False))


@cache
def _table() -> dict[str, Any]:
    text = resources.files("tierlab.judge").joinpath("roundings.yaml").read_text("utf-8")
    loaded: dict[str, Any] = yaml.safe_load(text)
    return loaded


@cache
def counts(family: str, name: str) -> Counts:
    """Counts of `name` (a weight type or a KleidiAI operand packing) in a kernel family."""
    table = _table()
    families, name = table["families"], name.lower()
    entry = families.get(family, {}).get(name)
    if entry is None and family == "generic":
        entry = families["vec_dot"].get(name)
    if entry is None:
        msg = (
            f"roundings.yaml has no count for '{name}' in family '{family}', so no budget can be derived; "
            f"count the kernel's roundings and add them there"
        )
        raise ConfigError(msg)
    return Counts(
        block=entry["block"], each=entry["each"], fixed=entry["fixed"], tail=entry.get("tail", 0),
        unit=table["units"][entry.get("unit", "f32")], gain=entry.get("gain"),
        headroom=entry.get("headroom", 0), lam=float(table["lambda"]), why=entry["why"],
    )  # fmt: skip


def families() -> dict[str, tuple[str, ...]]:
    """The names counted in each kernel family, in the order of the file."""
    return {family: tuple(names) for family, names in _table()["families"].items()}


def bound(expectation: Expectation, count: Counts) -> Bound:
    """The budget of every element of `expectation` for a kernel with these counts."""
    k, s = expectation.k, expectation.s
    budget = s * (count.factor(k) + (k + 2) * F64_UNIT)
    if expectation.chain is not None:
        budget += _half_budget(expectation, count)
    absolute = count.absolute(k)
    if absolute:
        budget += np.where(s > 0, absolute, 0.0)
    if expectation.tie is not None:
        budget += expectation.tie
    return Bound(budget, _overflow(expectation, count))


def _half_budget(expectation: Expectation, count: Counts) -> NDArray[np.float64]:
    """Binary16 accumulators: u16 times the running partial sums themselves, not times n * S.

    First order in u16; the factor covers the partial sums being those of the exact operands.
    """
    assert expectation.chain is not None
    assert expectation.chain_squares is not None
    unit = _table()["units"]["f16"]
    steps = expectation.k // 32 + 2
    inflate = 1 / (1 - steps * unit) if steps * unit < 0.5 else 2.0
    likely = count.lam * np.sqrt(expectation.chain_squares)
    half: NDArray[np.float64] = unit * inflate * np.minimum(expectation.chain, likely)
    return np.where(expectation.s > 0, half, 0.0)


def _overflow(expectation: Expectation, count: Counts) -> NDArray[np.bool_] | None:
    limit = F16_MAX if expectation.chain is not None else F32_MAX / 2.0 ** (count.headroom + 1)
    flags = expectation.s > limit
    return flags if flags.any() else None
