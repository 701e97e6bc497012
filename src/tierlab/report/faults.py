# SPDX-License-Identifier: MIT
"""What is not plainly a pass: outcomes, cells that most likely share one fault, dependence on threads."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from tierlab.judge.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tierlab.run.record import CellRecord


class Outcome(StrEnum):
    """A verdict held against its declaration; each cell has exactly one."""

    PASS = "pass"
    DECLARED = "declared"
    """Another verdict than pass, and the matrix declares just that one, with a reason."""
    CURED = "cured"
    """Declared faulty, but it passes: the declaration is out of date."""
    UNEXPECTED = "unexpected"
    UNDETERMINED = "undetermined"
    """Untested or unbuildable: nothing is known of the kernel."""


def outcome(record: CellRecord) -> Outcome:
    if record.as_expected:
        return Outcome.PASS if record.verdict is Verdict.PASS else Outcome.DECLARED
    if record.undetermined:
        return Outcome.UNDETERMINED
    return Outcome.CURED if record.verdict is Verdict.PASS else Outcome.UNEXPECTED


def _place(*records: CellRecord) -> str:
    """`ggml.mul_mat q4_0 repack (stock)`; an axis on which the records differ is counted: `3 paths`."""
    words = []
    for axis in ("suite", "type", "path"):
        values = {str(getattr(record, axis)) for record in records}
        words.append(values.pop() if len(values) == 1 else f"{len(values)} {axis}s")
    return f"{' '.join(words)} ({records[0].build})"


@dataclass(frozen=True)
class FaultGroup:
    """Cells with the same verdict on the same suite, type, path and build: most likely one fault.

    Undetermined cells say nothing of a kernel: those of one build with the same cause are one group.
    `records` are sorted worst first; the first stands for the group.
    """

    records: tuple[CellRecord, ...]

    @property
    def example(self) -> CellRecord:
        return self.records[0]

    @property
    def profiles(self) -> tuple[str, ...]:
        return tuple(sorted({record.profile for record in self.records}))

    @property
    def title(self) -> str:
        return _place(*self.records)


@dataclass(frozen=True)
class ThreadGroup:
    """Problems of one suite, type, path and build that depend on the thread count for one reason."""

    where: str
    declared: str
    members: tuple[ThreadDependence, ...]

    @property
    def threads(self) -> tuple[int, ...]:
        return tuple(sorted({count for member in self.members for count in member.threads}))


@dataclass(frozen=True)
class ThreadDependence:
    """One problem on one path and profile whose output bytes differ with the thread count."""

    cell: str
    where: str
    threads: tuple[int, ...]
    digests: tuple[str, ...]
    declared: str


SEVERITY = {
    verdict: rank
    for rank, verdict in enumerate(
        (
            Verdict.GUARD,
            Verdict.ABI,
            Verdict.CRASH,
            Verdict.FAIL,
            Verdict.TIMEOUT,
            Verdict.VACUOUS,
            Verdict.DRIFT,
            Verdict.UNBUILDABLE,
            Verdict.UNTESTED,
            Verdict.PASS,
        )
    )
}
"""Rank of each verdict, 0 the worst."""


def severity(record: CellRecord) -> tuple[int, float, str]:
    """Sort key, worst first: by how much is wrong, then by share of the budget (NaN outputs on top)."""
    share = math.inf if math.isnan(record.share) else record.share
    return SEVERITY[record.verdict], -share, record.cell


def _alike(result: Outcome, record: CellRecord) -> tuple[str, ...]:
    if result is Outcome.UNDETERMINED and record.detail:
        return record.verdict, record.build, record.detail
    # Declared faults with different reasons are different faults.
    return record.verdict, record.suite, record.type, record.path, record.build, record.reason


def fault_groups(records: Iterable[CellRecord]) -> dict[Outcome, list[FaultGroup]]:
    found: dict[tuple[Outcome, tuple[str, ...]], list[CellRecord]] = {}
    for record in records:
        result = outcome(record)
        if result is not Outcome.PASS:
            found.setdefault((result, _alike(result, record)), []).append(record)
    groups: dict[Outcome, list[FaultGroup]] = {}
    for (result, _), members in found.items():
        groups.setdefault(result, []).append(FaultGroup(tuple(sorted(members, key=severity))))
    for listed in groups.values():
        listed.sort(key=lambda group: severity(group.example))
    return groups


def thread_dependence(records: Iterable[CellRecord]) -> list[ThreadDependence]:
    alike: dict[tuple[str, ...], list[CellRecord]] = {}
    for record in records:
        if record.digest:
            key = (record.suite, record.type, record.shape, record.inputs, record.path, record.build)
            alike.setdefault((*key, record.profile), []).append(record)
    found = []
    for members in alike.values():
        if len({record.digest for record in members}) > 1:
            members.sort(key=lambda record: record.threads)
            found.append(
                ThreadDependence(
                    cell=members[0].cell,
                    where=_place(members[0]),
                    threads=tuple(record.threads for record in members),
                    digests=tuple(record.digest for record in members),
                    declared=next((record.reason for record in members if record.reason), ""),
                )
            )
    return sorted(found, key=lambda entry: entry.cell)


def thread_groups(entries: Iterable[ThreadDependence]) -> list[ThreadGroup]:
    """The entries by place and declared reason, the undeclared first."""
    found: dict[tuple[str, str], list[ThreadDependence]] = {}
    for entry in entries:
        found.setdefault((entry.where, entry.declared), []).append(entry)
    groups = [ThreadGroup(where, declared, tuple(members)) for (where, declared), members in found.items()]
    return sorted(groups, key=lambda group: (bool(group.declared), group.where))
