# SPDX-License-Identifier: MIT
"""Which fast path takes which operation, asked of the built library on each profile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tierlab.judge.verdict import UNDETERMINED
from tierlab.run.survey import claim

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tierlab.cells.matrix import Matrix
    from tierlab.cells.model import Cell
    from tierlab.run.record import CellRecord
    from tierlab.run.survey import Survey

QUESTIONS = {
    "MUL_MAT": "m512n64k256",
    "MUL_MAT, N = 61": "m512n61k256",
    "MUL_MAT_ID": "m512n64k256e4u2i1",
}
"""What is asked, by title: 512 columns as llama.cpp asks; an odd N, for layouts want multiples of 4 or 8."""

NEITHER = "–"
UNKNOWN = "?"


@dataclass(frozen=True)
class ClaimMap:
    """`takes`: (question, type, profile) → the paths that take it, in the order of the matrix file.

    None where no answer came. `drift` are the cells whose answer is not what the matrix's rules say.
    """

    profiles: tuple[str, ...]
    kinds: tuple[str, ...]
    takes: dict[tuple[str, str, str], tuple[str, ...] | None]
    drift: tuple[CellRecord, ...]
    asked: int

    @property
    def unanswered(self) -> int:
        return sum(found is None for found in self.takes.values())

    def word(self, question: str, kind: str, profile: str) -> str:
        """`kleidiai`, `repack`, both joined by `+`, `–` for neither, `?` without an answer."""
        found = self.takes[question, kind, profile]
        return UNKNOWN if found is None else "+".join(found) or NEITHER


def fast_paths(matrix: Matrix) -> tuple[str, ...]:
    """The paths with a buffer type of their own; KleidiAI first, as ggml lists them."""
    return tuple(sorted(name for name, info in matrix.paths.items() if info.buffer))


def claim_map(survey: Survey, profiles: Sequence[str], kinds: Sequence[str]) -> ClaimMap:
    """Ask for every type on every profile."""
    paths = fast_paths(survey.matrix)
    cells: dict[tuple[str, str, str, str], Cell] = {
        (question, kind, profile, path): claim(profile, kind, shape, path)
        for profile in profiles
        for question, shape in QUESTIONS.items()
        for kind in kinds
        for path in paths
    }
    records = survey.answers(cells.values())
    takes: dict[tuple[str, str, str], tuple[str, ...] | None] = {}
    for question in QUESTIONS:
        for kind in kinds:
            for profile in profiles:
                said = {path: records[cells[question, kind, profile, path].id] for path in paths}
                unknown = any(
                    record.verdict in UNDETERMINED or record.claimed is None for record in said.values()
                )
                takes[question, kind, profile] = (
                    None if unknown else tuple(path for path, record in said.items() if record.claimed)
                )
    drift = tuple(
        record for record in records.values() if not record.as_expected and record.verdict not in UNDETERMINED
    )
    return ClaimMap(tuple(profiles), tuple(kinds), takes, drift, len(cells))
