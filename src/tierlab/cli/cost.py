# SPDX-License-Identifier: MIT
"""`invoke cost`: cycles a multiply-accumulate of the 4-bit kernels, by llvm-mca's models of cores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierlab.cells.builds import PATCHED
from tierlab.cells.load import load_matrix
from tierlab.cli.chip import matrix_path, say
from tierlab.cli.claims import chosen
from tierlab.cli.options import given_path, tree_path
from tierlab.dispatch.cost_plan import load_plan
from tierlab.errors import BuildError, ExitCode, UsageError
from tierlab.report.cost_report import STATIC, cost_json, cost_markdown, unmet
from tierlab.report.tables import write_both
from tierlab.run.prepare import make_builds
from tierlab.run.store import create_run_dir
from tierlab.run.survey_cost import cost_survey
from tierlab.toolchain.choose import choose_engine

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tierlab.cells.builds import BuildWish

LLVM = "llvm"
"""The list of packages that the toolchain image for this holds besides."""


def cost(
    wish: BuildWish,
    llama_cpp: str,
    model: Iterable[str] | None,
    type: Iterable[str] | None,
    engine: str,
    reports: str,
    file: str,
) -> ExitCode:
    """Print and write the costs.

    Exit 2 if a kernel or its loop was not found, 1 if an expected ratio is not reached.
    """
    matrix = load_matrix(matrix_path(file))
    plan = load_plan()
    models = chosen("model", model, plan.models)
    wanted = chosen("type", type, plan.types)
    types = tuple(kind for kind in plan.types if kind in wanted or kind == plan.base)  # ratios need the base
    name, *others = wish.builds(matrix.builds, (PATCHED,))
    if others:
        msg = f"costs are of one build, not of {name}, {', '.join(others)}; nothing was modelled. Name one"
        raise UsageError(msg)
    builder = choose_engine(engine or None, say)
    made = make_builds(builder, [name], tree_path(llama_cpp) if llama_cpp else None, say)
    if name in made.unbuildable:
        raise BuildError(made.unbuildable[name])
    tools = choose_engine(builder.name, say, packages=LLVM)
    tools.prepare()
    folder = create_run_dir(given_path(reports).absolute() / "cost")
    found = cost_survey(tools, made.builds[name], matrix, plan, models, types, folder, say)
    build = f"build {name} {made.builds[name].binaries[:12]}"
    origin = f"{made.trees[name].origin}, {build}, LLVM {tools.manifest()[f'{LLVM}-19']}"
    text = cost_markdown(found, plan, origin)
    written = write_both(folder, "cost", text, cost_json(found, plan, origin))
    print(text)
    print(f"written: {written[0]}, {written[1]}")
    if found.failed or not found.found:
        return ExitCode.UNDETERMINED
    missed = unmet(found, plan)
    for entry in missed:
        say(f"{STATIC}: {entry.kernel} is not {entry.ratio:.2f} × as fast as {entry.of} on {entry.model}")
    return ExitCode.UNEXPECTED if missed else ExitCode.AS_EXPECTED
