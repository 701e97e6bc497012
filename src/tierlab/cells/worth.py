# SPDX-License-Identifier: MIT
"""The budget's promise, checked: λ must be large enough for the false alarms that the file allows."""

from __future__ import annotations

from math import exp, log, sqrt
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tierlab.cells.positions import Document


def false_alarms(lam: float, elements_per_run: float, runs_per_year: float) -> float:
    """Upper bound on the expected false alarms a year: 2·exp(−λ²/2) for each element judged.

    This is the tail of the probabilistic rounding bound λ·√n·u·S (Higham and Mary, 2019, theorem 2.4)
    with u² terms dropped.
    """
    return 2.0 * exp(-lam * lam / 2.0) * elements_per_run * runs_per_year


def needed_lambda(elements_per_run: float, runs_per_year: float, allowed: float) -> float:
    """The smallest λ whose bound on false alarms a year is `allowed`."""
    return sqrt(max(0.0, 2.0 * log(2.0 * elements_per_run * runs_per_year / allowed)))


def check_budgets(document: Document) -> None:
    """Raises ConfigError if λ does not deliver the false alarm rate written beside it."""
    entry = document.data["budgets"]
    elements, runs = float(entry["elements_per_run"]), float(entry["runs_per_year"])
    allowed, lam = float(entry["false_alarms_per_year"]), float(entry["lambda"])
    if false_alarms(lam, elements, runs) > allowed:
        needed = needed_lambda(elements, runs, allowed)
        msg = (
            f"lambda {lam:g} allows {false_alarms(lam, elements, runs):.2g} false alarms a year, "
            f"more than the {allowed:g} promised; use {needed:.2f} or more."
        )
        raise document.error(("budgets", "lambda"), msg)
