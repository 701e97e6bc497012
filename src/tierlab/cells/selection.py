# SPDX-License-Identifier: MIT
"""What a person asks for: a preset, narrowed by globs on cell ids and by axis, or exact cell ids."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase, translate
from typing import TYPE_CHECKING

from tierlab.cells.builds import check_build, order, parse_build
from tierlab.cells.positions import nearest
from tierlab.cells.selectors import axis_values, resolve
from tierlab.errors import SelectionError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tierlab.cells.matrix import Matrix, Preset
    from tierlab.cells.model import Cell


@dataclass(frozen=True)
class Selection:
    """Which cells to run.

    `only` are globs on cell ids (`*` crosses slashes) or exact ids; an exact id is run whatever the
    preset holds. The axes take globs. Empty means all of the preset; `builds` replaces the preset's
    builds, every other axis narrows. `shard` is (i, n): the i-th of n parts, counted from 1.
    """

    preset: str = "default"
    only: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    builds: tuple[str, ...] = ()
    suites: tuple[str, ...] = ()
    shard: tuple[int, int] = (1, 1)

    @property
    def globs(self) -> tuple[str, ...]:
        """The entries of `only` that are patterns."""
        return tuple(text for text in self.only if is_glob(text))

    @property
    def ids(self) -> tuple[str, ...]:
        """The entries of `only` that are exact cell ids."""
        return tuple(text for text in self.only if not is_glob(text))


@dataclass(frozen=True)
class Scope:
    """A selection after its words were found to be known: plain sets to test cells against."""

    preset: Preset
    builds: tuple[str, ...]
    profiles: frozenset[str]
    types: frozenset[str]
    paths: frozenset[str]
    suites: frozenset[str]
    shard: tuple[int, int]
    pattern: re.Pattern[str] | None

    def holds(self, cell: Cell) -> bool:
        """Whether the cell lies on the selected axis values (builds and globs are not asked here)."""
        return (
            cell.profile in self.profiles
            and cell.problem.weight_type in self.types
            and cell.path in self.paths
            and cell.problem.suite in self.suites
        )


def is_glob(text: str) -> bool:
    """Whether fnmatch gives any character of the text a meaning."""
    return any(character in text for character in "*?[")


def scope_of(matrix: Matrix, selection: Selection) -> Scope:
    """Checks every word of a selection.

    Raises UsageError (exit 3) for an unknown preset or axis value and for a shard that does not exist,
    SelectionError (exit 2) if a profile is known but not part of the preset.
    """
    preset = matrix.presets.get(selection.preset)
    if preset is None:
        advice = nearest(selection.preset, matrix.presets)
        msg = f"unknown preset {selection.preset!r}; nothing was run; {advice}"
        raise UsageError(msg)
    index, count = selection.shard
    if not 1 <= index <= count:
        last = max(count, 1)
        msg = f"shard {index}/{count} does not exist; nothing was run. Use 1/{last} … {last}/{last}."
        raise UsageError(msg)
    values = axis_values(matrix)
    profiles = _axis("profile", selection.profiles, values["profiles"])
    if selection.profiles and not selection.ids and not set(profiles) & set(preset.profiles):
        msg = (
            f"profile {', '.join(profiles)} is not part of preset {preset.name!r}; nothing was run. "
            f"It has {', '.join(preset.profiles)}; choose one of them or another preset."
        )
        raise SelectionError(msg)
    return Scope(
        preset=preset,
        builds=_builds(selection.builds, values["builds"]) if selection.builds else preset.builds,
        profiles=frozenset(profiles),
        types=frozenset(_axis("type", selection.types, values["types"])),
        paths=frozenset(_axis("path", selection.paths, values["paths"])),
        suites=frozenset(_axis("suite", selection.suites, values["suites"])),
        shard=selection.shard,
        pattern=compiled(selection.globs) if selection.globs else None,
    )


def _builds(wanted: tuple[str, ...], known: tuple[str, ...]) -> tuple[str, ...]:
    """Builds have to be named exactly: there are as many as patches in the series and published packages."""
    for name in wanted:
        check_build(name, known)
    return tuple(sorted({parse_build(name).text for name in wanted}, key=lambda name: order(name, known)))


def _axis(name: str, wanted: tuple[str, ...], known: tuple[str, ...]) -> tuple[str, ...]:
    if not wanted:
        return known
    found, bad = resolve(wanted, known)
    if bad is not None:
        msg = f"unknown {name} {bad!r}; nothing was run; {nearest(bad, known)}"
        raise UsageError(msg)
    return tuple(found)


def compiled(globs: Iterable[str]) -> re.Pattern[str]:
    """One pattern for several globs on whole ids, case-sensitive."""
    return re.compile("|".join(translate(glob) for glob in globs))


def check_globs(globs: Iterable[str], ids: list[str], preset: str) -> None:
    """Raises UsageError for the first glob that matches no id of the preset, with the nearest good one."""
    for glob in globs:
        pattern = compiled((glob,))
        if not any(pattern.match(text) for text in ids):
            msg = f"pattern {glob!r} matches no cell of preset {preset!r}; nothing was run; "
            raise UsageError(msg + _advice(glob, ids))


def _advice(glob: str, ids: list[str]) -> str:
    """Which part of the pattern fits nothing, and what would."""
    if any(compiled((glob.rstrip("/") + "/*",)).match(text) for text in ids):
        return f"did you mean {glob.rstrip('/') + '/*'!r}?"
    parts = glob.split("/")
    columns = list(zip(*(text.split("/") for text in ids), strict=True))
    for part, column in zip(parts, columns, strict=False):
        values = set(column)
        if not any(fnmatchcase(value, part) for value in values):
            bare = part.strip("*?")
            if not get_close_matches(bare.lower(), [value.lower() for value in values], n=1, cutoff=0.5):
                return f"no cell has {part!r} there; {nearest(part, values)}"
            return f"no cell has {part!r} there; {nearest(bare, values)}"
    return "its parts exist, but not together; see what there is with `invoke cells`."
