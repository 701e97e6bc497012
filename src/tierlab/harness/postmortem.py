# SPDX-License-Identifier: MIT
"""What a dead harness left behind: its return code and its last words on standard error."""

from __future__ import annotations

import re

from tierlab.harness.messages import Crash, Request

_SIGNAL = re.compile(
    r"^tierlab-harness: signal (?P<signal>\d+) at 0x[0-9a-f]+ in (?P<symbol>\S+)\+0x(?P<offset>[0-9a-f]+) "
    r"\(instruction (?:0x(?P<instruction>[0-9a-f]{8})|[^)]*)\)(?: address 0x(?P<address>[0-9a-f]+))?$",
    re.MULTILINE,
)
_GUARD = re.compile(r"^tierlab-harness: guard (?P<what>(?:read|write) \w+ [-+@]\d+) bytes$", re.MULTILINE)

_STDERR_KEPT = 4000


def crash(request: Request, returncode: int, stderr: str, unanswered: tuple[Request, ...] = ()) -> Crash:
    """Read the crash report in `stderr`; without one, the return code alone tells the signal."""
    signal = returncode - 128 if returncode > 128 else None
    guard = _GUARD.search(stderr)
    found = _SIGNAL.search(stderr)
    kept = stderr[-_STDERR_KEPT:]
    where = guard["what"] if guard else ""
    if found is None:
        return Crash(request, returncode, signal, guard=where, stderr=kept, unanswered=unanswered)
    symbol = "" if found["symbol"] == "?" else found["symbol"]
    return Crash(
        request,
        returncode,
        signal=int(found["signal"]),
        symbol=symbol,
        offset=int(found["offset"], 16),
        instruction=_hexadecimal(found["instruction"]),
        address=_hexadecimal(found["address"]),
        guard=where,
        stderr=kept,
        unanswered=unanswered,
    )


def _hexadecimal(text: str | None) -> int | None:
    return None if text is None else int(text, 16)
