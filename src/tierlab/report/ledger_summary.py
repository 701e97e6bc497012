# SPDX-License-Identifier: MIT
"""What the rows of a ledger say together: rules, reach of families, bytes by thread count, the exit code."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tierlab.dispatch.divergence import HYBRID, OTHER, able, not_compiled, unreachable
from tierlab.dispatch.predictions import BROKEN, HELD, UNTOLD
from tierlab.dispatch.products import in_order
from tierlab.errors import ExitCode
from tierlab.judge.verdict import UNDETERMINED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tierlab.dispatch.predictions import Check
    from tierlab.run.ledger_rows import Row, Told

_UNDETERMINED = frozenset(map(str, UNDETERMINED))


@dataclass(frozen=True)
class RuleTotal:
    """A rule over all rows."""

    rule: str
    held: int
    broken: int
    untold: int

    @property
    def rows(self) -> int:
        return self.held + self.broken + self.untold


@dataclass(frozen=True)
class Break:
    """One way in which a rule was broken, and the rows that show it."""

    check: Check
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Reach:
    """Families for a profile, type and path over all rows; `executed` holds those of any row."""

    profile: str
    type: str
    path: str
    asked: str
    compiled: tuple[str, ...]
    executed: tuple[str, ...]
    unreachable: tuple[str, ...]
    not_compiled: tuple[str, ...]


@dataclass(frozen=True)
class Bytes:
    """Thread counts that gave the same bytes, what ran there, and the error against the operands as given."""

    threads: tuple[int, ...]
    families: tuple[str, ...] | None
    nmse_given: float | None
    outputs: int


@dataclass(frozen=True)
class Dependence:
    """A product whose bytes differ between thread counts, or between executions on one."""

    profile: str
    type: str
    path: str
    asked: str
    columns: int
    rows: int
    parts: tuple[Bytes, ...]


def rule_totals(rows: Iterable[Row], ids: Iterable[str]) -> tuple[RuleTotal, ...]:
    """Every rule of `ids`, and each further test that a row names, in that order."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in ids}
    for row in rows:
        for check in row.checks:
            counts.setdefault(check.rule, Counter())[check.outcome] += 1
    return tuple(RuleTotal(name, each[HELD], each[BROKEN], each[UNTOLD]) for name, each in counts.items())


def breaks(rows: Iterable[Row]) -> tuple[Break, ...]:
    """Broken predictions, rows with the same prediction and observation together."""
    found: dict[Check, list[Row]] = {}
    for row in rows:
        for check in row.broken:
            found.setdefault(check, []).append(row)
    return tuple(Break(check, tuple(hits)) for check, hits in found.items())


def reach(rows: Iterable[Row], told: Mapping[str, Told]) -> tuple[Reach, ...]:
    """By profile, type and path: which families are compiled, which ran, which could and never did."""
    groups: dict[tuple[str, str, str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.profile, row.type, row.path, row.asked), []).append(row)
    found = []
    for (profile, kind, path, asked), members in groups.items():
        if any(row.families is None for row in members):
            continue
        can = able(told[profile].features)
        compiled = members[0].compiled
        executed = in_order(family for row in members for family in row.families or ())
        found.append(
            Reach(
                *(profile, kind, path, asked, compiled, executed),
                unreachable(compiled, can, executed),
                not_compiled(compiled, can),
            )
        )
    return tuple(found)


def dependences(rows: Iterable[Row]) -> tuple[tuple[Dependence, ...], int]:
    """Products whose bytes are not always the same, and the number of all products."""
    groups: dict[tuple[str, str, str, str, int, int], list[Row]] = {}
    for row in rows:
        if row.output:
            key = (row.profile, row.type, row.path, row.asked, row.columns, row.rows)
            groups.setdefault(key, []).append(row)
    found = []
    for key, members in groups.items():
        if len({row.output for row in members}) > 1 or any(row.outputs > 1 for row in members):
            found.append(Dependence(*key, parts=_parts(members)))
    return tuple(found), len(groups)


def _parts(members: Sequence[Row]) -> tuple[Bytes, ...]:
    by_output: dict[str, list[Row]] = {}
    for row in sorted(members, key=lambda row: row.threads):
        by_output.setdefault(row.output, []).append(row)
    return tuple(
        Bytes(
            tuple(row.threads for row in same),
            same[0].families,
            same[0].nmse_given,
            max(row.outputs for row in same),
        )
        for same in by_output.values()
    )


def exit_code(rows: Sequence[Row], told: Iterable[Told]) -> ExitCode:
    """1 if a prediction was broken or a product is not as expected, 2 if something is not known, else 0."""
    if any(row.broken or (not row.as_expected and row.verdict not in _UNDETERMINED) for row in rows):
        return ExitCode.UNEXPECTED
    unknown = any(row.verdict in _UNDETERMINED or not row.predicted for row in rows)
    if not rows or unknown or any(each.problem for each in told):
        return ExitCode.UNDETERMINED
    return ExitCode.AS_EXPECTED


def is_divergent(row: Row) -> bool:
    """Whether something else ran than what was announced alone."""
    return row.divergence in (OTHER, HYBRID)
