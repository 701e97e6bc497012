# SPDX-License-Identifier: MIT
"""`invoke variants`: ggml's loadable CPU backends on every profile, by themselves and forced."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tierlab.cells.load import load_matrix
from tierlab.cli.chip import matrix_path, say
from tierlab.cli.claims import chosen
from tierlab.dispatch.variants import declared_sets
from tierlab.errors import ExitCode, UsageError
from tierlab.report.tables import write_both
from tierlab.report.variants_report import VariantAnswer, variants_json, variants_markdown
from tierlab.run.survey import Question, survey
from tierlab.run.survey_variants import variant_survey

if TYPE_CHECKING:
    from collections.abc import Iterable


def variants(
    profile: Iterable[str] | None, variant: Iterable[str] | None, engine: str, reports: str, file: str
) -> ExitCode:
    """Print and write what was found; exit 1 if anything is amiss, 2 where answers are missing."""
    if engine == "native":
        msg = (
            "variants are forced on emulated CPUs, and engine native has none; nothing was run. "
            "Use --engine docker or rootfs"
        )
        raise UsageError(msg)
    matrix_file = matrix_path(file)
    matrix = load_matrix(matrix_file)
    profiles = chosen("profile", profile, matrix.profiles)
    names = chosen("variant", variant, [item.name for item in matrix.variants])
    with survey(Question(matrix_file, Path(reports) / "variants", engine or None), say) as opened:
        sets = declared_sets(opened.tree.ggml)
        answer = VariantAnswer(variant_survey(opened, profiles, names), sets, matrix)
        text = variants_markdown(answer)
        written = write_both(opened.plan.run_dir, "variants", text, variants_json(answer))
    print(text)
    print(f"written: {written[0]}, {written[1]}")
    if answer.against:
        return ExitCode.UNEXPECTED
    return ExitCode.UNDETERMINED if answer.silent else ExitCode.AS_EXPECTED
