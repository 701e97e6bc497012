# SPDX-License-Identifier: MIT
"""Conditions of `rules.yaml`: parsed once, then asked of the facts of one product."""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

NUMBERS = (
    *("columns", "rows", "rows_mod_8", "threads", "rows_per_thread", "cap", "cap_asked", "hint", "chunks"),
    *("vector_bits", "streaming_bits"),
)
WORDS = ("path", "types", "slot")
FEATURES = ("cpu", "cpu_lacks", "built", "built_lacks")

_COMPARISON = re.compile(r"(==|!=|<=|>=|<|>) (\d+|[a-z_]+)")
_OPERATORS: Mapping[str, Callable[[int, int], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}


@dataclass(frozen=True)
class Facts:
    """What decides on a kernel: the product, the CPU (probed), and what the backend is built for.

    `path` is the one that took the weight; `own` tells that the program chose it. `slot` and the number `cap`
    are filled in by rules. Lengths are in bits, 0 for none.
    """

    kind: str
    path: str
    own: bool
    cpu: frozenset[str]
    built: frozenset[str]
    numbers: Mapping[str, int]
    slot: str = ""


@dataclass(frozen=True)
class Comparison:
    """`name operator value`; the value is a number or the name of one."""

    name: str
    sign: str
    value: int | str

    def holds(self, facts: Facts) -> bool:
        value = self.value if isinstance(self.value, int) else facts.numbers[self.value]
        return _OPERATORS[self.sign](facts.numbers[self.name], value)


@dataclass(frozen=True)
class Condition:
    """Everything that is set must hold; `anyof`, where it is not empty, in one of its members."""

    own: bool | None = None
    words: Mapping[str, frozenset[str]] = field(default_factory=dict)
    features: Mapping[str, frozenset[str]] = field(default_factory=dict)
    comparisons: tuple[Comparison, ...] = ()
    anyof: tuple[Condition, ...] = ()

    def holds(self, facts: Facts) -> bool:
        if self.own is not None and facts.own != self.own:
            return False
        said = {"path": facts.path, "types": facts.kind, "slot": facts.slot}
        if any(said[key] not in values for key, values in self.words.items()):
            return False
        if not all(_features_hold(key, values, facts) for key, values in self.features.items()):
            return False
        if not all(each.holds(facts) for each in self.comparisons):
            return False
        return not self.anyof or any(each.holds(facts) for each in self.anyof)


def condition(entry: Mapping[str, Any]) -> Condition:
    """The condition that a `when` spells. Raises ValueError naming what is wrong."""
    known = {"own", "any", *WORDS, *FEATURES, *NUMBERS}
    if unknown := sorted(set(entry) - known):
        msg = f"unknown in a condition: {', '.join(unknown)}; known are {', '.join(sorted(known))}"
        raise ValueError(msg)
    return Condition(
        own=entry.get("own"),
        words={key: _texts(key, entry[key]) for key in WORDS if key in entry},
        features={key: _texts(key, entry[key]) for key in FEATURES if key in entry},
        comparisons=tuple(each for key in NUMBERS if key in entry for each in _comparisons(key, entry[key])),
        anyof=tuple(condition(each) for each in entry.get("any", ())),
    )


def _features_hold(key: str, values: Collection[str], facts: Facts) -> bool:
    have = facts.cpu if key.startswith("cpu") else facts.built
    if key.endswith("_lacks"):
        return not any(name in have for name in values)
    return all(name in have for name in values)


def _texts(key: str, value: object) -> frozenset[str]:
    words = value if isinstance(value, list) else [value]
    if not words or not all(isinstance(word, str) for word in words):
        msg = f"{key} takes words, not {value!r}"
        raise ValueError(msg)
    return frozenset(words)


def _comparisons(name: str, value: object) -> tuple[Comparison, ...]:
    found = []
    for text in value if isinstance(value, list) else [value]:
        match = _COMPARISON.fullmatch(str(text))
        if match is None or not (match[2].isdecimal() or match[2] in NUMBERS):
            msg = f"{name}: {text!r} is no comparison like '>= 128' or '<= cap'"
            raise ValueError(msg)
        found.append(Comparison(name, match[1], int(match[2]) if match[2].isdecimal() else match[2]))
    return tuple(found)
