# SPDX-License-Identifier: MIT
"""What an output must be: the answer of the oracle, and all that its budget is made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

F64 = NDArray[np.float64]
Item = TypeVar("Item", bound=np.generic)


class Rule(IntEnum):
    """How one output element is to be judged."""

    BOUND = 0
    """Finite, or of the same class (+Inf, -Inf, NaN) as the answer; inside the budget."""
    NONFINITE = 1
    """The path's own number format overflows: Inf or NaN, never a finite number."""
    UNDEFINED = 2
    """The path's formula says nothing (NaN given to a quantiser): not compared."""


@dataclass(frozen=True)
class Expectation:
    """The answer for one problem under one operand scheme; arrays [rows, N] float64.

    `y` is the exact product of the operands the kernel uses, `s` the sum of the absolute values of the
    terms it adds, `tie` what ambiguous activation codes may change (None: nothing), `chain` and
    `chain_squares` sums over the running partial sums of a binary16 accumulator (None unless asked
    for), `rule` a `Rule` for each element (None: all BOUND). `fault` [sampled rows, first columns] is the
    smallest change that one step of one weight code makes, the measure of what a budget can see;
    `fault_rows` are the output rows it was sampled in. `k` is the length of the product.
    """

    y: F64
    s: F64
    k: int
    fault: F64
    fault_rows: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, np.intp))
    tie: F64 | None = None
    chain: F64 | None = None
    chain_squares: F64 | None = None
    rule: NDArray[np.uint8] | None = None

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays for `numpy.savez`; `from_arrays` is the inverse."""
        arrays: dict[str, NDArray[Any]] = {
            "y": self.y, "s": self.s, "k": np.array(self.k),
            "fault": self.fault, "fault_rows": self.fault_rows,
        }  # fmt: skip
        for name in ("tie", "chain", "chain_squares", "rule"):
            value = getattr(self, name)
            if value is not None:
                arrays[name] = value
        return arrays

    @staticmethod
    def select_columns(parts: Sequence[Expectation], owner: NDArray[np.intp]) -> Expectation:
        """The expectation whose column j is that of `parts[owner[j]]`; without what only a budget needs."""
        return Expectation(
            y=columns_of([part.y for part in parts], owner, 0.0),
            s=columns_of([part.s for part in parts], owner, 0.0),
            k=parts[0].k,
            fault=np.zeros((0, 0)),
            tie=columns_of([part.tie for part in parts], owner, 0.0),
            rule=columns_of([part.rule for part in parts], owner, Rule.BOUND),
        )

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Expectation:
        optional = {n: arrays[n] for n in ("tie", "chain", "chain_squares", "rule") if n in arrays}
        return cls(
            arrays["y"], arrays["s"], int(arrays["k"]), arrays["fault"], arrays["fault_rows"], **optional
        )


@overload
def columns_of(parts: Sequence[NDArray[Item]], owner: NDArray[np.intp], missing: float) -> NDArray[Item]: ...


@overload
def columns_of(
    parts: Sequence[NDArray[Item] | None], owner: NDArray[np.intp], missing: float
) -> NDArray[Item] | None: ...


def columns_of(
    parts: Sequence[NDArray[Item] | None], owner: NDArray[np.intp], missing: float
) -> NDArray[Item] | None:
    """The array whose column j is that of `parts[owner[j]]`.

    A part that is None counts as filled with `missing`; None if all are.
    """
    known = next((part for part in parts if part is not None), None)
    if known is None:
        return None
    merged = np.full_like(known, missing)
    for index, part in enumerate(parts):
        if part is not None:
            mine = owner == index
            merged[:, mine] = part[:, mine]
    return merged
