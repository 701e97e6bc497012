# SPDX-License-Identifier: MIT
"""Rules of dispatch, read from data, and what they predict for one product."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tierlab.dispatch.conditions import NUMBERS, Condition, Facts, condition
from tierlab.dispatch.products import FAMILIES, in_order
from tierlab.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

RULES = Path(__file__).with_name("rules.yaml")

KERNELS = "kernels."
NEVER = "never"
ORDER = (
    *("cap", "path", "slot", "advertised"),
    *("kernels.sme", "kernels.other", "kernels.repack", "kernels.default"),
    *(NEVER, "family"),
)
"""Groups in the order in which they are decided: `cap` and `slot` are facts for those behind them."""

_KEYS = {"id", "group", "says", "when", "predict", "decided"}
_VALUES = {"path", "slot", "cap", "advertised", "family"}
_COLUMNS = ("one", "many", "fours", "rest")


@dataclass(frozen=True)
class Place:
    """Where upstream decides: file below `ggml/`, head of a function (or table), a text inside of it."""

    file: str
    function: str
    text: str


@dataclass(frozen=True)
class Rule:
    """One rule: `says` in words, `predict` as in the file."""

    id: str
    group: str
    says: str
    when: Condition
    predict: Mapping[str, Any]
    decided: tuple[Place, ...]


@dataclass(frozen=True)
class Decision:
    """What one rule predicts for one product: a `value` (of its group), or `kernels` as name patterns."""

    rule: Rule
    value: str = ""
    kernels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Prediction:
    """Every decision for one product; `facts` are completed by the rules of `cap` and `slot`."""

    facts: Facts
    decisions: tuple[Decision, ...]

    @property
    def covered(self) -> bool:
        """Whether some rule says which kernels run."""
        return any(each.rule.group.startswith(KERNELS) for each in self.decisions)


def load_rules(path: Path = RULES) -> tuple[Rule, ...]:
    """The rules of a file, in its order. Raises ConfigError naming the rule that is wrong."""
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
        entries: Sequence[Mapping[str, Any]] = data["rules"]
        rules = tuple(_rule(path, number, entry) for number, entry in enumerate(entries, 1))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        msg = f"{path} is no file of rules ({' '.join(str(error).split())}); nothing was run. Correct it"
        raise ConfigError(msg) from error
    names = [rule.id for rule in rules]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        msg = f"{path}: rule {twice[0]!r} stands there twice; nothing was run. Give one another id"
        raise ConfigError(msg)
    return rules


def predict(rules: Sequence[Rule], facts: Facts, names: Mapping[str, str]) -> Prediction:
    """What the rules say of one product. `names` fill patterns: `type` and `codes` in ggml's spelling."""
    decisions: list[Decision] = []
    for group in ORDER:
        fitting = [rule for rule in rules if rule.group == group and rule.when.holds(facts)]
        for rule in fitting if group == NEVER else fitting[:1]:
            decided = _decision(rule, facts, names)
            decisions.append(decided)
            if group == "cap":
                facts = replace(facts, numbers={**facts.numbers, "cap": int(decided.value)})
            elif group == "slot":
                facts = replace(facts, slot=decided.value)
    return Prediction(facts, tuple(decisions))


def _decision(rule: Rule, facts: Facts, names: Mapping[str, str]) -> Decision:
    columns = facts.numbers["columns"]
    wanted = {
        "one": columns == 1,
        "many": columns > 1,
        "fours": columns >= 4,
        "rest": columns % 4 != 0,
        NEVER: True,
    }
    patterns = [
        pattern
        for key, applies in wanted.items()
        if applies
        for pattern in _of_type(rule.predict.get(key, ()), facts.kind)
    ]
    value = next((rule.predict[key] for key in _VALUES if key in rule.predict), "")
    if rule.group == "cap" and not isinstance(value, int):
        value = facts.numbers[str(value)]
    if isinstance(value, dict):  # families by the number of columns, like kernels
        value = "+".join(in_order(each for key, each in value.items() if wanted[key]))
    return Decision(rule, str(value), tuple(pattern.format_map(names) for pattern in patterns))


def _of_type(patterns: Sequence[str] | Mapping[str, Sequence[str]], kind: str) -> Sequence[str]:
    return patterns.get(kind, ()) if isinstance(patterns, dict) else patterns  # type: ignore[return-value]


def _rule(path: Path, number: int, entry: Mapping[str, Any]) -> Rule:
    name = str(entry.get("id", f"number {number}"))
    wrong = _faults(entry)
    when = Condition()
    try:
        when = condition(entry.get("when", {}))
    except ValueError as error:
        wrong = wrong or str(error)
    if wrong:
        msg = f"{path}: rule {name!r}: {wrong}; nothing was run. Correct the rule"
        raise ConfigError(msg)
    decided = tuple(Place(**place) for place in entry["decided"])
    return Rule(name, entry["group"], " ".join(entry["says"].split()), when, entry["predict"], decided)


def _faults(entry: Mapping[str, Any]) -> str:
    if set(entry) != _KEYS:
        return f"it needs exactly the keys {', '.join(sorted(_KEYS))}"
    if entry["group"] not in ORDER:
        return f"group {entry['group']!r} is none of {', '.join(ORDER)}"
    predicted = set(entry["predict"])
    group = entry["group"]
    if group == NEVER or group.startswith(KERNELS):
        allowed = {NEVER} if group == NEVER else set(_COLUMNS)
    else:
        allowed = {group}
    if not predicted or predicted - allowed:
        return f"a rule of group {group!r} predicts {' or '.join(sorted(allowed))}"
    family = entry["predict"].get("family", "")
    families = family if isinstance(family, dict) else {"many": family or "NEON"}
    if set(families) - set(_COLUMNS) or set(families.values()) - set(FAMILIES):
        return f"family is one of {', '.join(FAMILIES)}, or one each for some of {', '.join(_COLUMNS)}"
    cap = entry["predict"].get("cap", 0)
    if not isinstance(cap, int) and cap not in NUMBERS:
        return f"cap is a number or the name of one, not {cap!r}"
    if not entry["decided"]:
        return "it names no place upstream that decides"
    return ""
