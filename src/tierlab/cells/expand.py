# SPDX-License-Identifier: MIT
"""Matrix and selection → cells, lazily and in a fixed order.

Lanes follow one another by build, profile and suite, each in the order of the file; inside a lane cells
stand by problem (so that inputs and oracle of one problem are needed once), then path, then threads.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from tierlab.cells import builds
from tierlab.cells.cell_id import parse_cell_id
from tierlab.cells.claims import rule_of
from tierlab.cells.model import Cell, Problem
from tierlab.cells.selection import check_globs, scope_of
from tierlab.errors import SelectionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tierlab.cells.matrix import Exclusion, Matrix, Preset, Row
    from tierlab.cells.model import LaneKey
    from tierlab.cells.selection import Scope, Selection

Ways = dict[tuple[str, int], set[str]]
"""Of one problem: (path, threads) → the profiles on which the plan wants it."""


def expand(matrix: Matrix, selection: Selection) -> Iterator[Cell]:
    """The selected cells that are not excluded.

    Raises UsageError (exit 3) for a word or pattern that names nothing, SelectionError (exit 2) if all
    words are known but no cell is left.
    """
    cells = (cell for cell, exclusion in _selected(matrix, selection) if exclusion is None)
    first = next(cells, None)
    if first is None:
        raise SelectionError(_nothing(matrix, selection))
    return _chain(first, cells)


def excluded(matrix: Matrix, selection: Selection) -> Iterator[tuple[Cell, Exclusion]]:
    """The selected cells that an exclusion leaves out, each with the exclusion. May be empty."""
    return ((cell, item) for cell, item in _selected(matrix, selection) if item is not None)


def lanes(matrix: Matrix, selection: Selection) -> Iterator[tuple[LaneKey, tuple[Cell, ...]]]:
    """The selected cells lane by lane: what one harness process streams. Raises as `expand` does."""
    cells = expand(matrix, selection)
    return ((key, tuple(group)) for key, group in groupby(cells, key=lambda cell: cell.lane))


def shard_of(problem: Problem, count: int) -> int:
    """The shard (1 … count) of a problem: stable across runs, machines and presets."""
    return int.from_bytes(hashlib.sha256(problem.id.encode()).digest()[:8], "big") % count + 1


def _chain(first: Cell, rest: Iterator[Cell]) -> Iterator[Cell]:
    yield first
    yield from rest


def _selected(matrix: Matrix, selection: Selection) -> Iterator[tuple[Cell, Exclusion | None]]:
    """Checks the selection now, yields later. Exact ids are never excluded: they were asked for by name."""
    scope = scope_of(matrix, selection)
    named = [parse_cell_id(matrix, text) for text in selection.ids]
    if selection.globs:
        whole = replace(scope, shard=(1, 1))
        check_globs(selection.globs, [cell.id for cell in _planned(matrix, whole)], scope.preset.name)
    if not named:
        return ((cell, matrix.exclusion_of(cell)) for cell in _narrowed(matrix, scope))
    return _with_named(matrix, scope, named)


def _with_named(matrix: Matrix, scope: Scope, named: list[Cell]) -> Iterator[tuple[Cell, Exclusion | None]]:
    from_preset = _narrowed(matrix, scope) if scope.pattern is not None else iter(())
    found: dict[Cell, Exclusion | None] = {cell: matrix.exclusion_of(cell) for cell in from_preset}
    found.update((cell, None) for cell in named if scope.holds(cell) and _in_shard(cell.problem, scope))
    order = [list(matrix.profiles), list(matrix.suites)]
    problems = {problem: place for place, problem in enumerate(dict.fromkeys(cell.problem for cell in found))}
    paths = list(matrix.paths)

    def key(cell: Cell) -> tuple[tuple[object, ...], tuple[int, int], tuple[int, int, int]]:
        lane = (order[0].index(cell.profile), order[1].index(cell.problem.suite))
        way = (problems[cell.problem], paths.index(cell.path), cell.threads)
        return (builds.order(cell.build, matrix.builds), lane, way)

    return ((cell, found[cell]) for cell in sorted(found, key=key))


def _narrowed(matrix: Matrix, scope: Scope) -> Iterator[Cell]:
    for cell in _planned(matrix, scope):
        if scope.holds(cell) and (scope.pattern is None or scope.pattern.match(cell.id)):
            yield cell


def _planned(matrix: Matrix, scope: Scope) -> Iterator[Cell]:
    """The preset's cells on the selected builds and shard; the other axes are not looked at."""
    plan = _plan(matrix, scope.preset)
    mine = {
        suite: [(problem, ways) for problem, ways in problems.items() if _in_shard(problem, scope)]
        for suite, problems in plan.items()
    }
    for build in scope.builds:
        for profile in scope.preset.profiles:
            for problems in mine.values():
                yield from _lane(matrix, build, profile, problems)


def _lane(matrix: Matrix, build: str, profile: str, problems: list[tuple[Problem, Ways]]) -> Iterator[Cell]:
    for problem, ways in problems:
        for (path, threads), profiles in ways.items():
            if profile not in profiles:
                continue
            cell = Cell(problem, path, threads, build, profile)
            if problem.op not in ("mul_mat", "mul_mat_id") or rule_of(matrix, cell) is not None:
                yield cell


def _in_shard(problem: Problem, scope: Scope) -> bool:
    index, count = scope.shard
    return count == 1 or shard_of(problem, count) == index


def _plan(matrix: Matrix, preset: Preset) -> dict[str, dict[Problem, Ways]]:
    """Suites in the order of the file; a problem that several rows name is one problem."""
    plan: dict[str, dict[Problem, Ways]] = {name: {} for name in matrix.suites}
    for row in preset.rows:
        problems = plan[row.suite.name]
        for problem in _problems(matrix, row):
            ways = problems.setdefault(problem, {})
            for path in row.paths:
                for threads in row.threads:
                    ways.setdefault((path, threads), set()).update(row.profiles)
    paths = list(matrix.paths)
    return {
        suite: {
            problem: dict(sorted(ways.items(), key=lambda way: (paths.index(way[0][0]), way[0][1])))
            for problem, ways in problems.items()
        }
        for suite, problems in plan.items()
    }


def _problems(matrix: Matrix, row: Row) -> Iterator[Problem]:
    for name in row.types:
        block = matrix.codes[name].block if row.suite.op == "quantize" else matrix.types[name].block
        for activation_type in row.activation_types:
            for shape in row.shapes:
                for weights in row.weights:
                    for activations in row.activations:
                        yield Problem(
                            suite=row.suite.name,
                            op=row.suite.op,
                            weight_type=name,
                            activation_type=activation_type,
                            shape=shape.of(block),
                            weights=weights,
                            activations=activations,
                        )


def _nothing(matrix: Matrix, selection: Selection) -> str:
    left_out = sum(1 for _ in excluded(matrix, selection))
    if left_out:
        return (
            f"all {left_out} selected cells are excluded in {matrix.path}; nothing was run. "
            "Select others, or name one of them by its whole id to run it all the same."
        )
    words = [
        f"{name} {', '.join(value)}"
        for name, value in (
            ("pattern", selection.only),
            ("profile", selection.profiles),
            ("type", selection.types),
            ("path", selection.paths),
            ("suite", selection.suites),
        )
        if value
    ]
    if selection.shard[1] > 1:
        words.append(f"shard {selection.shard[0]}/{selection.shard[1]}")
    asked = "; ".join(words) or "nothing narrower"
    return (
        f"no cell of preset {selection.preset!r} fits all of: {asked}. Nothing was run. "
        "Widen one of them; `invoke cells` lists what there is."
    )
