# SPDX-License-Identifier: MIT
"""From a wish to a prepared run: image, sources, builds, run folder, plan."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tierlab.cells.builds import prefix_length
from tierlab.cells.expand import excluded, expand
from tierlab.cells.load import load_matrix
from tierlab.errors import BuildError, ConfigError, UsageError
from tierlab.run.appendlog import explained
from tierlab.run.native import probe, profile_of
from tierlab.run.plan import MATRIX_COPY, Plan, write_plan
from tierlab.run.provenance import run_info
from tierlab.run.steps import check_touches, each_patch, steps_of
from tierlab.run.store import Store, create_run_dir, mark_latest, write_run_info
from tierlab.toolchain.builds import build_tree
from tierlab.toolchain.choose import choose_engine
from tierlab.toolchain.flags import Mode, Options
from tierlab.toolchain.sources import load_patches, patched_tree, stock_tree, user_tree

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tierlab.cells.matrix import Matrix
    from tierlab.cells.model import Cell
    from tierlab.cells.selection import Selection
    from tierlab.run.steps import Step
    from tierlab.toolchain.build import Build
    from tierlab.toolchain.engine import Engine, Say
    from tierlab.toolchain.sources import Tree

DEFAULT_SEED = 1
SEED_LIMIT = 1 << 63


@dataclass(frozen=True)
class Wish:
    """What a person asked for. `llama_cpp` is the user's tree (build `user`).

    `compare` holds the builds of the run against each other; `each_patch` does so with builds that add the
    series patch by patch.
    """

    matrix: Path
    selection: Selection
    engine: str | None = None
    seed: int | None = None
    llama_cpp: Path | None = None
    fresh: bool = False
    reports: Path = Path("reports")
    compare: bool = False
    each_patch: bool = False


def prepare(wish: Wish, say: Say = print, *, note_cells: bool = True) -> Path:
    """Make everything the run needs; returns the plan's path. Raises any TierlabError.

    With `note_cells` the ids of all selected cells are noted in the run's folder, so that one without an
    answer is `untested`; without it the caller narrows the selection further.
    """
    seed = DEFAULT_SEED if wish.seed is None else wish.seed
    if not 0 <= seed < SEED_LIMIT:
        msg = f"seed {seed} is out of range; nothing was run. Use an integer from 0 to {SEED_LIMIT - 1}"
        raise UsageError(msg)
    matrix = load_matrix(wish.matrix)
    selection = _with_builds(wish, matrix)
    if wish.engine == "native" and not selection.profiles:
        selection = replace(selection, profiles=(_this_machine(wish, matrix, selection, say),))
    cells = list(expand(matrix, selection))
    steps = _steps(wish, matrix, cells)
    run_dir = create_run_dir(wish.reports.absolute())
    try:
        with explained(run_dir, "write"):
            # Now, not after the builds: the file may be edited meanwhile.
            shutil.copyfile(wish.matrix, run_dir / MATRIX_COPY)
        if load_matrix(run_dir / MATRIX_COPY).digest != matrix.digest:
            msg = f"{wish.matrix} was changed while it was read; nothing was run. Run the same command again"
            raise ConfigError(msg)
        engine = choose_engine(wish.engine, say)
        engine.prepare()
        names = dict.fromkeys(cell.build for cell in cells)
        made = make_builds(engine, names, wish.llama_cpp, say)
        left_out = [(item, cell) for cell, item in excluded(matrix, selection)]
        plan = Plan(
            run_dir=run_dir,
            selection=selection,
            seed=seed,
            engine=engine.name,
            engine_identity=engine.identity(),
            builds=made.builds,
            reference=made.reference,
            fresh=wish.fresh,
            unbuildable=made.unbuildable,
            # One cell of each exclusion: the first.
            canaries=tuple({item.selector.line: cell.id for item, cell in reversed(left_out)}.values()),
        )
        info = run_info(
            plan, made.trees, matrix, engine, cells, left_out, command=shlex.join(["invoke", *sys.argv[1:]])
        )  # fmt: skip
        info = replace(info, comparisons=steps)
        if note_cells:
            with Store(run_dir) as store:
                store.write_cells(cell.id for cell in cells)
        else:
            info = replace(info, asked=0)
        write_run_info(run_dir, info)
        path = write_plan(plan)
    except BaseException:
        # Nothing was run: an empty folder would only look like a result.
        shutil.rmtree(run_dir, ignore_errors=True)
        raise
    mark_latest(run_dir)
    return path


def _this_machine(wish: Wish, matrix: Matrix, selection: Selection, say: Say) -> str:
    """The profile that this machine is; needs one build, which the run needs anyway."""
    engine = choose_engine(wish.engine, say)
    engine.prepare()
    preset = matrix.presets[selection.preset]
    names = selection.builds or preset.builds
    made = make_builds(engine, names[:1], wish.llama_cpp, say)
    if not made.builds:
        raise BuildError(made.unbuildable[names[0]])
    name = profile_of(matrix, preset.profiles, probe(engine, made.builds[names[0]]))
    say(f"profile: {name} (this machine)")
    return name


def _with_builds(wish: Wish, matrix: Matrix) -> Selection:
    """`--llama-cpp` alone means build `user`; `user` without it is wrong use."""
    builds = wish.selection.builds
    if wish.each_patch:
        if builds or wish.llama_cpp is not None:
            msg = (
                "--each-patch names the builds itself, from stock to patched; nothing was run. "
                "Leave --build and --llama-cpp out"
            )
            raise UsageError(msg)
        builds = each_patch(load_patches())
    if wish.llama_cpp is not None and not builds:
        builds = ("user",)
    preset = matrix.presets.get(wish.selection.preset)
    wanted = builds or (preset.builds if preset else ())
    if "user" in wanted and wish.llama_cpp is None:
        msg = "build 'user' needs the tree: nothing was run. Add --llama-cpp PATH"
        raise UsageError(msg)
    if wish.llama_cpp is not None and "user" not in wanted:
        msg = (
            f"--llama-cpp was given but build 'user' is not among {', '.join(wanted)}; nothing was run. "
            "Add it to --build"
        )
        raise UsageError(msg)
    return replace(wish.selection, builds=builds)


def _steps(wish: Wish, matrix: Matrix, cells: Iterable[Cell]) -> tuple[Step, ...]:
    """What the run compares; nothing unless it was asked for."""
    if not (wish.compare or wish.each_patch):
        return ()
    series = load_patches()
    check_touches(series, matrix)
    return steps_of((cell.build for cell in cells), series)


@dataclass(frozen=True)
class Made:
    """What `make_builds` made, by build name: finished builds, compilers' first errors, the trees.

    `reference` is the native build of the pinned tree.
    """

    builds: dict[str, Build]
    reference: Build
    unbuildable: dict[str, str]
    trees: dict[str, Tree]


def make_builds(engine: Engine, names: Iterable[str], llama_cpp: Path | None, say: Say) -> Made:
    """Make the builds called `names` and the reference. BuildError only if the reference does not compile."""
    stock = stock_tree(say=say)
    reference = build_tree(engine, stock, Options(mode=Mode.REFERENCE), say=say)
    found = {"reference": stock}
    # As it ships: asserts compiled out. What they guard shows as wrong numbers or guard verdicts.
    options = Options(assertions=False)
    builds: dict[str, Build] = {}
    unbuildable: dict[str, str] = {}
    for name in names:
        try:
            found[name] = tree_of(name, llama_cpp, say)
            builds[name] = build_tree(engine, found[name], options, say=say)
        except BuildError as error:
            say(f"tierlab: {error}")
            unbuildable[name] = " ".join(str(error).split())
    return Made(builds, reference, unbuildable, found)


def tree_of(name: str, llama_cpp: Path | None, say: Say) -> Tree:
    """The tree of a build: stock, patched, patched-N, user. UsageError where the series has fewer patches."""
    if name == "user":
        return user_tree(Path(llama_cpp or ""))
    if name == "stock":
        return stock_tree(say=say)
    patches = load_patches()
    count = prefix_length(name)
    if count is None:
        return patched_tree(patches=patches, say=say)
    if count > len(patches):
        msg = (
            f"build {name!r} asks for {count} patches and the series has {len(patches)}; nothing was run. "
            "Name one that exists"
        )
        raise UsageError(msg)
    return replace(patched_tree(patches=patches[:count], say=say), name=name)


def default_jobs() -> int:
    """One lane for each processor this process may use."""
    return len(os.sched_getaffinity(0))
