# SPDX-License-Identifier: MIT
"""Verdicts: what can be said of a cell."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """The closed set of verdicts; see docs/how-it-works.md for their exact meaning."""

    PASS = "pass"
    FAIL = "fail"
    VACUOUS = "vacuous"
    DRIFT = "drift"
    GUARD = "guard"
    ABI = "abi"
    CRASH = "crash"
    TIMEOUT = "timeout"
    UNBUILDABLE = "unbuildable"
    UNTESTED = "untested"


UNDETERMINED = frozenset({Verdict.UNBUILDABLE, Verdict.UNTESTED})
"""Verdicts that mean "could not be determined": exit code 2, never 1."""


@dataclass(frozen=True)
class Judgement:
    """The judge's answer for one cell.

    `share` is the largest |error| / budget over all elements (1.0 is the bound; NaN if not computed).
    `max_abs`, `nmse` and `ulp` are reported beside the verdict and never decide it. `resolution` is the
    smallest change that one step of one weight code makes in a sample of the outputs, in budgets: above 1
    every such fault shows (NaN: not computed, as for anything but products).
    `detail` says, for anything but a pass, what is wrong and where, in one line.
    """

    verdict: Verdict
    share: float = float("nan")
    max_abs: float = float("nan")
    nmse: float = float("nan")
    ulp: float = float("nan")
    resolution: float = float("nan")
    detail: str = ""
