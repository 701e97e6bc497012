# SPDX-License-Identifier: MIT
"""Judgements that need no numbers: crashes, timeouts, cells without an answer."""

from __future__ import annotations

import hashlib
import signal
from dataclasses import replace
from typing import TYPE_CHECKING

from tierlab.judge.verdict import Judgement, Verdict

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tierlab.harness.messages import Crash, Timeout
    from tierlab.run.record import CellRecord


NO_EVIDENCE = ("tierlab-harness: ", "qemu: ")
"""Lines of standard error that repeat what the harness's own last words already told."""

OUTSIDE = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
"""Signals that come from another process or the memory limit, never from an instruction."""


def untested(why: str) -> Judgement:
    """No answer, and why."""
    return Judgement(Verdict.UNTESTED, detail=one_line(why))


def crash_judgement(crash: Crash) -> Judgement:
    """`guard` for a death on a guard page, else `crash` with signal, symbol and instruction."""
    if crash.guard:
        where = f" in {crash.symbol}+{crash.offset:#x}" if crash.symbol else ""
        return Judgement(Verdict.GUARD, detail=f"the kernel left its buffers: {crash.guard}{where}")
    parts = [_cause(crash)]
    if crash.symbol:
        parts.append(f"in {crash.symbol}+{crash.offset:#x}")
    if crash.instruction is not None:
        parts.append(f"(instruction {crash.instruction:#010x})")
    last = [line for line in crash.stderr.splitlines() if line.strip() and not line.startswith(NO_EVIDENCE)]
    if last:
        parts.append(f"- it said: {last[-1].strip()[:300]}")
    return Judgement(Verdict.CRASH, detail=one_line(" ".join(parts)))


def _cause(crash: Crash) -> str:
    number = crash.signal or (crash.returncode - 128 if crash.returncode > 128 else None)
    if number is None:
        return f"exited with code {crash.returncode} before it answered"
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    return name + (": killed from outside, twice; out of memory?" if killed_from_outside(crash) else "")


def killed_from_outside(crash: Crash) -> bool:
    """A death that no kernel causes: a memory limit, somebody's `kill`, or the engine went away.

    Worth one more try. The return code alone decides: a harness that could still speak died of itself.
    """
    return crash.returncode - 128 in OUTSIDE and crash.signal in (None, crash.returncode - 128)


def timeout_judgement(timeout: Timeout) -> Judgement:
    """No answer within the limit; the process was killed."""
    return Judgement(
        Verdict.TIMEOUT, detail=f"no answer within {timeout.seconds:g} s; the process was killed"
    )


def thread_judgement(record: CellRecord, threads: int, reason: str | None) -> CellRecord:
    """The record of a cell whose bytes differ from those of the same problem on another thread count."""
    text = f"the bytes differ from those with {threads} thread{'s' if threads > 1 else ''}"
    if reason is not None:
        return replace(record, detail=f"{text}, as declared", reason=reason)
    return replace(record, verdict=Verdict.FAIL, detail=f"{text}; no reason is declared in thread_dependent")


def digest_of_output(output: NDArray[np.uint8]) -> str:
    """sha256 of the bytes; empty for an operation without output."""
    return hashlib.sha256(output.tobytes()).hexdigest() if output.size else ""


def one_line(text: str) -> str:
    """Newlines and runs of blanks become single blanks: a detail is one line."""
    return " ".join(text.split())
