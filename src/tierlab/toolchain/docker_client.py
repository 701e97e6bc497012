# SPDX-License-Identifier: MIT
"""Finding a Docker (or Podman) engine that answers and lives on this machine."""

from __future__ import annotations

import os
import re
import socket
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import docker
import docker.errors
import requests

from tierlab.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Iterator

ANSWER_SECONDS = 3
"""An engine that does not answer a ping in this time is taken for absent."""

CALL_SECONDS = 600
"""Longest silence of an engine within one call (importing a base image is the slowest)."""

TROUBLE = (docker.errors.DockerException, requests.exceptions.RequestException, OSError)
"""All that the SDK may raise when the engine refuses, vanishes or never was."""

INSTRUCTIONS = (
    "Start one (Debian: sudo apt-get install docker.io; Podman: systemctl --user start podman.socket and "
    "DOCKER_HOST=unix://$XDG_RUNTIME_DIR/podman/podman.sock), or use --engine rootfs, which needs none"
)


def addresses() -> list[str]:
    """Where an engine may listen: DOCKER_HOST alone if it is set, else the usual sockets that exist."""
    chosen = os.environ.get("DOCKER_HOST")
    if chosen:
        return [chosen]
    return [f"unix://{path}" for path in _sockets() if path.exists()]


def _sockets() -> Iterator[Path]:
    yield Path("/var/run/docker.sock")
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime:
        yield Path(runtime, "docker.sock")
        yield Path(runtime, "podman", "podman.sock")


def is_local(address: str) -> bool:
    """Only an engine behind a Unix socket sees this machine's files, which are mounted into containers."""
    return address.startswith(("unix://", "http+unix://"))


def connect() -> docker.DockerClient:
    """A client of the first local engine that answers; EngineError says why none did."""
    reasons = []
    for address in addresses():
        if not is_local(address):
            reasons.append(f"{address} is not on this machine, so it cannot mount this machine's files")
            continue
        try:
            return _answering(address)
        except TROUBLE as error:
            reasons.append(f"{address}: {short(error)}")
    told = "; ".join(reasons) if reasons else "no DOCKER_HOST is set and no engine's socket exists"
    msg = f"no Docker engine answers ({told}); the docker engine cannot be used. {INSTRUCTIONS}"
    raise EngineError(msg)


def _answering(address: str) -> docker.DockerClient:
    _ping(address.split("://", 1)[1])
    return docker.DockerClient(base_url=address, timeout=CALL_SECONDS)


def _ping(path: str) -> None:
    """Raise OSError unless an engine answers at the socket. Asked by hand, in a time that is bounded: the SDK
    leaves its connection open if nobody listens there, or somebody else does."""
    deadline = time.monotonic() + ANSWER_SECONDS
    said = b""
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(ANSWER_SECONDS)
        line.connect(path)
        line.sendall(b"GET /_ping HTTP/1.1\r\nHost: engine\r\nConnection: close\r\n\r\n")
        while b"\n" not in said and len(said) < 4096:
            line.settimeout(max(deadline - time.monotonic(), 0.001))
            data = line.recv(1024)
            if not data:
                break
            said += data
    first = said.split(b"\r\n", 1)[0].decode(errors="replace")
    if not re.match(r"HTTP/1\.[01] 200\b", first):
        msg = f"what listens there is no engine that works (it answers {first[:80]!r})"
        raise OSError(msg)


def short(error: BaseException) -> str:
    """One line of an SDK error: its innermost explanation."""
    explanation = getattr(error, "explanation", None)
    text = str(explanation or error).strip() or type(error).__name__
    for telling in ("Permission denied", "No such file or directory", "Connection refused", "timed out"):
        if telling in text:
            return telling.lower()
    return text.splitlines()[0][:300]


def hang_up(stream: Any) -> None:
    """Close a stream that the SDK took over from a response.

    Closing the stream alone leaves the socket open, because the SDK keeps the response that holds it.
    """
    beneath = getattr(stream, "_sock", None)
    with suppress(*TROUBLE):
        stream.close()
    if beneath is not None:
        with suppress(*TROUBLE):
            beneath.close()


@contextmanager
def told(action: str) -> Iterator[None]:
    """Turns whatever the SDK raises inside into one EngineError; `action` follows the word "while"."""
    try:
        yield
    except TROUBLE as error:
        msg = (
            f"the docker engine failed while {action} ({short(error)}); what ran is lost, what is cached is "
            "intact. Check that the engine runs (invoke doctor) and start again"
        )
        raise EngineError(msg) from error
