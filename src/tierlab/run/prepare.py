# SPDX-License-Identifier: MIT
"""From a wish to a prepared run: image, sources, builds, run folder, plan."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tierlab.cells.builds import USER, BuildWish, parse_build, prefix_length, sdist_version, tree_name
from tierlab.cells.expand import excluded, expand
from tierlab.cells.load import load_matrix
from tierlab.errors import BuildError, ConfigError, SelectionError, UsageError
from tierlab.run.appendlog import explained
from tierlab.run.foreign import absent, counted
from tierlab.run.native import probe, profile_of
from tierlab.run.plan import MATRIX_COPY, Plan, write_plan
from tierlab.run.provenance import run_info
from tierlab.run.steps import check_touches, each_patch, steps_of
from tierlab.run.store import Store, create_run_dir, mark_latest, write_run_info
from tierlab.toolchain.builds import build_tree
from tierlab.toolchain.choose import choose_engine
from tierlab.toolchain.flags import Mode, Options, options_of
from tierlab.toolchain.sdists import sdist_tree
from tierlab.toolchain.sources import load_patches, patched_tree, stock_tree, user_tree

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tierlab.cells.matrix import Matrix
    from tierlab.cells.model import Cell
    from tierlab.cells.selection import Selection
    from tierlab.run.record import RunInfo
    from tierlab.run.steps import Step
    from tierlab.toolchain.build import Build
    from tierlab.toolchain.engine import Engine, Say
    from tierlab.toolchain.sources import Tree

DEFAULT_SEED = 1
SEED_LIMIT = 1 << 63


@dataclass(frozen=True)
class Wish:
    """What a person asked for. `builds` are the words on what is under test, `llama_cpp` the user's tree.

    `compare` holds the builds of the run against each other; `each_patch` does so with builds that add the
    series patch by patch.
    """

    matrix: Path
    selection: Selection
    builds: BuildWish = field(default_factory=BuildWish)
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
    selection = with_builds(matrix, wish.selection, _asked(wish))
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
        missing = absent(
            engine, matrix, made.builds, [cell for cell in cells if cell.id not in selection.only]
        )
        cells = [cell for cell in cells if cell.id not in missing]
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
            absent=tuple(missing),
            # One cell of each exclusion of the file: the first.
            canaries=tuple(
                {
                    item.selector.line: cell.id for item, cell in reversed(left_out) if item.selector.line
                }.values()
            ),
        )
        info = run_info(
            plan, made.trees, matrix, engine, cells, left_out, command=shlex.join(["invoke", *sys.argv[1:]])
        )  # fmt: skip
        info = replace(info, comparisons=steps)
        info = replace(info, exclusions=(*info.exclusions, *counted(missing)))
        if not cells:
            raise SelectionError(_none_left(info))
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


def _none_left(info: RunInfo) -> str:
    reasons = "; ".join(f"{item.rule}: {item.reason}" for item in info.exclusions[:3])
    return f"none of the selected cells exists in what was built ({reasons}); nothing was run. Select others"


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


def with_builds(matrix: Matrix, selection: Selection, builds: BuildWish) -> Selection:
    """The selection with its builds by name; without a word on builds it keeps those of its preset."""
    preset = matrix.presets.get(selection.preset)
    if preset is None or builds == BuildWish():
        return selection
    return replace(selection, builds=builds.builds(matrix.builds, selection.builds or preset.builds))


def _asked(wish: Wish) -> BuildWish:
    """The words on builds; `each_patch` stands for names."""
    if not wish.each_patch:
        return wish.builds
    if wish.builds.names or wish.builds.user or wish.builds.sdists:
        msg = (
            "--each-patch names the builds itself, from stock to patched; nothing was run. "
            "Leave --build, --sdist and --llama-cpp out"
        )
        raise UsageError(msg)
    return replace(wish.builds, names=each_patch(load_patches()))


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
    builds: dict[str, Build] = {}
    unbuildable: dict[str, str] = {}
    for name in names:
        try:
            found[name] = tree_of(name, llama_cpp, say)
            builds[name] = _built(engine, found[name], name, say)
        except BuildError as error:
            say(f"tierlab: {error}")
            unbuildable[name] = " ".join(str(error).split())
    return Made(builds, reference, unbuildable, found)


def _built(engine: Engine, tree: Tree, name: str, say: Say) -> Build:
    """The build; a published tree that does not compile with the packaged KleidiAI is built without."""
    options = options_of(parse_build(name))
    try:
        return build_tree(engine, tree, options, say=say)
    except BuildError as error:
        if sdist_version(name) is None or not options.kleidiai:
            raise
        what = str(error).partition("): ")[2].partition(". Its cells")[0] or str(error)
        note = f"{name}: KleidiAI is off; with the packaged one this tree does not build ({what})"
    made = build_tree(engine, tree, replace(options, kleidiai=False), say=say)
    say(f"build {note}")
    return replace(made, notes=(*made.notes, note))


def tree_of(name: str, llama_cpp: Path | None, say: Say) -> Tree:
    """The tree of a build, under the build's name. UsageError where it names more patches than the series
    has, and for `user` without a tree."""
    tree = tree_name(name)
    version = sdist_version(name)
    if tree == USER:
        if llama_cpp is None:
            msg = f"build {name!r} needs the tree: nothing was run. Add --llama-cpp PATH"
            raise UsageError(msg)
        return replace(user_tree(llama_cpp), name=name)
    if version is not None:
        return replace(sdist_tree(version, say=say), name=name)
    if tree == "stock":
        return replace(stock_tree(say=say), name=name)
    patches = load_patches()
    count = prefix_length(name)
    if count is None:
        return replace(patched_tree(patches=patches, say=say), name=name)
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
