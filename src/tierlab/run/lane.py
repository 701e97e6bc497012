# SPDX-License-Identifier: MIT
"""One lane: its cells streamed through harness processes, judged, recorded.

A process that dies costs the cell it was working on; a new one takes the rest. Whatever happens, every
cell of the lane gets a record.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from tierlab.errors import HarnessError, StoreError, TierlabError
from tierlab.run.judging import CellJudge
from tierlab.run.outcomes import untested
from tierlab.run.record import CellRecord
from tierlab.run.settle import Settler
from tierlab.run.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tierlab.cells.model import Cell, LaneKey
    from tierlab.harness.messages import Hello
    from tierlab.harness.session import Session
    from tierlab.judge.verdict import Judgement
    from tierlab.run.store import Store
    from tierlab.run.workbench import Workbench

    Emit = Callable[[CellRecord], None]

START_ATTEMPTS = 2
"""A harness that does not start twice in a row will not start: what is left of the lane is untested."""


class LaneRunner:
    """Runs the cells of one lane; `emit` gets each record once, after it is stored."""

    def __init__(
        self, bench: Workbench, lane: LaneKey, cells: Sequence[Cell], emit: Emit, store: Store | None = None
    ) -> None:
        self._bench = bench
        self._lane = lane
        self._cells = cells
        self._emit = emit
        self._store = bench.store if store is None else store
        self._settler = Settler(bench.matrix)

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
        self._settler.note(cell, record)
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
            exact = self._bench.exact_key(self._lane)
            left = self._from_cache(list(queue), self._bench.variant_key(self._lane, hello), exact)
            queue.clear()
            queue.extend(left)
            facts = self._bench.facts(self._lane, hello)
            judge = CellJudge(self._bench.matrix, self._bench.problems, hello, facts)
            Stream(self._bench, session, hello, queue, self._record, judge).run()

    def _from_cache(
        self, cells: Sequence[Cell], key: dict[str, str], also: dict[str, str] | None = None
    ) -> list[Cell]:
        """Emit what the cache knows under `key` (and keep it under `also`); return the other cells."""
        known = {} if self._bench.plan.fresh else self._bench.cached(key)
        missing = []
        for cell in cells:
            record = known.get(cell.id)
            if record is None:
                missing.append(cell)
            else:
                if also is not None:
                    self._bench.remember(also, replace(record, cached=False))
                self._finish(cell, record)
        return missing

    def _record(
        self, cell: Cell, hello: Hello, judgement: Judgement, keep: bool = True, **more: object
    ) -> None:
        record = CellRecord.of(cell, judgement, **more)
        keys = (self._bench.exact_key(self._lane), self._bench.variant_key(self._lane, hello)) if keep else ()
        self._finish(cell, record, keys)

    def _finish(self, cell: Cell, record: CellRecord, keys: Iterable[dict[str, str]] = ()) -> None:
        """Cache the cell's own verdict, settle it for this run, store, report."""
        for key in keys:
            self._bench.remember(key, record)
        record = self._settler.settle(cell, record)
        self._store.append(record)
        self._emit(record)

    def _give_up(self, queue: deque[Cell], why: str) -> None:
        for cell in queue:
            self._finish(cell, CellRecord.of(cell, untested(why)))
