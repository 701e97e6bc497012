# SPDX-License-Identifier: MIT
"""Every cell of a lane gets exactly one record, whatever the harness process does."""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tierlab.cells.expand import lanes
from tierlab.cells.load import load_matrix
from tierlab.cells.selection import Selection
from tierlab.errors import EngineError, HarnessError, ProbeError, StoreError
from tierlab.harness.arena import Arena
from tierlab.harness.messages import Answer, Crash, Request, Timeout
from tierlab.judge.verdict import Judgement, Verdict
from tierlab.run import lane
from tierlab.run.judging import TreeFacts
from tierlab.run.lane import LaneRunner
from tierlab.run.requests import Inputs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tierlab.run.record import CellRecord

MATRIX = load_matrix(Path(__file__).parents[2] / "matrix.yaml")
SELECTION = Selection(
    profiles=("neoverse-n1",), types=("q4_0",), suites=("ggml.mul_mat",), paths=("default",)
)
LANE, ALL_CELLS = next(lanes(MATRIX, SELECTION))
CELLS = [replace(cell, threads=1) for cell in ALL_CELLS[:8]]
CELLS[3:3] = [replace(CELLS[2], threads=2), replace(CELLS[2], threads=8)]
"""One problem on three thread counts among others on one."""

HELLO = SimpleNamespace(arch="aarch64", variant="v", features=frozenset(), kernels=1)


class ScriptedSession:
    """Answers every request with ok, unless the script has another outcome for that cell's turn."""

    def __init__(
        self, arena: Arena, script: dict[int, Callable[[Request, tuple[Request, ...]], Any]]
    ) -> None:
        self.arena = arena
        self.script = script
        self.starts = 0
        self.asked = 0
        self.most_in_flight = 0
        self.flying: deque[Request] = deque()

    def start(self, timeout: float) -> Any:
        self.starts += 1
        self.flying.clear()
        return HELLO

    def submit(self, request: Request) -> None:
        self.flying.append(request)
        self.most_in_flight = max(self.most_in_flight, len(self.flying))

    def receive(self, timeout: float) -> Any:
        request = self.flying.popleft()
        turn, self.asked = self.asked, self.asked + 1
        if turn in self.script:
            return self.script[turn](request, tuple(self.flying))
        assert request.output is not None
        self.arena.view(request.output)[:] = 7
        return Answer(request.cell, "ok", claimed=True, ran={"kernel": 1})


class FakeBench:
    """A workbench without engine: a scripted session, records kept in lists."""

    def __init__(self, session: ScriptedSession) -> None:
        self.plan = SimpleNamespace(fresh=False)
        self.matrix = MATRIX
        self.session = session
        self.known: dict[str, CellRecord] = {}
        self.kept: list[CellRecord] = []
        self.stored: list[CellRecord] = []
        self.store = SimpleNamespace(append=self.stored.append)
        self.problems = SimpleNamespace(inputs=self.inputs)
        self.retried: set[str] = set()
        self.witness = None
        self.answered: dict[str, CellRecord] = {}
        self.promise_error: Exception | None = None
        self.session_error: Exception | None = None

    def inputs(self, problem: Any) -> Inputs:
        return Inputs(np.zeros(64, np.uint8), np.zeros((1, 1, 1, 4), np.float32), None, None)

    @contextmanager
    def open_session(self, lane: Any) -> Iterator[ScriptedSession]:
        if self.session_error is not None:
            raise self.session_error
        yield self.session

    def facts(self, lane: Any, hello: Any) -> TreeFacts:
        return TreeFacts()

    def check_promise(self, lane: Any, hello: Any) -> None:
        if self.promise_error is not None:
            raise self.promise_error

    def may_retry(self, cell: Any) -> bool:
        new = cell.id not in self.retried
        self.retried.add(cell.id)
        return new

    def exact_key(self, lane: Any) -> dict[str, str]:
        return {"files": "all"}

    def variant_key(self, lane: Any, hello: Any) -> dict[str, str]:
        return {"files": "one"}

    def cached(self, key: dict[str, str]) -> dict[str, CellRecord]:
        return self.known

    def remember(self, key: dict[str, str], record: CellRecord) -> None:
        self.kept.append(record)


class AlwaysPass:
    """A judge that passes what it is given."""

    def __init__(self, *_: Any) -> None:
        pass

    def judge(self, cell: Any, answer: Any, output: Any) -> Judgement:
        assert output.size
        assert (output == 7).all()
        return Judgement(Verdict.PASS, share=0.5)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    monkeypatch.setattr(lane, "CellJudge", AlwaysPass)
    with Arena(tmp_path / "arena", 1 << 24) as arena:

        def go(script: dict[int, Any] | None = None, **settings: Any) -> tuple[FakeBench, list[CellRecord]]:
            bench = FakeBench(ScriptedSession(arena, script or {}))
            for name, value in settings.items():
                setattr(bench, name, value)
            emitted: list[CellRecord] = []
            LaneRunner(bench, LANE, CELLS, emitted.append).run()  # type: ignore[arg-type]
            return bench, emitted

        yield go


def crash(returncode: int = 132, **more: Any) -> Callable[..., Crash]:
    return lambda request, behind: Crash(request, returncode, unanswered=behind, **more)


