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
from tierlab.run.survey_android import TYPES, android_survey, as_variants
from tierlab.run.survey_variants import variant_survey

if TYPE_CHECKING:
    from collections.abc import Iterable


def variants(
    profile: Iterable[str] | None,
    variant: Iterable[str] | None,
    android: bool,
    engine: str,
    reports: str,
    file: str,
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
        wanted = [item for item in matrix.variants if item.name in names]
        answers = [VariantAnswer(variant_survey(opened, profiles, wanted), sets, matrix)]
        if android:
            with android_survey(opened, matrix_file, say) as other:
                found = variant_survey(other, profiles, as_variants(sets["android"]), TYPES)
            answers.append(VariantAnswer(found, sets, matrix, "android"))
        text = variants_markdown(*answers)
        value = variants_json(answers[0]) | {"android": variants_json(answers[1]) if android else None}
        written = write_both(opened.plan.run_dir, "variants", text, value)
    print(text)
    print(f"written: {written[0]}, {written[1]}")
    if any(answer.against for answer in answers):
        return ExitCode.UNEXPECTED
    return ExitCode.UNDETERMINED if any(answer.silent for answer in answers) else ExitCode.AS_EXPECTED
