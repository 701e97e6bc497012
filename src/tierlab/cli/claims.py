# SPDX-License-Identifier: MIT
"""`invoke claims`: type × operation × profile → KleidiAI, repack or neither, asked of the built library."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from tierlab.cells.load import load_matrix
from tierlab.cells.positions import nearest
from tierlab.cli.chip import matrix_path, say
from tierlab.dispatch.sources import deciders
from tierlab.errors import ExitCode, UsageError
from tierlab.report.claims_report import claims_json, claims_markdown
from tierlab.report.tables import write_both
from tierlab.run.survey import Question, survey
from tierlab.run.survey_claims import claim_map

if TYPE_CHECKING:
    from collections.abc import Iterable


def claims(
    profile: Iterable[str] | None, type: Iterable[str] | None, engine: str, reports: str, file: str
) -> ExitCode:
    """Print and write the map; exit 1 on drift from the rules of the matrix, 2 where answers are missing."""
    matrix_file = matrix_path(file)
    matrix = load_matrix(matrix_file)
    profiles = chosen("profile", profile, matrix.profiles)
    kinds = chosen("type", type, matrix.types)
    with survey(Question(matrix_file, Path(reports) / "claims", engine or None), say) as opened:
        symbols = {name: kind.symbol for name, kind in matrix.types.items()}
        lines = deciders(opened.tree.ggml, symbols)
        found = claim_map(opened, profiles, kinds)
        origin = f"{opened.tree.origin}, build {opened.build.binaries[:12]}"
        text = claims_markdown(found, lines, origin)
        written = write_both(opened.plan.run_dir, "claims", text, claims_json(found, lines, origin))
    print(text)
    print(f"written: {written[0]}, {written[1]}")
    if found.drift:
        return ExitCode.UNEXPECTED
    return ExitCode.UNDETERMINED if found.unanswered else ExitCode.AS_EXPECTED


def chosen(what: str, words: Iterable[str] | None, known: Iterable[str]) -> tuple[str, ...]:
    """The known names that the globs pick (all without globs), in order; UsageError if one picks none."""
    names = tuple(known)
    patterns = [part.strip() for word in words or () for part in word.split(",") if part.strip()]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            msg = f"unknown {what} {pattern!r}; nothing was run: {nearest(pattern, names)}"
            raise UsageError(msg)
    return tuple(
        name for name in names if not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)
    )
