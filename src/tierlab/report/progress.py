# SPDX-License-Identifier: MIT
"""Live progress, read from the end of `results.jsonl`: it needs no word from the workers."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.text import Text

from tierlab.errors import StoreError
from tierlab.judge.verdict import Verdict
from tierlab.report import text
from tierlab.report.faults import Outcome, outcome
from tierlab.run.record import CellRecord
from tierlab.run.store import RESULTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

RATE_WINDOW = 30.0
"""Seconds over which the rate is taken: long enough to smooth lanes of different cost."""

TERMINAL_PERIOD, PLAIN_PERIOD = 0.25, 15.0


class Follower:
    """Reads the complete lines that were appended since the last look."""

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / RESULTS
        self._offset = 0
        self._rest = b""

    def poll(self) -> list[CellRecord]:
        """New records; lines that do not parse are left to the report, which names them."""
        try:
            with self._path.open("rb") as stream:
                stream.seek(self._offset)
                data = stream.read()
        except OSError:
            return []
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        found = []
        for line in lines:
            try:
                found.append(CellRecord.from_line(line))
            except (ValueError, StoreError):
                continue
        return found


class ProgressState:
    """Cells done, their outcomes, the rate of executed cells and the lanes that moved last.

    `now` is a monotonic time in seconds, given by the caller.
    """

    def __init__(self, asked: int, now: float) -> None:
        self.asked = asked
        self._outcomes: dict[str, Outcome | Verdict] = {}
        self._start = now
        self._window: deque[tuple[float, int]] = deque([(now, 0)])
        self._executed = 0
        self._lanes: dict[str, float] = {}

    def add(self, records: Iterable[CellRecord], now: float, counts_as_work: bool = True) -> None:
        """Take in new records; what a resumed run finds already there is no work of this one."""
        for record in records:
            result = outcome(record)
            # A cell that was asked again replaces its earlier, undetermined answer.
            known = result in (Outcome.PASS, Outcome.DECLARED, Outcome.CURED)
            self._outcomes[record.cell] = result if known else record.verdict
            if counts_as_work and not record.cached:
                self._executed += 1
                self._lanes[record.lane] = now
        self._window.append((now, self._executed))
        while len(self._window) > 2 and self._window[1][0] <= now - RATE_WINDOW:
            self._window.popleft()

    @property
    def done(self) -> int:
        return len(self._outcomes)

    def rate(self) -> float:
        """Executed cells a second over the last window; 0 before the first."""
        (first, before), (last, after) = self._window[0], self._window[-1]
        return (after - before) / (last - first) if last > first else 0.0

    def seconds_left(self) -> float | None:
        rate = self.rate()
        return (self.asked - self.done) / rate if rate > 0 else None

    def lanes(self, now: float) -> list[str]:
        """The lanes that gave an answer within the window, the latest first."""
        recent = [(seen, lane) for lane, seen in self._lanes.items() if seen > now - RATE_WINDOW]
        return [lane for _, lane in sorted(recent, reverse=True)]

    def verdicts(self) -> str:
        found = Counter(str(result.value) for result in self._outcomes.values())
        order = [Outcome.PASS.value, Outcome.DECLARED.value, Outcome.CURED.value]
        order += [verdict.value for verdict in Verdict if verdict is not Verdict.PASS]
        return ", ".join(f"{text.count(found[word])} {word}" for word in order if found[word])

    def line(self, now: float) -> str:
        """`1 200/20 000 cells (6 %) · 310 cells/s · 1 min 01 s left · 1 199 pass, 1 fail`."""
        share = 100 * self.done // self.asked if self.asked else 100
        parts = [f"{text.count(self.done)}/{text.count(self.asked)} cells ({share} %)"]
        left = self.seconds_left()
        if self.done >= self.asked:
            parts.append(f"{text.duration((now - self._start) * 1000)}")
        elif left is not None:
            parts += [f"{self.rate():.0f} cells/s", f"{text.duration(left * 1000)} left"]
        if self.done:
            parts.append(self.verdicts())
        return " · ".join(parts)


def render(state: ProgressState, now: float, width: int) -> Text:
    """The live block: a bar, the line, the current lanes; each cut to the terminal's width."""
    filled = (width - 2) * min(state.done, state.asked) // state.asked if state.asked else width - 2
    bar = Text.assemble(("━" * filled, "green"), ("━" * (width - 2 - filled), "bright_black"))
    shown = state.lanes(now)[:4]
    body = Text("\n").join([bar, Text(state.line(now)), *(Text(f"  {lane}", style="dim") for lane in shown)])
    body.no_wrap = True
    body.overflow = "ellipsis"
    return body


@contextmanager
def show_progress(
    run_dir: Path,
    asked: int,
    console: Console | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[ProgressState]:
    """Show progress while the body runs: a live block on a terminal, else a plain line now and then.

    The follower is a thread of the caller's process; it ends with the body and prints the last state.
    """
    console = console or Console(stderr=True)
    follower, state, stop = Follower(run_dir), ProgressState(asked, clock()), threading.Event()
    state.add(follower.poll(), clock(), counts_as_work=False)
    follow = _follow_live if console.is_terminal else _follow_plain
    thread = threading.Thread(
        target=follow, args=(follower, state, stop, console, clock), name="progress", daemon=True
    )
    thread.start()
    try:
        yield state
    finally:
        stop.set()
        thread.join()


def _follow_live(
    follower: Follower,
    state: ProgressState,
    stop: threading.Event,
    console: Console,
    clock: Callable[[], float],
) -> None:
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while not stop.wait(TERMINAL_PERIOD):
            state.add(follower.poll(), clock())
            live.update(render(state, clock(), console.width), refresh=True)
    _last_line(follower, state, console, clock)


def _follow_plain(
    follower: Follower,
    state: ProgressState,
    stop: threading.Event,
    console: Console,
    clock: Callable[[], float],
) -> None:
    while not stop.wait(PLAIN_PERIOD):
        state.add(follower.poll(), clock())
        console.print(Text(state.line(clock())), soft_wrap=True)
    _last_line(follower, state, console, clock)


def _last_line(
    follower: Follower, state: ProgressState, console: Console, clock: Callable[[], float]
) -> None:
    state.add(follower.poll(), clock())
    console.print(Text(state.line(clock())), soft_wrap=True)
