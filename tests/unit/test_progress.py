# SPDX-License-Identifier: MIT
"""Live progress: what the follower reads, and what is shown of it."""

from __future__ import annotations

import io
import re
import threading
from typing import TYPE_CHECKING

import pytest
from rich.console import Console
from test_store import record

from tierlab.judge.verdict import Verdict
from tierlab.report import progress
from tierlab.report.progress import Follower, ProgressState, render, show_progress
from tierlab.run.store import RESULTS, Store

if TYPE_CHECKING:
    from pathlib import Path


def test_the_follower_waits_for_the_end_of_a_line(tmp_path: Path) -> None:
    follower = Follower(tmp_path)
    assert follower.poll() == []
    first, second = record("a").to_line(), record("b").to_line()
    path = tmp_path / RESULTS
    path.write_bytes(first + second[:30])
    assert [entry.shape for entry in follower.poll()] == ["a"]
    assert follower.poll() == []
    with path.open("ab") as stream:
        stream.write(second[30:] + b"damaged\n{}\n" + record("c").to_line())
    assert [entry.shape for entry in follower.poll()] == ["b", "c"]


def test_done_counts_cells_not_lines() -> None:
    state = ProgressState(asked=2, now=0.0)
    state.add([record("a", Verdict.UNTESTED), record("a")], now=1.0)
    assert (state.done, state.verdicts()) == (1, "1 pass")


def test_rate_and_time_left_come_from_executed_cells() -> None:
    state = ProgressState(asked=100, now=0.0)
    state.add([record(f"c{n}", cached=True) for n in range(40)], now=1.0)
    assert (state.rate(), state.seconds_left()) == (0.0, None)
    state.add([record(f"e{n}") for n in range(20)], now=10.0)
    assert (state.rate(), state.seconds_left()) == (2.0, 20.0)


def test_the_rate_forgets_what_is_long_ago() -> None:
    state = ProgressState(asked=1000, now=0.0)
    for second in range(0, 100, 10):
        count = 1 if second < 50 else 10
        state.add([record(f"{second}-{n}") for n in range(count)], now=float(second))
    assert state.rate() == 1.0


def test_what_a_resumed_run_finds_is_no_work_of_its_own() -> None:
    state = ProgressState(asked=10, now=0.0)
    state.add([record("a"), record("b")], now=0.0, counts_as_work=False)
    state.add([record("c")], now=2.0)
    assert (state.done, state.rate(), state.lanes(2.0)) == (3, 0.5, ["ggml.mul_mat/stock/a64fx"])


def test_lines() -> None:
    state = ProgressState(asked=4, now=0.0)
    assert state.line(0.0) == "0/4 cells (0 %)"
    state.add([record("a"), record("b", Verdict.FAIL)], now=2.0)
    assert state.line(2.0) == "2/4 cells (50 %) · 1 cells/s · 2.0 s left · 1 pass, 1 fail"
    declared = record("c", Verdict.FAIL, expected=Verdict.FAIL)
    state.add([declared, record("d", Verdict.CRASH)], now=4.0)
    assert state.line(4.0) == "4/4 cells (100 %) · 4.0 s · 1 pass, 1 declared, 1 fail, 1 crash"


def test_lanes_that_rest_are_not_shown() -> None:
    state = ProgressState(asked=4, now=0.0)
    state.add([record("a", profile="old")], now=0.0)
    state.add([record("b", profile="new")], now=40.0)
    assert state.lanes(40.0) == ["ggml.mul_mat/stock/new"]


@pytest.mark.parametrize(("asked", "done", "filled"), [(4, 2, 10), (0, 0, 20), (1, 2, 20)])
def test_the_live_block(asked: int, done: int, filled: int) -> None:
    state = ProgressState(asked=asked, now=0.0)
    state.add([record(f"{n}") for n in range(done)], now=1.0)
    block = render(state, 1.0, width=22)
    assert block.plain.splitlines()[0] == "━" * 20
    lengths = [span.end - span.start for span in block.spans if span.style == "green"]
    assert lengths == [filled]


@pytest.mark.parametrize("terminal", [False, True])
def test_progress_follows_a_run(tmp_path: Path, terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PLAIN_PERIOD", 0.001)
    monkeypatch.setattr(progress, "TERMINAL_PERIOD", 0.001)
    seen = threading.Event()
    console = Console(file=io.StringIO(), width=100, force_terminal=terminal)
    with Store(tmp_path) as store, show_progress(tmp_path, 2, console) as state:
        store.append(record("a"))
        original = state.add

        def watched(*args: object, **more: object) -> None:
            original(*args, **more)  # type: ignore[arg-type]
            if state.done:
                seen.set()

        monkeypatch.setattr(state, "add", watched)
        assert seen.wait(30)
        store.append(record("b", Verdict.FAIL))
    assert isinstance(console.file, io.StringIO)
    last = re.sub(r"\x1b\[\d*[A-Z]", "", console.file.getvalue().splitlines()[-1])
    assert last.startswith("2/2 cells (100 %)")
    assert last.endswith("1 pass, 1 fail")
