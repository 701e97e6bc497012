# SPDX-License-Identifier: MIT
"""Processes inside an unpacked tree, entered through bubblewrap.

Each spawned process gets namespaces of its own (user, mount, process, network, IPC, host name): killing its
first process takes all of them along, and so does the death of the lab.
"""

from __future__ import annotations

import json
import os
import select
import selectors
import signal
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tierlab.errors import EngineError
from tierlab.toolchain.capture import Capture
from tierlab.toolchain.engine import BASE_ENVIRONMENT, HOUSEKEEPING_PROCESSES, TMP_BYTES, Limits, Mount

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

GRACE_SECONDS = 5.0
SETUP_FAILED = 1
"""bubblewrap's own code; it counts as that only if it never reports the end of a command."""


def arguments(
    root: Path, mounts: Sequence[Mount], env: Mapping[str, str], workdir: str, network: bool = False
) -> list[str]:
    """bubblewrap's options: the tree's directories read-only under a root that is itself read-only.

    The root is built from parts, because a mount point can be made only in a directory that is not yet
    read-only, and the tree itself must stay untouched.
    """
    options = ["--unshare-all", "--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL"]
    if network:
        options += ["--share-net"]
    for name, value in {**BASE_ENVIRONMENT, **env}.items():
        options += ["--setenv", name, value]
    for entry in sorted(root.iterdir()):
        if entry.is_symlink():
            options += ["--symlink", os.readlink(entry), f"/{entry.name}"]
        elif entry.is_dir() and entry.name not in {"dev", "proc", "tmp", "sys", "run"}:
            options += ["--ro-bind", str(entry), f"/{entry.name}"]
    options += ["--proc", "/proc", "--dev", "/dev", "--size", str(TMP_BYTES), "--tmpfs", "/tmp"]
    if network and Path("/etc/resolv.conf").exists():
        options += ["--ro-bind", os.path.realpath("/etc/resolv.conf"), "/etc/resolv.conf"]
    for mount in mounts:
        source = str(mount.source.absolute())
        options += ["--bind" if mount.writable else "--ro-bind", source, mount.target]
    return [*options, "--remount-ro", "/", "--chdir", workdir]


def limited(argv: Sequence[str], limits: Limits) -> list[str]:
    """argv under resource limits, to be run inside the tree.

    RLIMIT_DATA counts private writable memory, which is what a runaway program allocates; RLIMIT_AS would
    also count the emulator's reservations and the shared arena. The limit on processes must be set inside,
    where only this sandbox's processes count.
    """
    return [
        "prlimit",
        f"--data={limits.memory_bytes}",
        f"--nproc={limits.processes + HOUSEKEEPING_PROCESSES}",
        "--core=0",
        "--",
        *argv,
    ]


def entering(groups: Sequence[Path], command: Sequence[str]) -> list[str]:
    """command, started inside the control groups."""
    if not groups:
        return list(command)
    count = len(groups)
    places = " ".join(f'"${{{number}}}"' for number in range(1, count + 1))
    script = f'for place in {places}; do echo $$ > "$place"; done; '
    return ["sh", "-ec", f'{script}shift {count}; exec "$@"', "sh", *map(str, groups), *command]


