# SPDX-License-Identifier: MIT
"""From a cell's own verdict to its record in this run: what the matrix declares, what other threads gave."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tierlab.judge.verdict import Verdict
from tierlab.run.outcomes import thread_judgement

if TYPE_CHECKING:
    from tierlab.cells.matrix import Matrix
    from tierlab.cells.model import Cell
    from tierlab.run.record import CellRecord


class Settler:
    """Settles the records of one lane, in the order of its cells.

    The verdict cache keeps the verdict of a cell alone; declarations and the comparison of thread counts
    are made again in every run.
    """

    def __init__(self, matrix: Matrix) -> None:
        self._matrix = matrix
        self._first: dict[tuple[str, str], tuple[int, str]] = {}

    def settle(self, cell: Cell, record: CellRecord) -> CellRecord:
        """The record as this run states it."""
        declared = self._matrix.expectation_of(cell)
        if declared is not None:
            record = record.expecting(Verdict(declared.verdict), declared.evidence)
            if declared.undefined_bytes and record.as_expected:
                record = replace(record, digest="")  # it identifies nothing
        else:
            record = record.expecting(Verdict.PASS)
        first = self.note(cell, record)
        if first is None or first[1] == record.digest:
            return record
        return thread_judgement(record, first[0], self._matrix.thread_dependence_of(cell))

    def note(self, cell: Cell, record: CellRecord) -> tuple[int, str] | None:
        """Remember a passing cell's bytes; (threads, digest) of the problem's first cell on this path."""
        if not record.digest or record.verdict is not Verdict.PASS:
            return None
        return self._first.setdefault((cell.problem.id, cell.path), (cell.threads, record.digest))
