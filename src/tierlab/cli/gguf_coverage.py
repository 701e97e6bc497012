# SPDX-License-Identifier: MIT
"""`invoke gguf FILE… --coverage`: the built library is asked which path takes each weight on each profile."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tierlab.cells.load import load_matrix
from tierlab.cli.chip import matrix_path, say
from tierlab.cli.claims import chosen
from tierlab.errors import ExitCode
from tierlab.gguf.work import matmuls
from tierlab.report.gguf_coverage_report import coverage_json, coverage_markdown
from tierlab.run.survey import Question, survey
from tierlab.run.survey_coverage import coverage

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tierlab.gguf.model import Model


@dataclass(frozen=True)
class Wanted:
    """Whom to ask: profiles (globs; all without), engine, folder of the results, matrix file."""

    profiles: tuple[str, ...] = ()
    engine: str = ""
    reports: str = "reports"
    matrix: str = "matrix.yaml"


def covered(models: Sequence[Model], wanted: Wanted) -> Iterable[tuple[str, dict[str, Any], ExitCode]]:
    """For each model: its text, its data, 2 if an answer is missing."""
    matrix_file = matrix_path(wanted.matrix)
    profiles = chosen("profile", wanted.profiles, load_matrix(matrix_file).profiles)
    with survey(
        Question(matrix_file, Path(wanted.reports) / "coverage", wanted.engine or None), say
    ) as opened:
        origin = f"{opened.tree.origin}, build {opened.build.binaries[:12]}"
        for model in models:
            work = matmuls(model)
            found = coverage(opened, profiles, work)
            code = ExitCode.UNDETERMINED if found.unanswered else ExitCode.AS_EXPECTED
            yield coverage_markdown(found, work, origin), coverage_json(found, work, origin), code
