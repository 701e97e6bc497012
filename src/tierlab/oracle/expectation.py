# SPDX-License-Identifier: MIT
"""What an output must be: the answer of the oracle, and all that its budget is made of."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

F64 = NDArray[np.float64]


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
    for), `rule` a `Rule` for each element (None: all BOUND). `fault` [sampled rows, sampled N] is the
    smallest change that one step of one weight code makes, the measure of what a budget can see.
    `k` is the length of the product.
    """

    y: F64
    s: F64
    k: int
    fault: F64
    tie: F64 | None = None
    chain: F64 | None = None
    chain_squares: F64 | None = None
    rule: NDArray[np.uint8] | None = None

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays for `numpy.savez`; `from_arrays` is the inverse."""
        arrays: dict[str, NDArray[Any]] = {
            "y": self.y, "s": self.s, "k": np.array(self.k), "fault": self.fault
        }  # fmt: skip
        for name in ("tie", "chain", "chain_squares", "rule"):
            value = getattr(self, name)
            if value is not None:
                arrays[name] = value
        return arrays

    @staticmethod
    def select_columns(parts: Sequence[Expectation], owner: NDArray[np.intp]) -> Expectation:
        """The expectation whose column j comes from `parts[owner[j]]`; only y and s are kept."""
        columns = np.arange(len(owner))
        y = np.stack([part.y for part in parts])[owner, :, columns].T
        s = np.stack([part.s for part in parts])[owner, :, columns].T
        return Expectation(y, s, parts[0].k, np.zeros((0, 0)))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Expectation:
        optional = {n: arrays[n] for n in ("tie", "chain", "chain_squares", "rule") if n in arrays}
        return cls(arrays["y"], arrays["s"], int(arrays["k"]), arrays["fault"], **optional)
