# SPDX-License-Identifier: MIT
"""Which path each weight of a model takes on each profile, by the claims of the built library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tierlab.judge.verdict import UNDETERMINED
from tierlab.run.survey import claim
from tierlab.run.survey_chip import LOADER_SHAPE, paths_in_order
from tierlab.run.survey_claims import fast_paths

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tierlab.cells.model import Cell
    from tierlab.gguf.work import Matmul
    from tierlab.run.record import CellRecord
    from tierlab.run.survey import Survey

NEITHER = "neither"
UNKNOWN = "no answer"

Weight = tuple[str, str]
"""Type and shape: all that a claim depends on."""


@dataclass(frozen=True)
class Placement:
    """Where a kind of weight goes: `path` is a fast path, NEITHER, or UNKNOWN where no answer came.

    `reason` says what keeps it off the fast paths: its `type`, or its `shape` (the type is taken in another).
    """

    path: str
    reason: str = ""


@dataclass(frozen=True)
class Coverage:
    """(profile, weight) → placement."""

    profiles: tuple[str, ...]
    paths: tuple[str, ...]
    placed: dict[tuple[str, Weight], Placement]

    @property
    def unanswered(self) -> int:
        return sum(placement.path == UNKNOWN for placement in self.placed.values())


def weight(matmul: Matmul) -> Weight:
    return matmul.tensor.type.name, matmul.shape


def coverage(survey: Survey, profiles: Sequence[str], matmuls: Iterable[Matmul]) -> Coverage:
    """Ask for every kind of weight on every profile, as llama.cpp does when it loads a model.

    Of several paths that take a weight the one counts whose buffer type the library lists first. Types that
    `matrix.yaml` does not know cannot be asked for.
    """
    weights = tuple(dict.fromkeys(weight(matmul) for matmul in matmuls))
    paths = fast_paths(survey.matrix)
    known = [each for each in weights if each[0] in survey.matrix.types]
    cells: dict[tuple[str, str, Weight], Cell] = {
        (profile, path, each): claim(profile, each[0], each[1], path)
        for profile in profiles
        for path in paths
        for kind, shape in known
        for each in ((kind, shape), (kind, LOADER_SHAPE))
    }
    records = survey.answers(cells.values())
    said = {key: records[cell.id] for key, cell in cells.items()}
    placed = {}
    for profile in profiles:
        order = _ordered(survey, profile, paths, known, said)
        for each in weights:
            placed[profile, each] = (
                _placement(profile, each, order, said) if each in known else Placement(UNKNOWN, "type")
            )
    return Coverage(tuple(profiles), paths, placed)


def _ordered(
    survey: Survey,
    profile: str,
    paths: Sequence[str],
    known: Sequence[Weight],
    said: dict[tuple[str, str, Weight], CellRecord],
) -> Sequence[str]:
    """The paths in the library's order; it is asked only where several take one weight."""
    if any(sum(bool(said[profile, path, each].claimed) for path in paths) > 1 for each in known):
        return paths_in_order(survey.matrix, survey.hello(profile))
    return paths


def _placement(
    profile: str, each: Weight, order: Sequence[str], said: dict[tuple[str, str, Weight], CellRecord]
) -> Placement:
    answers = {path: said[profile, path, each] for path in order}
    if any(record.verdict in UNDETERMINED or record.claimed is None for record in answers.values()):
        return Placement(UNKNOWN)
    taking = [path for path, record in answers.items() if record.claimed]
    if taking:
        return Placement(taking[0])
    elsewhere = any(said[profile, path, (each[0], LOADER_SHAPE)].claimed for path in order)
    return Placement(NEITHER, "shape" if elsewhere else "type")
