# SPDX-License-Identifier: MIT
"""Keeps what a process writes, without letting a chatty one fill the memory."""

from __future__ import annotations

import threading

KEPT_BYTES = 128 << 10
"""Kept of the beginning, and again of the end, of a stream."""


class Capture:
    """The first and last `limit` bytes of a stream; safe to feed from one thread and read from another."""

    def __init__(self, limit: int = KEPT_BYTES) -> None:
        self._limit = limit
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0
        self._lock = threading.Lock()

    def feed(self, data: bytes) -> None:
        with self._lock:
            room = self._limit - len(self._head)
            self._head += data[:room]
            self._tail += data[room:] if room < len(data) else b""
            excess = len(self._tail) - self._limit
            if excess > 0:
                del self._tail[:excess]
                self._dropped += excess

    def text(self) -> str:
        """All that is kept; a line says how many bytes are missing in the middle, if any."""
        with self._lock:
            gap = f"\n[… {self._dropped} bytes not kept …]\n".encode() if self._dropped else b""
            return bytes(self._head + gap + self._tail).decode(errors="replace")
