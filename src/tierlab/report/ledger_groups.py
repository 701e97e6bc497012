# SPDX-License-Identifier: MIT
"""Rows that say the same, merged: thread counts, then shapes, then types."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

W = TypeVar("W", bound=Hashable)
Shape = tuple[int, int]
Key = tuple[str, str, str, Shape, int]
"""Profile, type, asked path, (columns, rows), threads."""


@dataclass(frozen=True)
class Part(Generic[W]):
    """`what` is the same for all of these shapes on all of these thread counts."""

    shapes: tuple[Shape, ...]
    threads: tuple[int, ...]
    what: W


@dataclass(frozen=True)
class Group(Generic[W]):
    """Types of a profile that agree in every part."""

    profile: str
    types: tuple[str, ...]
    asked: str
    parts: tuple[Part[W], ...]


def merged(items: Mapping[Key, W]) -> tuple[Group[W], ...]:
    """Groups in the order of first appearance."""
    nested: dict[tuple[str, str, str], dict[Shape, dict[int, W]]] = {}
    for (profile, kind, asked, shape, threads), what in items.items():
        nested.setdefault((profile, kind, asked), {}).setdefault(shape, {})[threads] = what
    groups: dict[tuple[str, str, tuple[Part[W], ...]], list[str]] = {}
    for (profile, kind, asked), shapes in nested.items():
        groups.setdefault((profile, asked, _parts(shapes)), []).append(kind)
    return tuple(
        Group(profile, tuple(kinds), asked, parts) for (profile, asked, parts), kinds in groups.items()
    )


def _parts(shapes: Mapping[Shape, Mapping[int, W]]) -> tuple[Part[W], ...]:
    alike: dict[tuple[tuple[tuple[int, ...], W], ...], list[Shape]] = {}
    for shape, by_threads in shapes.items():
        alike.setdefault(_by_what(by_threads), []).append(shape)
    return tuple(
        Part(tuple(places), threads, what) for runs, places in alike.items() for threads, what in runs
    )


def _by_what(by_threads: Mapping[int, W]) -> tuple[tuple[tuple[int, ...], W], ...]:
    found: dict[W, list[int]] = {}
    for threads, what in sorted(by_threads.items()):
        found.setdefault(what, []).append(threads)
    return tuple((tuple(threads), what) for what, threads in found.items())


def usual_rows(shapes: Iterable[Shape]) -> int:
    """The number of weight rows that most shapes have: it is not spelled out."""
    rows = [count for _, count in shapes]
    return max(rows, key=rows.count, default=0)


def shapes_text(shapes: Sequence[Shape], usual: int) -> str:
    """`1`, `4, 127, 128`, `128 (16 rows)`."""
    return ", ".join(
        f"{columns}" if rows == usual else f"{columns} ({rows} rows)" for columns, rows in shapes
    )


def threads_text(threads: Sequence[int], every: Sequence[int]) -> str:
    """`t1,2,8`; empty where all thread counts agree."""
    return "" if set(threads) == set(every) else f"t{','.join(map(str, threads))}"