class BubblewrapProcess:
    """A running bubblewrap and what it holds; see engine.Process.

    `options` are those of `arguments`, `argv` is run inside, `groups` are entered first.
    """

    def __init__(
        self, options: Sequence[str], argv: Sequence[str], groups: Sequence[Path], log: Path | None
    ) -> None:
        self._output, self._errors = Capture(), Capture()
        self._log = log
        self._entered = True
        self._killed = False
        self._pump: threading.Thread | None = None
        status_read, status_write = _status_pipe()
        entry = ["bwrap", "--json-status-fd", str(status_write), *options, "--", *argv]
        try:
            self._outer = self._start(entering(groups, entry), status_write, log)
        except OSError as error:
            os.close(status_read)
            msg = f"bubblewrap cannot be started ({error.strerror}); nothing ran. Run: invoke doctor"
            raise EngineError(msg) from error
        finally:
            os.close(status_write)
        self._status: int | None = status_read
        self._first = _first_process(status_read)

    def _start(self, command: Sequence[str], status: int, log: Path | None) -> subprocess.Popen[bytes]:
        if log is not None:
            with log.open("wb") as file:
                return subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, pass_fds=[status]
                )
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[status],
        )
        self._pump = threading.Thread(target=self._drain, args=(process,), daemon=True)
        self._pump.start()
        return process

    def _drain(self, process: subprocess.Popen[bytes]) -> None:
        with selectors.DefaultSelector() as selector:
            for stream, capture in ((process.stdout, self._output), (process.stderr, self._errors)):
                if stream is not None:
                    selector.register(stream, selectors.EVENT_READ, capture)
            while selector.get_map():
                for key, _ in selector.select():
                    data = os.read(key.fd, 1 << 16)
                    key.data.feed(data)
                    if not data:
                        selector.unregister(key.fileobj)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()

    def poll(self) -> int | None:
        code = self._outer.poll()
        return None if code is None else self._checked(self._ended(code))

    def wait(self, timeout: float | None = None) -> int:
        try:
            code = self._ended(self._outer.wait(timeout))
        except subprocess.TimeoutExpired as expired:
            msg = f"still running after {timeout} s"
            raise TimeoutError(msg) from expired
        return self._checked(code)

    def _ended(self, code: int) -> int:
        """Release what bubblewrap needed to its very end, once the whole namespace is gone.

        It writes to the status pipe last of all, and may itself end before the namespace does.
        """
        if self._first is not None:
            select.select([self._first], [], [], GRACE_SECONDS)
            os.close(self._first)
            self._first = None
        if self._status is not None:
            with os.fdopen(self._status, "rb") as stream:
                self._entered = b"exit-code" in stream.read() or code != SETUP_FAILED
            self._status = None
        return 128 - code if code < 0 else code

    def _checked(self, code: int) -> int:
        """The code, if it is the command's; EngineError if bubblewrap failed before it could start it."""
        if not self._entered and not self._killed:
            told = self._log if self._log is not None else self.stderr_text().strip()
            msg = f"bubblewrap could not set up the sandbox ({told}); nothing ran. Run: invoke doctor"
            raise EngineError(msg)
        return code

    def kill(self) -> None:
        """The first process of the namespace dies, the kernel kills the others, bubblewrap ends last."""
        if self._outer.poll() is None:
            self._killed = True
            if self._first is not None:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._first, signal.SIGKILL)
            else:
                self._outer.kill()
        self._ended(self._outer.wait())
        if self._pump is not None:
            self._pump.join(GRACE_SECONDS)

    def _settled(self, capture: Capture) -> str:
        if self._outer.poll() is not None and self._pump is not None:
            self._pump.join(GRACE_SECONDS)
        return capture.text()

    def stdout_text(self) -> str:
        return self._settled(self._output)

    def stderr_text(self) -> str:
        return self._settled(self._errors)


def _status_pipe() -> tuple[int, int]:
    """A pipe whose write end can read as well, so that a write never fails for want of a reader.

    bubblewrap writes the namespace's first process to it before it lets that process go on. If our death made
    that write fail, bubblewrap would die there and leave a process behind that waits for it without end.
    """
    reading, writing = os.pipe()
    try:
        return reading, os.open(f"/proc/self/fd/{writing}", os.O_RDWR | os.O_CLOEXEC)
    finally:
        os.close(writing)


def _first_process(status: int) -> int | None:
    """A handle of the namespace's first process, or None if bubblewrap gave up before it or it is gone."""
    line = b""
    while not line.endswith(b"\n"):
        data = os.read(status, 1)
        if not data:
            return None
        line += data
    try:
        return os.pidfd_open(json.loads(line)["child-pid"])
    except ProcessLookupError:
        return None