def assert_each_once(emitted: list[CellRecord]) -> None:
    assert sorted(record.cell for record in emitted) == sorted(cell.id for cell in CELLS)


def test_all_pass_in_one_process_with_two_requests_in_flight(run: Callable[..., Any]) -> None:
    bench, emitted = run()
    assert_each_once(emitted)
    assert {record.verdict for record in emitted} == {Verdict.PASS}
    assert bench.stored == emitted
    assert bench.session.starts == 1
    assert bench.session.most_in_flight == 2


def test_crash_costs_the_cell_in_flight_only(run: Callable[..., Any]) -> None:
    bench, emitted = run({6: crash(signal=4, symbol="kernel", offset=8, instruction=0x4E80A400)})
    assert_each_once(emitted)
    bad = [record for record in emitted if record.verdict is not Verdict.PASS]
    assert [(record.cell, record.verdict) for record in bad] == [(CELLS[6].id, Verdict.CRASH)]
    assert bad[0].detail == "SIGILL in kernel+0x8 (instruction 0x4e80a400)"
    assert bench.session.starts == 2


def test_guard_page_is_a_guard_verdict(run: Callable[..., Any]) -> None:
    _, emitted = run({0: crash(139, signal=11, guard="read weights +0", symbol="kernel", offset=16)})
    assert emitted[0].verdict is Verdict.GUARD
    assert emitted[0].detail == "the kernel left its buffers: read weights +0 in kernel+0x10"


def test_timeout_is_a_verdict_and_the_rest_goes_on(run: Callable[..., Any]) -> None:
    _, emitted = run({5: lambda request, behind: Timeout(request, 30.0, unanswered=behind)})
    assert_each_once(emitted)
    assert [record.cell for record in emitted if record.verdict is Verdict.TIMEOUT] == [CELLS[5].id]


def test_killed_from_outside_is_tried_again_once(run: Callable[..., Any]) -> None:
    _, emitted = run({2: crash(137)})
    assert_each_once(emitted)
    assert {record.verdict for record in emitted} == {Verdict.PASS}
    # The same cell again, twice: now it is a crash, and it says so.
    always = {turn: crash(137) for turn in range(200)}
    _, emitted = run(always)
    assert_each_once(emitted)
    assert {record.verdict for record in emitted} == {Verdict.CRASH}
    assert "out of memory?" in emitted[0].detail


def test_broken_promise_leaves_every_cell_untested(run: Callable[..., Any]) -> None:
    bench, emitted = run(promise_error=ProbeError("i8mm is missing"))
    assert_each_once(emitted)
    assert {(record.verdict, record.detail) for record in emitted} == {(Verdict.UNTESTED, "i8mm is missing")}
    assert bench.kept == []


def test_dead_engine_leaves_every_cell_untested(run: Callable[..., Any]) -> None:
    _, emitted = run(session_error=EngineError("the container is gone"))
    assert_each_once(emitted)
    assert {record.verdict for record in emitted} == {Verdict.UNTESTED}


def test_harness_that_does_not_start_is_tried_twice(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: ScriptedSession, timeout: float) -> Any:
        self.starts += 1
        msg = "died before it connected"
        raise HarnessError(msg)

    monkeypatch.setattr(ScriptedSession, "start", refuse)
    bench, emitted = run()
    assert bench.session.starts == 2
    assert {record.verdict for record in emitted} == {Verdict.UNTESTED}


def test_cached_cells_start_no_process(run: Callable[..., Any]) -> None:
    _, first = run()
    bench, emitted = run(known={record.cell: record for record in first})
    assert_each_once(emitted)
    assert bench.session.starts == 0
    assert bench.kept == []


def test_lost_store_stops_the_lane(run: Callable[..., Any]) -> None:
    def full(_: Any) -> None:
        msg = "disk full"
        raise StoreError(msg)

    with pytest.raises(StoreError, match="disk full"):
        run(store=SimpleNamespace(append=full))


def test_other_bytes_on_other_threads_fail(run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    threaded = [cell for cell in CELLS if cell.threads > 1]
    original = ScriptedSession.receive

    def differ(self: ScriptedSession, timeout: float) -> Any:
        request = self.flying[0]
        answer = original(self, timeout)
        if request.threads > 1:
            assert request.output is not None
            self.arena.view(request.output)[0] = 8
        return answer

    class Lenient(AlwaysPass):
        def judge(self, cell: Any, answer: Any, output: Any) -> Judgement:
            return Judgement(Verdict.PASS)

    monkeypatch.setattr(ScriptedSession, "receive", differ)
    monkeypatch.setattr(lane, "CellJudge", Lenient)
    bench, emitted = run()
    failed = {record.cell for record in emitted if record.verdict is Verdict.FAIL}
    assert failed == {cell.id for cell in threaded}
    # The comparison is this run's; the cell's own verdict is what is kept.
    assert {record.verdict for record in bench.kept} == {Verdict.PASS}


def test_a_second_pass_asks_only_for_what_is_unanswered(run: Callable[..., Any]) -> None:
    _, first = run()
    answered = {record.cell: record for record in first[:-2]}
    _, emitted = run(answered=answered)
    assert [record.cell for record in emitted] == [record.cell for record in first[-2:]]
