# SPDX-License-Identifier: MIT
"""A process executed inside a running container."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, BinaryIO

from docker.utils.socket import STDERR, frames_iter

from tierlab.toolchain.capture import Capture
from tierlab.toolchain.docker_client import TROUBLE, hang_up, told

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from docker import DockerClient

KILLED = 137
LOOK_SECONDS = 0.25
"""How often the engine is asked whether a process ended whose heirs still hold its streams."""

SETTLE_SECONDS = 10.0
"""Longest wait for an exit code after a process closed its streams, before it counts as still running."""


class DockerProcess:
    """See engine.Process. `end_container` is how it is killed: nothing survives the end of its container."""

    def __init__(
        self,
        client: DockerClient,
        container: str,
        argv: Sequence[str],
        env: Mapping[str, str],
        workdir: str,
        log: Path | None,
        end_container: Callable[[], None],
    ) -> None:
        self._api = client.api
        self._end_container = end_container
        self._code: int | None = None
        self._killed = False
        self._output, self._errors = Capture(), Capture()
        with told("starting a process"):
            self._id = self._api.exec_create(
                container, list(argv), environment=dict(env), workdir=workdir, stdin=False
            )["Id"]
            stream = self._api.exec_start(self._id, socket=True)
        self._pump = threading.Thread(target=self._drain, args=(stream, log), daemon=True)
        self._pump.start()

    def _drain(self, stream: Any, log: Path | None) -> None:
        with ExitStack() as stack:
            stack.callback(hang_up, stream)
            file: BinaryIO | None = stack.enter_context(log.open("wb")) if log is not None else None
            with suppress(*TROUBLE, ValueError):  # the engine vanished: `poll` tells
                for number, data in frames_iter(stream, tty=False):  # type: ignore[no-untyped-call]
                    if file is not None:
                        file.write(data)
                        file.flush()
                    else:
                        (self._errors if number == STDERR else self._output).feed(data)

    def poll(self) -> int | None:
        if self._code is None:
            self._code = KILLED if self._killed else self._ask()
        return self._code

    def _ask(self) -> int | None:
        with told("a process ran in its container"):
            state = self._api.exec_inspect(self._id)
        code = state.get("ExitCode")
        return None if state.get("Running") or code is None else int(code)

    def wait(self, timeout: float | None = None) -> int:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = LOOK_SECONDS if deadline is None else deadline - time.monotonic()
            self._pump.join(max(0.0, min(LOOK_SECONDS, left)))
            code = self._settled_code() if not self._pump.is_alive() else self.poll()
            if code is not None:
                self._pump.join(LOOK_SECONDS)
                return code
            if deadline is not None and time.monotonic() >= deadline:
                msg = f"still running after {timeout} s"
                raise TimeoutError(msg)

    def _settled_code(self) -> int | None:
        """The engine learns of an end a moment after the streams close."""
        deadline = time.monotonic() + SETTLE_SECONDS
        code = self.poll()
        while code is None and time.monotonic() < deadline:
            time.sleep(0.002)
            code = self.poll()
        return code

    def kill(self) -> None:
        if self._code is None and not self._killed:
            with suppress(Exception):
                self._code = self._ask()
        if self._code is None:
            self._killed = True
            self._end_container()
        self._pump.join(SETTLE_SECONDS)

    def stdout_text(self) -> str:
        return self._settled(self._output)

    def stderr_text(self) -> str:
        return self._settled(self._errors)

    def _settled(self, capture: Capture) -> str:
        if self._code is not None or self._killed:
            self._pump.join(LOOK_SECONDS)
        return capture.text()
