# SPDX-License-Identifier: MIT
"""Verdicts kept by content: a cell whose every input is unchanged is not executed again.

One file a lane under `<cache>/verdicts/`, named by the hash of everything that the lane's verdicts depend on.
The first line holds the parts of the key in clear, the others are records, each behind its checksum.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import zlib
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from tierlab.errors import StoreError
from tierlab.judge.verdict import Verdict
from tierlab.run.appendlog import AppendLog
from tierlab.run.record import SCHEMA, CellRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

REUSABLE = frozenset(
    {Verdict.PASS, Verdict.FAIL, Verdict.VACUOUS, Verdict.DRIFT, Verdict.GUARD, Verdict.ABI, Verdict.CRASH},
)
"""Verdicts that follow from the inputs alone. The others may come from the circumstances (a hang from a busy
machine, untested and unbuildable from infrastructure), so their cells run again. So does a crash by a signal
from outside (SIGKILL): the lane does not give it to the cache."""

_log = logging.getLogger(__name__)


def lane_hash(parts: Mapping[str, str]) -> str:
    """The key of a lane: sha256 over its named parts, whatever their order.

    The parts must name everything a verdict depends on: build and harness digests, emulator identity,
    profile definition, judge version, seed … What only labels the record (`expected`, `reason`) stays out.
    """
    text = json.dumps({"schema": str(SCHEMA), **parts}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _sealed(line: bytes) -> bytes:
    """The line behind its checksum: one flipped bit may leave a record that reads well and is wrong."""
    return b"%08x %b" % (zlib.crc32(line.rstrip(b"\n")), line)


def _unsealed(line: bytes) -> bytes | None:
    """The line if it is whole, else None."""
    record = line[9:]
    return record if record and line[:9] == b"%08x " % zlib.crc32(record) else None


class VerdictCache:
    """The verdicts under `root` (`cache_root() / "verdicts"`); safe for several processes at once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._open: dict[Path, AppendLog] = {}

    def close(self) -> None:
        """Close the lanes that were written."""
        while self._open:
            self._open.popitem()[1].close()

    def path(self, parts: Mapping[str, str]) -> Path:
        return self.root / f"{lane_hash(parts)}.jsonl"

    def load(self, parts: Mapping[str, str]) -> dict[str, CellRecord]:
        """Cell id → its record, marked `cached` and with no cost, for a lane with this key.

        `expected` and `reason` are those of the run that stored it: set the current declaration with
        `record.expecting(...)`. A damaged line, or a file of another version, is a miss and no error.
        """
        path = self.path(parts)
        try:
            lines = path.read_bytes().split(b"\n")
        except OSError:
            return {}
        with suppress(OSError):  # somebody else's cache may be readable only
            os.utime(path)  # prune() takes the least recently used first
        found: dict[str, CellRecord] = {}
        for line in lines:
            whole = _unsealed(line)
            if whole is None:
                continue
            try:
                record = CellRecord.from_line(whole, str(path))
            except (ValueError, StoreError):
                continue
            found[record.cell] = replace(record, cached=True, wall_ms=0.0, kernel_ms=0.0)
        return found

    def store(self, parts: Mapping[str, str], records: Iterable[CellRecord]) -> int:
        """Keep the reusable ones among `records`; returns how many.

        A cache that cannot be written costs time, never a run: the reason is logged and 0 returned.
        """
        lines = [
            _sealed(record.to_line())
            for record in records
            if record.verdict in REUSABLE and not record.cached
        ]
        if not lines:
            return 0
        path = self.path(parts)
        head = b""
        if not path.exists():  # two writers at once may both write it; readers skip it wherever it stands
            head = json.dumps({"key": dict(parts)}, separators=(",", ":")).encode() + b"\n"
        try:
            if path not in self._open:
                self.root.mkdir(parents=True, exist_ok=True)
                self._open[path] = AppendLog(path)
            self._open[path].append(head + b"".join(lines))
        except (OSError, StoreError) as error:
            _log.warning("verdict cache not written, these cells will run again: %s", error)
            return 0
        return len(lines)

    def prune(self, max_bytes: int) -> int:
        """Delete the least recently used lanes until at most `max_bytes` remain; returns the bytes freed.

        A lane that another process appends to at that moment loses cached verdicts, never results.
        """
        entries = []
        for path in self.root.glob("*.jsonl"):
            try:
                entries.append((path.stat().st_mtime_ns, path.stat().st_size, path))
            except FileNotFoundError:
                continue
        excess = sum(size for _, size, _ in entries) - max_bytes
        freed = 0
        for _, size, path in sorted(entries):
            if freed >= excess:
                break
            path.unlink(missing_ok=True)
            freed += size
        return freed
