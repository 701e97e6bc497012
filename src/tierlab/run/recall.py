# SPDX-License-Identifier: MIT
"""Answers from the verdict cache without starting anything: a run with nothing changed executes no cell."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from tierlab.cells.cell_id import parse_cell_id
from tierlab.cells.load import load_matrix
from tierlab.judge.verdict import Judgement, Verdict
from tierlab.run.keys import lane_parts, rules_digest
from tierlab.run.plan import plan_lanes
from tierlab.run.record import CellRecord
from tierlab.run.settle import Settler
from tierlab.run.store import CANARIES, RESULTS, Store, iter_records
from tierlab.run.verdict_cache import VerdictCache
from tierlab.toolchain.cache import cache_root

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tierlab.cells.matrix import Matrix
    from tierlab.cells.model import Cell, LaneKey
    from tierlab.run.plan import Plan


def recall(plan: Plan) -> tuple[int, int]:
    """Store the records of all cells that need no execution; returns how many cells and canaries are left.

    That is what the verdict cache knows (unless the plan is `fresh`), and the cells of builds that do not
    compile, which are `unbuildable`.
    """
    matrix = load_matrix(plan.matrix_file)
    rules = rules_digest(matrix)
    cache = VerdictCache(cache_root() / "verdicts")
    left = []
    for name, wanted in ((RESULTS, plan_lanes(matrix, plan)), (CANARIES, canary_lanes(matrix, plan))):
        left.append(0)
        with Store(plan.run_dir, name) as store:
            for lane, cells in wanted:
                found = list(_lane(plan, matrix, cache, rules, lane, cells))
                store.append_many(found)
                left[-1] += len(cells) - len(found)
    return left[0], left[1]


def _lane(
    plan: Plan, matrix: Matrix, cache: VerdictCache, rules: str, lane: LaneKey, cells: tuple[Cell, ...]
) -> Iterator[CellRecord]:
    settler = Settler(matrix)
    if lane.build in plan.unbuildable:
        judgement = Judgement(Verdict.UNBUILDABLE, detail=plan.unbuildable[lane.build])
        yield from (settler.settle(cell, CellRecord.of(cell, judgement)) for cell in cells)
        return
    if plan.fresh:
        return
    files = dict(plan.builds[lane.build].file_digests)
    known = cache.load(lane_parts(plan, matrix.profiles[lane.profile], lane, rules, files))
    for cell in cells:
        record = known.get(cell.id)
        if record is not None:
            yield settler.settle(cell, record)


def canary_lanes(matrix: Matrix, plan: Plan) -> Iterator[tuple[LaneKey, tuple[Cell, ...]]]:
    """The plan's canaries, lane by lane: of each exclusion one cell is tried all the same."""
    cells = sorted((parse_cell_id(matrix, text) for text in plan.canaries), key=lambda cell: cell.lane)
    return ((key, tuple(group)) for key, group in groupby(cells, key=lambda cell: cell.lane))


def canary_notes(plan: Plan) -> tuple[str, ...]:
    """What the canaries say against their exclusions: a cell that passes may not need to be excluded."""
    matrix = load_matrix(plan.matrix_file)
    passing = {
        record.cell for record in iter_records(plan.run_dir, name=CANARIES) if record.verdict is Verdict.PASS
    }
    notes = []
    for text in sorted(passing):
        exclusion = matrix.exclusion_of(parse_cell_id(matrix, text))
        reason = (
            "" if exclusion is None else f' It is excluded because: "{" ".join(exclusion.reason.split())}"'
        )
        notes.append(f"An excluded cell passes: {text}.{reason}")
    return tuple(notes)
