# SPDX-License-Identifier: MIT
"""Two builds of one run held against each other: what changed, and what had to stay as it was.

Cells belong together if only their build differs. Inputs do not depend on the build, so equal kernels give
equal bytes, and a control whose bytes differ shows that a patch reaches farther than it says.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tierlab.run.record import CellRecord
    from tierlab.run.steps import Step

T = TypeVar("T")
Key = tuple[str, ...]
"""All of a cell's id but the build."""


class Change(StrEnum):
    """In what two answers to the same cell differ."""

    VERDICT = "verdict"
    BYTES = "bytes"
    CLAIM = "claim"
    RECEIPT = "receipt"


MOVES = frozenset({Change.VERDICT, Change.BYTES, Change.CLAIM})
"""Of a control none of these may differ; another kernel that gives the same bytes is told, and no fault."""


@dataclass(frozen=True)
class Pair:
    """The same cell in both builds."""

    before: CellRecord
    after: CellRecord
    changes: tuple[Change, ...]

    @property
    def moved(self) -> bool:
        return bool(MOVES & set(self.changes))


@dataclass(frozen=True)
class ChangeGroup:
    """Pairs of one suite, type and path that changed alike (in the same things, with the same verdicts)."""

    changes: tuple[Change, ...]
    pairs: tuple[Pair, ...]

    @property
    def example(self) -> Pair:
        return self.pairs[0]

    @property
    def where(self) -> str:
        return place(self.example.after)

    @property
    def profiles(self) -> tuple[str, ...]:
        return tuple(sorted({pair.after.profile for pair in self.pairs}))


@dataclass(frozen=True)
class SingleGroup:
    """Cells of one suite, type and path that one build alone has."""

    records: tuple[CellRecord, ...]

    @property
    def example(self) -> CellRecord:
        return self.records[0]

    @property
    def where(self) -> str:
        return place(self.example)

    @property
    def verdicts(self) -> Counter[str]:
        return Counter(record.verdict.value for record in self.records)


@dataclass
class Comparison:
    """One step of a run. `pairs` counts the cells that both builds answered, `open_pairs` those that at
    least one did not; `without_bytes` the controls that have none to compare (claims; cells that left
    their buffers; bytes that are declared undefined), so that verdict and claim alone were."""

    step: Step
    pairs: int = 0
    open_pairs: int = 0
    changed: list[ChangeGroup] = field(default_factory=list)
    only_before: list[SingleGroup] = field(default_factory=list)
    only_after: list[SingleGroup] = field(default_factory=list)
    controls: Counter[str] = field(default_factory=Counter)
    without_bytes: int = 0
    moved: list[ChangeGroup] = field(default_factory=list)
    stray: list[SingleGroup] = field(default_factory=list)
    """Controls that one build alone has."""

    @property
    def changed_cells(self) -> int:
        return sum(len(group.pairs) for group in self.changed)

    @property
    def moved_keys(self) -> frozenset[Key]:
        """The controls that moved or that one build alone has, whatever the builds."""
        moved = (pair.after for group in self.moved for pair in group.pairs)
        stray = (record for group in self.stray for record in group.records)
        return frozenset(_key(record) for record in (*moved, *stray))

    @property
    def moved_cells(self) -> int:
        return len(self.moved_keys)


def place(record: CellRecord) -> str:
    """`ggml.mul_mat q4_0 repack`"""
    return f"{record.suite} {record.type} {record.path}"


def weight_type(record: CellRecord) -> str:
    """The type of the weights (of the codes, for `quantize`): `f16` for `f16.f16`."""
    return record.type.partition(".")[0]


def comparisons(steps: Iterable[Step], records: Sequence[CellRecord]) -> list[Comparison]:
    """One comparison for each step, in order."""
    by_build: dict[str, dict[Key, CellRecord]] = {}
    for record in records:
        by_build.setdefault(record.build, {})[_key(record)] = record
    return [_compared(step, by_build.get(step.before, {}), by_build.get(step.after, {})) for step in steps]


def changes_of(before: CellRecord, after: CellRecord) -> tuple[Change, ...]:
    """What differs between two answers; both builds have answered."""
    differs = {
        Change.VERDICT: before.verdict is not after.verdict,
        Change.BYTES: before.digest != after.digest,
        Change.CLAIM: before.claimed is not after.claimed,
        Change.RECEIPT: dict(before.ran) != dict(after.ran),
    }
    return tuple(change for change, yes in differs.items() if yes)


def _key(record: CellRecord) -> Key:
    axes = (record.suite, record.type, record.shape, record.inputs, record.path, str(record.threads))
    return (*axes, record.profile)


def _compared(step: Step, before: Mapping[Key, CellRecord], after: Mapping[Key, CellRecord]) -> Comparison:
    made = Comparison(step)
    changed: list[Pair] = []
    for key, old in before.items():
        new = after.get(key)
        if new is None:
            continue
        if old.undetermined or new.undetermined:
            made.open_pairs += 1
            continue
        made.pairs += 1
        pair = Pair(old, new, changes_of(old, new))
        if pair.changes:
            changed.append(pair)
        if _is_control(step, new):
            made.controls[weight_type(new)] += 1
            made.without_bytes += not (old.digest or new.digest)
    made.changed = _groups(changed)
    made.moved = _groups([pair for pair in changed if pair.moved and _is_control(step, pair.after)])
    made.only_before = _singles(record for key, record in before.items() if key not in after)
    made.only_after = _singles(record for key, record in after.items() if key not in before)
    alone = (*made.only_before, *made.only_after)
    made.stray = [group for group in alone if _is_control(step, group.example)]
    return made


def _is_control(step: Step, record: CellRecord) -> bool:
    return step.declared and weight_type(record) not in step.touches


def _groups(pairs: Iterable[Pair]) -> list[ChangeGroup]:
    def alike(pair: Pair) -> Key:
        verdicts = (pair.before.verdict.value, pair.after.verdict.value)
        return (place(pair.after), *verdicts, *(change.value for change in pair.changes))

    return [ChangeGroup(found[0].changes, tuple(found)) for found in _collected(pairs, alike)]


def _singles(records: Iterable[CellRecord]) -> list[SingleGroup]:
    return [SingleGroup(tuple(found)) for found in _collected(records, lambda record: (place(record),))]


def _collected(items: Iterable[T], alike: Callable[[T], Key]) -> list[list[T]]:
    found: dict[Key, list[T]] = {}
    for item in items:
        found.setdefault(alike(item), []).append(item)
    return [found[key] for key in sorted(found)]
