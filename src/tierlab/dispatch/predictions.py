# SPDX-License-Identifier: MIT
"""Predictions of the rules against what was observed, one decision at a time."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from tierlab.dispatch.executed_families import Ran
from tierlab.dispatch.products import family_of_name
from tierlab.dispatch.rules import KERNELS, NEVER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tierlab.dispatch.rules import Decision, Prediction

HELD, BROKEN, UNTOLD = "held", "broken", "untold"
"""`untold`: the program says nothing of it, or the evidence does not exist here; neither held nor broken."""

NAMES = "name"
"""Id and group of the one test that needs no rule."""

SME_FAMILIES = frozenset({"SME", "SME2"})


@dataclass(frozen=True)
class Observation:
    """What was seen of one product. `kernels` are exact calls of product kernels by name.

    `advertised` is the announced family (empty: nothing is announced), `cap` the announced SME thread cap
    (None: nothing is said), `ran` the families that these kernels executed.
    """

    path: str
    kernels: Mapping[str, int]
    advertised: str = ""
    cap: int | None = None
    ran: Ran = field(default_factory=lambda: Ran({}, None))


@dataclass(frozen=True)
class Check:
    """One rule on one product: what it predicted, what was seen, and `held`, `broken` or `untold`."""

    rule: str
    group: str
    predicted: str
    observed: str
    outcome: str


def examine(prediction: Prediction, seen: Observation) -> tuple[Check, ...]:
    """Every decision of a prediction against what was seen. No kernel breaks whatever predicts kernels."""
    allowed = [
        pattern
        for each in prediction.decisions
        if each.rule.group.startswith(KERNELS)
        for pattern in each.kernels
    ]
    rules = tuple(_check(each, seen, allowed) for each in prediction.decisions)
    return rules if seen.ran.classes is None else (*rules, *_names(seen))


def slot_of(kernels: Mapping[str, int]) -> str:
    """`sme`, `other` or `both`, by the product kernels that ran; empty if none did."""
    sme = {family_of_name(name) in SME_FAMILIES for name, calls in kernels.items() if calls}
    if not sme:
        return ""
    return "both" if len(sme) == 2 else ("sme" if True in sme else "other")


def _check(decision: Decision, seen: Observation, allowed: list[str]) -> Check:
    group = decision.rule.group
    if group.startswith(KERNELS):
        return _kernels(decision, seen, allowed)
    if group == NEVER:
        return _never(decision, seen)
    observed = {
        "path": seen.path,
        "cap": "" if seen.cap is None else str(seen.cap),
        "slot": slot_of(seen.kernels),
        "advertised": seen.advertised,
        "family": "+".join(seen.ran.together or ()) if seen.ran.classes is not None else "",
    }[group]
    silent = not observed and (group in ("cap", "advertised") or seen.ran.classes is None)
    outcome = UNTOLD if silent else (HELD if observed == decision.value else BROKEN)
    return Check(decision.rule.id, group, decision.value, observed or "nothing", outcome)


def _kernels(decision: Decision, seen: Observation, allowed: list[str]) -> Check:
    """Each predicted kernel ran, and nothing ran that no rule of this product predicts."""
    ran = [name for name, calls in seen.kernels.items() if calls]
    idle = [p for p in decision.kernels if not any(fnmatchcase(name, p) for name in ran)]
    strange = [name for name in ran if not any(fnmatchcase(name, p) for p in allowed)]
    outcome = BROKEN if idle or strange or not ran else HELD
    return Check(
        decision.rule.id,
        decision.rule.group,
        " + ".join(decision.kernels),
        " + ".join(ran) or "nothing",
        outcome,
    )


def _names(seen: Observation) -> tuple[Check, ...]:
    """A kernel whose name states a family executed that family: no rule of the file, it holds everywhere."""
    stated = {name: said for name in seen.ran.families if (said := family_of_name(name))}
    if not stated:
        return ()
    wrong = dict(seen.ran.misnamed)
    observed = {name: wrong.get(name, said) for name, said in stated.items()}
    return (Check(NAMES, NAMES, _listed(stated), _listed(observed), BROKEN if wrong else HELD),)


def _listed(families: Mapping[str, str]) -> str:
    return " + ".join(f"{name}: {family}" for name, family in families.items())


def _never(decision: Decision, seen: Observation) -> Check:
    hits = [
        name
        for name, calls in seen.kernels.items()
        if calls and any(fnmatchcase(name, pattern) for pattern in decision.kernels)
    ]
    return Check(
        decision.rule.id,
        NEVER,
        f"not {' or '.join(decision.kernels)}",
        " + ".join(hits) or "none of them",
        BROKEN if hits else HELD,
    )
