# SPDX-License-Identifier: MIT
"""Questions to the built library beside the presets: single cells, and what a CPU's session says first.

A survey leaves a folder like a run's (`plan.json`, `results.jsonl`), shares its verdict cache and its judge,
and runs in this process: it asks for few cells.
"""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING

from tierlab.cells.load import load_matrix
from tierlab.cells.model import Cell, LaneKey, Problem
from tierlab.cells.selection import Selection
from tierlab.cells.shapes import parse_shape
from tierlab.errors import BuildError
from tierlab.run.appendlog import explained
from tierlab.run.lane import LaneRunner
from tierlab.run.plan import MATRIX_COPY, Plan, write_plan
from tierlab.run.prepare import DEFAULT_SEED, make_builds
from tierlab.run.store import create_run_dir
from tierlab.run.workbench import Workbench
from tierlab.toolchain.choose import choose_engine

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tierlab.cells.matrix import Matrix, Variant
    from tierlab.harness.messages import Hello
    from tierlab.run.record import CellRecord
    from tierlab.toolchain.build import Build
    from tierlab.toolchain.engine import Say
    from tierlab.toolchain.sources import Tree

BUILD = "stock"
ANY_SUITE = "ggml.claims"
AGAIN = "again"
"""Begins the names of folders, below the survey's own, of what was executed once more."""


@dataclass(frozen=True)
class Question:
    """What every survey is given: the matrix file, the engine (None: chosen), the folder of its results.

    `builds` are under test, `llama_cpp` is the tree of build `user`; `environment` is set for the processes.
    """

    matrix: Path
    reports: Path
    engine: str | None = None
    builds: tuple[str, ...] = (BUILD,)
    llama_cpp: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


class Survey:
    """An open workbench and one build; `answers` runs cells, `hello` starts a session and asks nothing."""

    def __init__(self, bench: Workbench, tree: Tree, name: str = BUILD) -> None:
        self._bench = bench
        self.tree = tree
        self.name = name
        self._passes = 0

    @property
    def bench(self) -> Workbench:
        return self._bench

    @property
    def matrix(self) -> Matrix:
        return self._bench.matrix

    @property
    def plan(self) -> Plan:
        return self._bench.plan

    @property
    def build(self) -> Build:
        return self.plan.builds[self.name]

    def answers(self, cells: Iterable[Cell]) -> dict[str, CellRecord]:
        """Cell id → record of every cell, from the verdict cache or by running it."""
        found: dict[str, CellRecord] = {}

        def emit(record: CellRecord) -> None:
            found[record.cell] = record

        for lane, group in groupby(sorted(dict.fromkeys(cells), key=_order), key=lambda cell: cell.lane):
            LaneRunner(self._bench, lane, tuple(group), emit).run()
        return found

    def again(self, cells: Sequence[Cell]) -> dict[str, CellRecord]:
        """Cell id → record of every cell, executed now whatever the cache knows; in a folder of its own."""
        if not cells:
            return {}
        self._passes += 1
        plan = replace(self.plan, run_dir=self.plan.run_dir / f"{AGAIN}-{self._passes}", fresh=True)
        with opened(plan, self.plan.matrix_file) as bench:
            bench.witness = self._bench.witness
            return Survey(bench, self.tree, self.name).answers(cells)

    def hello(self, profile: str) -> Hello:
        """What the profile's session says first. ProbeError or HarnessError if it is not as it should be."""
        return self.greeting(profile)[0]

    def greeting(self, profile: str) -> tuple[Hello, str]:
        """The same, and what the program wrote to standard error until its end: ggml's own log."""
        lane = LaneKey(self.name, profile, ANY_SUITE)
        with self._bench.open_session(lane) as session:
            hello = session.start(self.matrix.timeouts.start_seconds)
            self._bench.check_promise(lane, hello)
            return hello, session.farewell()


@contextmanager
def survey(question: Question, say: Say) -> Iterator[Survey]:
    """Prepare engine and builds, open a workbench on the first build. Raises any TierlabError."""
    with surveys(question, say) as opened_ones:
        yield opened_ones[0]


@contextmanager
def surveys(question: Question, say: Say) -> Iterator[tuple[Survey, ...]]:
    """The same for each build of the question, all on one workbench."""
    matrix = load_matrix(question.matrix)
    engine = choose_engine(question.engine, say)
    engine.prepare()
    made = make_builds(engine, question.builds, question.llama_cpp, say)
    for error in made.unbuildable.values():
        raise BuildError(error)
    run_dir = create_run_dir(question.reports.absolute())
    plan = Plan(
        run_dir=run_dir,
        selection=Selection(preset=next(iter(matrix.presets))),
        seed=DEFAULT_SEED,
        engine=engine.name,
        engine_identity=engine.identity(),
        builds=made.builds,
        reference=made.reference,
        environment=dict(question.environment),
    )
    with opened(plan, question.matrix) as bench:
        yield tuple(Survey(bench, made.trees[name], name) for name in question.builds)


@contextmanager
def opened(plan: Plan, matrix_file: Path) -> Iterator[Workbench]:
    """A workbench for the plan, in the plan's folder."""
    with explained(plan.run_dir, "write"):
        plan.run_dir.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(matrix_file, plan.run_dir / MATRIX_COPY)
    write_plan(plan)
    with Workbench(plan) as bench:
        yield bench


def forced(bench: Workbench, variants: Mapping[str, Variant]) -> None:
    """Tell the bench's rules that these profiles (profile → variant) load another variant than ggml would."""
    known = dict.fromkeys((*bench.matrix.variants, *variants.values()))
    loaded = {**bench.matrix.variant_of, **variants}
    bench.judge_by(replace(bench.matrix, variants=tuple(known), variant_of=loaded))


def product(profile: str, kind: str, shape: str, path: str, threads: int = 1, build: str = BUILD) -> Cell:
    """A cell of `ggml.mul_mat` (or `ggml.mul_mat_id` for a shape with experts) on Gaussian inputs."""
    size = parse_shape(shape).shape
    op = "mul_mat_id" if size.experts else "mul_mat"
    problem = Problem(f"ggml.{op}", op, kind, "f32", size, "gauss", "gauss")
    return Cell(problem, path, threads, build, profile)


def claim(profile: str, kind: str, shape: str, path: str, build: str = BUILD) -> Cell:
    """A cell of `ggml.claims`: does the path take the operation? Nothing is computed."""
    problem = Problem(ANY_SUITE, "claim", kind, "f32", parse_shape(shape).shape, "blocks", "gauss")
    return Cell(problem, path, 1, build, profile)


def _order(cell: Cell) -> tuple[LaneKey, str, str, int]:
    return cell.lane, cell.problem.id, cell.path, cell.threads
