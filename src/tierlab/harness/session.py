# SPDX-License-Identifier: MIT
"""A conversation with one harness process, which may be followed by another after a crash."""

from __future__ import annotations

import contextlib
import selectors
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tierlab.errors import HarnessError
from tierlab.harness import postmortem
from tierlab.harness.folder import MOUNT_POINT, SessionFolder
from tierlab.harness.messages import Crash, Hello, Outcome, Request, Timeout
from tierlab.harness.wire import Lines, RecordReader, format_request, parse_answer, parse_hello
from tierlab.toolchain.engine import Process

if TYPE_CHECKING:
    import socket
    from types import TracebackType

__all__ = ["ENVIRONMENT", "MAX_IN_FLIGHT", "HarnessCommand", "Session", "SessionFolder"]

MAX_IN_FLIGHT = 2
"""One request that is computed and one that waits: more would only hold memory."""

ENVIRONMENT: Mapping[str, str] = {"OMP_WAIT_POLICY": "passive"}
"""What every harness gets unless the command says otherwise. Threads that wait must sleep: emulated ones that
spin take the cores from those that compute (measured: ten times the time with four threads on two cores)."""

HELLO_SECONDS = 60.0
_DEATH_SECONDS = 30.0
_TICK_SECONDS = 0.05


@dataclass(frozen=True)
class HarnessCommand:
    """How to start a harness: paths as they are inside the sandbox.

    `emulator` stands in front (empty on real hardware); `folder` is where the sandbox sees the session.
    """

    executable: str
    backend_dir: str
    build_id: str
    emulator: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    folder: str = MOUNT_POINT

    def argv(self) -> list[str]:
        options = ["--socket", f"{self.folder}/socket", "--arena", f"{self.folder}/arena"]
        options += ["--backend-dir", self.backend_dir, "--build-id", self.build_id]
        return [*self.emulator, self.executable, *options]


Spawn = Callable[[Sequence[str], Mapping[str, str]], Process]


class Session:
    """Starts harness processes with `spawn` and talks to them, one at a time.

    Up to MAX_IN_FLIGHT requests may be submitted before their answers are received; answers come in the
    order of submission. After a Crash or Timeout the process is gone: `start` again, then submit again
    what the outcome calls unanswered.
    """

    def __init__(self, folder: SessionFolder, command: HarnessCommand, spawn: Spawn) -> None:
        self.folder = folder
        self.arena = folder.arena
        self._command = command
        self._spawn = spawn
        self._process: Process | None = None
        self._connection: socket.socket | None = None
        self._reader = RecordReader()
        self._records: deque[Lines] = deque()
        self._in_flight: deque[Request] = deque()

    @property
    def alive(self) -> bool:
        """Whether a process has said hello and has not been found dead since."""
        return self._connection is not None

    @property
    def in_flight(self) -> int:
        """Number of submitted requests whose outcome has not been received."""
        return len(self._in_flight)

    def start(self, timeout: float = HELLO_SECONDS) -> Hello:
        """Start a process and wait for its hello; HarnessError if it dies or stays silent."""
        self.stop()
        deadline = time.monotonic() + timeout
        self._process = self._spawn(self._command.argv(), {**ENVIRONMENT, **self._command.env})
        try:
            self._connection = self._accept(deadline)
            record = self._next_record(deadline)
            if record is None:
                # It is about to end: only then are its return code and its last words there to be told.
                with contextlib.suppress(TimeoutError):
                    self._process.wait(_DEATH_SECONDS)
                msg = "closed the connection without a hello"
                raise self._failed_start(msg)
            return parse_hello(record)
        except TimeoutError:
            self._process.kill()
            msg = f"said no hello within {timeout:g} s"
            raise self._failed_start(msg) from None
        except BaseException:
            self.stop()
            raise

    def submit(self, request: Request) -> None:
        """Send a request. A process that is already dead is reported by `receive`, not here."""
        if self._connection is None or len(self._in_flight) >= MAX_IN_FLIGHT:
            state = "no harness runs" if self._connection is None else f"{MAX_IN_FLIGHT} requests wait"
            msg = f"request {request.cell} was submitted while {state}; fix the caller"
            raise HarnessError(msg)
        self._in_flight.append(request)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._connection.sendall(format_request(request))

    def receive(self, timeout: float) -> Outcome:
        """The outcome of the oldest submitted request, waiting `timeout` seconds at most."""
        if not self._in_flight:
            msg = "an outcome was asked for while no request waits; fix the caller"
            raise HarnessError(msg)
        try:
            record = self._next_record(time.monotonic() + timeout)
        except TimeoutError:
            return self._timed_out(timeout)
        if record is None:
            return self._crashed()
        answer = parse_answer(record)
        request = self._in_flight.popleft()
        if answer.cell != request.cell:
            self.stop()
            msg = (
                f"the harness answered request {answer.cell} where {request.cell} was due: its answers "
                "cannot be trusted. Rebuild the harness with this version of the lab"
            )
            raise HarnessError(msg)
        return answer

    def stop(self) -> None:
        """Hang up and end the process; harmless if there is none."""
        if self._connection is not None:
            self._connection.close()
        if self._process is not None:
            self._process.kill()
        self._connection, self._process = None, None
        self._reader = RecordReader()
        self._records.clear()
        self._in_flight.clear()

    def farewell(self, timeout: float = HELLO_SECONDS) -> str:
        """Hang up, wait for the process to end by itself, and return all that it said on standard error."""
        if self._process is None:
            return ""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        with contextlib.suppress(TimeoutError):
            self._process.wait(timeout)
        said = self._process.stderr_text()
        self.stop()
        return said

    def stderr_text(self) -> str:
        """What the present process has said on standard error so far."""
        return "" if self._process is None else self._process.stderr_text()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _accept(self, deadline: float) -> socket.socket:
        """The connection of the process just started; its death ends the wait at once."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.folder.listener, selectors.EVENT_READ)
            while not selector.select(_TICK_SECONDS):
                if self._process is not None and self._process.poll() is not None:
                    msg = "died before it connected"
                    raise self._failed_start(msg)
                if time.monotonic() > deadline:
                    raise TimeoutError
        return self.folder.listener.accept()[0]

    def _next_record(self, deadline: float) -> Lines | None:
        """The next record, or None at the end of the stream; TimeoutError after the deadline."""
        assert self._connection is not None
        while not self._records:
            self._connection.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                data = self._connection.recv(1 << 16)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._records.extend(self._reader.feed(data))
        return self._records.popleft()

    def _failed_start(self, how: str) -> HarnessError:
        assert self._process is not None
        code = self._process.poll()
        said = self._process.stderr_text().strip()[-2000:] or "nothing"
        return HarnessError(
            f"the harness {how} (return code {code}): no cell of this lane can run. It said: {said}"
        )

    def _crashed(self) -> Crash:
        process, request = self._process, self._in_flight.popleft()
        unanswered = tuple(self._in_flight)
        assert process is not None
        try:
            code = process.wait(_DEATH_SECONDS)
        except TimeoutError:
            process.kill()
            code = process.wait(_DEATH_SECONDS)
        stderr = process.stderr_text()
        self.stop()
        return postmortem.crash(request, code, stderr, unanswered)

    def _timed_out(self, seconds: float) -> Timeout:
        process, request = self._process, self._in_flight.popleft()
        unanswered = tuple(self._in_flight)
        assert process is not None
        process.kill()
        stderr = process.stderr_text()[-4000:]
        self.stop()
        return Timeout(request, seconds, stderr, unanswered)
