# SPDX-License-Identifier: MIT
"""Comparison of an output with its expectation, safe against everything a float can be.

NaN, Inf and wrong classes count as infinitely far; an element whose S is 0 must be exactly 0; an
output that nothing could be compared with says so. The figures beside the share (largest absolute
error, NMSE, ULP) never decide.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tierlab.oracle.expectation import Expectation, Rule

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tierlab.judge.budget import Bound

F64 = np.ndarray


@dataclass(frozen=True)
class Comparison:
    """What the comparison found; `over` marks the elements outside their budget.

    `share` is the largest |error| / budget (inf for a wrong class), `compared` the number of elements
    that could be compared, `worst` the flat index of the worst element.
    """

    share: float
    max_abs: float
    nmse: float
    ulp: float
    compared: int
    over: NDArray[np.bool_]
    worst: int
    shares: NDArray[np.float64]


def compare(output: NDArray[np.float32], expectation: Expectation, bound: Bound) -> Comparison:
    """Compare output, float32 [rows, N], element by element."""
    y = expectation.y
    out = output.astype(np.float64).reshape(y.shape)
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(out - y)
    shares = _shares(error, bound.budget)
    finite = np.isfinite(out) & np.isfinite(y)
    compared = np.ones(y.shape, np.bool_)
    if not finite.all():
        _special(shares, out, y, finite, bound)
    if expectation.rule is not None:
        compared = _apply_rules(shares, out, expectation.rule)
    plain = finite & compared
    worst = int(np.argmax(shares)) if shares.size else 0
    return Comparison(
        share=float(shares.flat[worst]) if compared.any() else float("nan"),
        max_abs=float(error[plain].max()) if plain.any() else float("nan"),
        nmse=_nmse(error[plain], y[plain]),
        ulp=_ulp(out[plain], y[plain]),
        compared=int(compared.sum()),
        over=shares > 1,
        worst=worst,
        shares=shares,
    )


def _shares(error: F64, budget: F64) -> F64:
    """|error| / budget; 0/0 is 0 (an exact zero where zero is demanded), x/0 is inf."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        shares = error / budget
    return np.where(error == 0, 0.0, shares)


def _special(shares: F64, out: F64, y: F64, finite: F64, bound: Bound) -> None:
    """Elements where the output or the answer is not finite: the class must agree."""
    same = (np.isnan(out) & np.isnan(y)) | (np.isinf(out) & (out == y))
    odd = ~finite
    shares[odd] = np.where(same[odd], 0.0, np.inf)
    if bound.may_overflow is not None:
        # The accumulator of this kernel cannot hold the sum: an overflow is its documented limit.
        shares[odd & bound.may_overflow & ~np.isfinite(out)] = 0.0


def _apply_rules(shares: F64, out: F64, rule: NDArray[np.uint8]) -> NDArray[np.bool_]:
    beyond = rule == Rule.NONFINITE
    shares[beyond] = np.where(np.isfinite(out[beyond]), np.inf, 0.0)
    undefined = rule == Rule.UNDEFINED
    shares[undefined] = 0.0
    return np.asarray(~undefined)


def _nmse(error: F64, y: F64) -> float:
    if not y.size:
        return float("nan")
    with np.errstate(over="ignore", under="ignore"):
        power = float(np.dot(y, y))
        noise = float(np.dot(error, error))
    if power == 0 or not np.isfinite(power):
        return 0.0 if noise == 0 else float("inf")
    return noise / power


def _ulp(out: F64, y: F64) -> float:
    """Largest error in units of the float32 spacing at the answer."""
    if not y.size:
        return float("nan")
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        near = np.abs(y).astype(np.float32)
        near = np.minimum(near, np.float32(np.finfo(np.float32).max) / 2)
        spacing = np.spacing(near).astype(np.float64)
        return float((np.abs(out - y) / spacing).max())
