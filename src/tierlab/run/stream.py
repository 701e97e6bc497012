# SPDX-License-Identifier: MIT
"""The conversation with one harness process.

While the emulator computes one cell, the lab judges the one before: two requests are in flight.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tierlab.errors import HarnessError
from tierlab.harness.messages import Answer, Crash
from tierlab.harness.session import MAX_IN_FLIGHT
from tierlab.run.outcomes import (
    crash_judgement,
    digest_of_output,
    killed_from_outside,
    timeout_judgement,
    untested,
)
from tierlab.run.requests import output_bytes, place

if TYPE_CHECKING:
    from collections.abc import Callable

    from tierlab.cells.model import Cell
    from tierlab.harness.messages import Hello, Request, Timeout
    from tierlab.harness.session import Session
    from tierlab.run.judging import CellJudge
    from tierlab.run.workbench import Workbench


class Flight(NamedTuple):
    """A cell whose answer is awaited."""

    cell: Cell
    request: Request


class Stream:
    """Asks one process for the cells in `queue`, until the queue is empty or the process is gone.

    `record(cell, hello, judgement, **fields)` is called once for each cell that leaves the queue.
    """

    def __init__(
        self,
        bench: Workbench,
        session: Session,
        hello: Hello,
        queue: deque[Cell],
        record: Callable[..., None],
        judge: CellJudge,
    ) -> None:
        self._bench = bench
        self._session = session
        self._hello = hello
        self._queue = queue
        self._record = record
        self._judge = judge
        self._flying: deque[Flight] = deque()
        self._number = 0
        self._mark = time.monotonic()

    def run(self) -> None:
        """Stream; what was not answered is back in the queue when it returns or raises."""
        self._mark = time.monotonic()
        try:
            self._fill()
            while self._flying and self._receive():
                pass
        finally:
            self._queue.extendleft(flight.cell for flight in reversed(self._flying))
            self._flying.clear()

    def _fill(self) -> None:
        while self._queue and len(self._flying) < MAX_IN_FLIGHT:
            cell = self._queue[0]
            try:
                inputs = self._bench.problems.inputs(cell.problem)
                size = output_bytes(self._bench.matrix, cell.problem)
                slot = self._session.arena.slots[self._number % MAX_IN_FLIGHT]
                request = place(slot, self._number, cell, inputs, size)
            except HarnessError as error:
                self._queue.popleft()
                self._record(cell, self._hello, untested(str(error)))
                continue
            self._session.submit(request)
            self._number += 1
            self._flying.append(Flight(self._queue.popleft(), request))

    def _receive(self) -> bool:
        """Take one outcome; False if the process is gone."""
        outcome = self._session.receive(self._bench.matrix.timeouts.cell_seconds)
        flight = self._flying.popleft()
        wall = self._elapsed()
        if isinstance(outcome, Answer):
            self._answered(flight, outcome, wall)
            return True
        self._lost(flight.cell, outcome, wall)
        return False

    def _answered(self, flight: Flight, answer: Answer, wall: float) -> None:
        span = flight.request.output
        output = np.zeros(0, np.uint8) if span is None else np.array(self._session.arena.view(span), np.uint8)
        # The slot is free again: the emulator gets its next cell before this one is judged.
        self._fill()
        try:
            judgement = self._judge.judge(flight.cell, answer, output)
        except HarnessError as error:
            judgement = untested(str(error))
        if output.size and answer.status == "ok" and self._bench.witness is not None:
            self._bench.witness(flight.cell, output)
        self._record(
            flight.cell,
            self._hello,
            judgement,
            digest=digest_of_output(output) if answer.status == "ok" else "",
            ran=answer.ran,
            claimed=answer.claimed,
            wall_ms=wall,
            kernel_ms=answer.kernel_ns / 1e6,
        )

    def _lost(self, cell: Cell, outcome: Crash | Timeout, wall: float) -> None:
        if isinstance(outcome, Crash):
            if killed_from_outside(outcome) and self._bench.may_retry(cell):
                self._queue.appendleft(cell)
                # The cells behind it come back in `run`, before this one; the order inside a lane is a
                # matter of speed, not of meaning.
                return
            judgement = crash_judgement(outcome)
        else:
            judgement = timeout_judgement(outcome)
        # A signal that the kernel raised is its verdict; one from outside says nothing of the next run.
        keep = isinstance(outcome, Crash) and not killed_from_outside(outcome)
        self._record(cell, self._hello, judgement, keep, wall_ms=wall)

    def _elapsed(self) -> float:
        """Milliseconds since the last outcome: the wall time that this cell cost its lane."""
        now = time.monotonic()
        elapsed, self._mark = now - self._mark, now
        return elapsed * 1000
