# SPDX-License-Identifier: MIT
"""What the benchmarks share: the cells, a prepared run, caches of their own, and the two opponents."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from tierlab.cells.claims import rule_of
from tierlab.cells.expand import expand
from tierlab.cells.load import load_matrix
from tierlab.cells.model import Cell, Problem, Shape
from tierlab.cells.selection import Selection
from tierlab.harness.messages import Answer
from tierlab.harness.session import MAX_IN_FLIGHT
from tierlab.run.plan import MATRIX_COPY, Plan, read_plan, write_plan
from tierlab.run.prepare import Wish, prepare
from tierlab.run.requests import Inputs, output_bytes, place
from tierlab.run.store import Store, create_run_dir
from tierlab.toolchain.cache import cache_root

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tierlab.cells.matrix import Matrix
    from tierlab.harness.messages import Request
    from tierlab.harness.session import Session
    from tierlab.run.workbench import Workbench

SHAPES = tuple(
    Shape(m=m, n=n, k=k)
    for n, k, rows in ((64, 512, (1, 4, 5)), (64, 256, (8,)), (128, 1024, (9,)), (8, 256, (16,)))
    for m in rows
)
PROFILES = ("neoverse-n1", "neoverse-n2", "neoverse-v1")
OWN_CACHES = ("problems", "verdicts", "hellos")
"""What a benchmark fills or finds empty; everything else (image, builds) it borrows from the real cache."""

MATRIX = Path(__file__).resolve().parents[1] / "matrix.yaml"


def cell_ids(matrix: Matrix) -> tuple[str, ...]:
    """Six shapes × every type whose blocks fit × every path that takes it × three profiles."""
    found = []
    for profile in PROFILES:
        for kind in matrix.types.values():
            for shape in SHAPES:
                problem = Problem("ggml.mul_mat", "mul_mat", kind.name, "f32", shape, "blocks", "gauss")
                cells = [Cell(problem, path, 1, "stock", profile) for path in matrix.paths]
                found += [cell.id for cell in cells if shape.k % kind.block == 0 and rule_of(matrix, cell)]
    return tuple(found)


def prepared(engine: str | None, reports: Path) -> Plan:
    """The plan for all those cells, every cell to be run; makes image and builds if they are missing."""
    selection = Selection(only=cell_ids(load_matrix(MATRIX)))
    return read_plan(prepare(Wish(MATRIX, selection, engine, fresh=True, reports=reports)))


def fresh_run(plan: Plan, *, fresh: bool = True) -> Plan:
    """The same plan in a new run folder without results."""
    made = replace(plan, run_dir=create_run_dir(plan.run_dir.parent), fresh=fresh)
    for name in (MATRIX_COPY, "run.json"):
        shutil.copyfile(plan.run_dir / name, made.run_dir / name)
    write_plan(made)
    with Store(made.run_dir) as store:
        store.write_cells(cell.id for cell in cells_of(made))
    return made


def cells_of(plan: Plan) -> list[Cell]:
    return list(expand(load_matrix(plan.matrix_file), plan.selection))


@contextmanager
def empty_caches() -> Iterator[Path]:
    """A cache without problems and verdicts, but with the real one's image and builds."""
    real = cache_root()
    if not (real / "builds").is_dir():
        msg = f"no builds in {real}: there is nothing to measure with. Run first: invoke build"
        raise SystemExit(msg)
    before = os.environ.get("TIERLAB_CACHE")
    with tempfile.TemporaryDirectory(prefix="tierlab-benchmark-") as folder:
        for entry in real.iterdir():
            if entry.name not in OWN_CACHES:
                (Path(folder) / entry.name).symlink_to(entry)
        os.environ["TIERLAB_CACHE"] = folder
        try:
            yield Path(folder)
        finally:
            if before is None:
                del os.environ["TIERLAB_CACHE"]
            else:
                os.environ["TIERLAB_CACHE"] = before


@dataclass(frozen=True)
class Ready:
    """A cell with its tensors in memory: what an opponent is given for nothing."""

    cell: Cell
    inputs: Inputs
    size: int


def made_ready(bench: Workbench, cells: Sequence[Cell]) -> list[Ready]:
    """Every cell with its inputs; equal problems share them."""
    inputs: dict[str, Inputs] = {}
    for cell in cells:
        if cell.problem.id not in inputs:
            inputs[cell.problem.id] = bench.problems.inputs(cell.problem)
    return [Ready(cell, inputs[cell.problem.id], output_bytes(bench.matrix, cell.problem)) for cell in cells]


def bare_loop(bench: Workbench, ready: Sequence[Ready]) -> float:
    """Stream the cells, one process a profile, as deep in flight as the lab; nothing is judged or kept.

    Returns the milliseconds inside kernels.
    """
    kernel = 0.0
    for lane, group in groupby(ready, key=lambda item: item.cell.lane):
        with bench.open_session(lane) as session:
            session.start()
            kernel += _streamed(session, list(group))
    return kernel


def _streamed(session: Session, items: list[Ready]) -> float:
    kernel, flying = 0, deque[int]()
    for number, item in enumerate(items):
        if len(flying) == MAX_IN_FLIGHT:
            kernel += _answer(session, item)
            flying.popleft()
        session.submit(_placed(session, number, item))
        flying.append(number)
    while flying:
        kernel += _answer(session, items[flying.popleft()])
    return kernel / 1e6


def _placed(session: Session, number: int, item: Ready) -> Request:
    return place(session.arena.slots[number % MAX_IN_FLIGHT], number, item.cell, item.inputs, item.size)


def _answer(session: Session, item: Ready) -> int:
    outcome = session.receive(60.0)
    if not isinstance(outcome, Answer):
        msg = f"{item.cell.id} did not answer: {outcome}"
        raise SystemExit(msg)
    return outcome.kernel_ns


def process_a_cell(bench: Workbench, ready: Sequence[Ready]) -> None:
    """Start, hello, one cell, end, for each cell; one sandbox for all of them, nothing is judged."""
    for item in ready:
        with bench.open_session(item.cell.lane) as session:
            session.start()
            session.submit(_placed(session, 0, item))
            _answer(session, item)


def evenly(ready: Sequence[Ready], count: int) -> list[Ready]:
    """`count` cells, drawn evenly over the whole list."""
    step = len(ready) / count
    return [ready[int((index + 0.5) * step)] for index in range(count)]
