# SPDX-License-Identifier: MIT
"""One lane: its cells streamed through harness processes, judged, recorded.

A process that dies costs the cell it was working on; a new one takes the rest. Whatever happens, every
cell of the lane gets a record.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from tierlab.errors import HarnessError, StoreError, TierlabError
from tierlab.judge.verdict import Verdict
from tierlab.run.outcomes import thread_judgement, untested
from tierlab.run.record import CellRecord
from tierlab.run.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tierlab.cells.model import Cell, LaneKey
    from tierlab.harness.messages import Hello
    from tierlab.harness.session import Session
    from tierlab.judge.verdict import Judgement
    from tierlab.run.workbench import Workbench

    Emit = Callable[[CellRecord], None]

START_ATTEMPTS = 2
"""A harness that does not start twice in a row will not start: what is left of the lane is untested."""


class LaneRunner:
    """Runs the cells of one lane; `emit` gets each record once, after it is stored."""

    def __init__(self, bench: Workbench, lane: LaneKey, cells: Sequence[Cell], emit: Emit) -> None:
        self._bench = bench
        self._lane = lane
        self._cells = cells
        self._emit = emit
        self._digests: dict[tuple[str, str], tuple[int, str]] = {}

    def run(self) -> None:
        """Answer every cell that this run has not answered: from the cache, by running it, or as untested."""
        unanswered = [cell for cell in self._cells if not self._answered_before(cell)]
        waiting = self._from_cache(unanswered, self._bench.exact_key(self._lane))
        if not waiting:
            return
        queue = deque(waiting)
        try:
            with self._bench.open_session(self._lane) as session:
                self._run_all(session, queue)
        except StoreError:
            raise
        except TierlabError as error:
            self._give_up(queue, str(error))

    def _answered_before(self, cell: Cell) -> bool:
        """Whether an earlier pass of this run has answered the cell; its bytes still count for threads."""
        record = self._bench.answered.get(cell.id)
        if record is None:
            return False
        if record.digest and record.verdict is Verdict.PASS:
            self._digests.setdefault((cell.problem.id, cell.path), (cell.threads, record.digest))
        return True

    def _run_all(self, session: Session, queue: deque[Cell]) -> None:
        failures = 0
        while queue:
            try:
                hello = session.start(self._bench.matrix.timeouts.start_seconds)
            except HarnessError:
                failures += 1
                if failures >= START_ATTEMPTS:
                    raise
                continue
            failures = 0
            self._bench.check_promise(self._lane, hello)
            left = self._from_cache(list(queue), self._bench.variant_key(self._lane, hello))
            queue.clear()
            queue.extend(left)
            Stream(self._bench, session, hello, queue, self._record).run()

    def _from_cache(self, cells: Sequence[Cell], key: dict[str, str]) -> list[Cell]:
        """Emit what the verdict cache knows under `key`; the cells that it does not know."""
        known = {} if self._bench.plan.fresh else self._bench.cached(key)
        missing = []
        for cell in cells:
            record = known.get(cell.id)
            if record is None:
                missing.append(cell)
            else:
                self._finish(cell, record)
        return missing

    def _record(self, cell: Cell, hello: Hello, judgement: Judgement, **more: object) -> None:
        record = CellRecord.of(cell, judgement, **more)
        keys = (self._bench.exact_key(self._lane), self._bench.variant_key(self._lane, hello))
        self._finish(cell, record, keys)

    def _finish(self, cell: Cell, record: CellRecord, keys: Iterable[dict[str, str]] = ()) -> None:
        """Compare with the cell's other thread counts, store, report.

        The cache keeps the verdict of the cell alone; the comparison is made again in every run.
        """
        for key in keys:
            self._bench.remember(key, record)
        declared = self._bench.matrix.expectation_of(cell)
        if declared is not None:
            record = record.expecting(Verdict(declared.verdict), declared.evidence)
        else:
            record = record.expecting(Verdict.PASS)
        record = self._compare_threads(cell, record)
        self._bench.store.append(record)
        self._emit(record)

    def _compare_threads(self, cell: Cell, record: CellRecord) -> CellRecord:
        if not record.digest or record.verdict is not Verdict.PASS:
            return record
        key = (cell.problem.id, cell.path)
        first = self._digests.setdefault(key, (cell.threads, record.digest))
        if first[1] == record.digest:
            return record
        reason = self._bench.matrix.thread_dependence_of(cell)
        return thread_judgement(record, first[0], reason)

    def _give_up(self, queue: deque[Cell], why: str) -> None:
        for cell in queue:
            self._finish(cell, CellRecord.of(cell, untested(why)))
