# SPDX-License-Identifier: MIT
"""The result store: the only writer of results.

A run is a directory: `run.json` (provenance, replaced as a whole), `cells.txt` (the ids that were asked for,
one a line) and `results.jsonl` (one record a line, append-only). Any number of processes may append at once.
A later record of a cell supersedes an earlier one: that is how a resumed run answers what was untested.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tierlab.errors import StoreError, UsageError
from tierlab.run.appendlog import AppendLog, explained, replace_file
from tierlab.run.record import CellRecord, RunInfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType

RUN, RESULTS, CELLS, LATEST = "run.json", "results.jsonl", "cells.txt", "latest"
CANARIES = "canaries.jsonl"
"""Records of excluded cells that were tried; they count nowhere."""

SYNC_SECONDS = 5.0
"""Records reach the disk at least this often while they flow, and at close. A crash of the machine costs at
most that much work, which a resume repeats; a crash of the lab costs nothing (the kernel holds the data)."""


def now() -> str:
    """The current time as RunInfo states it: ISO 8601, UTC, whole seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def create_run_dir(reports: Path) -> Path:
    """Make a new, empty run directory under `reports`; its name is the run's id.

    The name starts with the time (so that names sort) and ends at random; the directory is made
    exclusively, so two runs that start at once in one checkout never share one. Raises StoreError, and
    UsageError where a file stands in the way or the name is not UTF-8.
    """
    if not is_text(reports):
        msg = f"{reports} is not UTF-8, which the worker processes need; nothing was run. Name another folder"
        raise UsageError(msg)
    try:
        reports.mkdir(parents=True, exist_ok=True)
        while True:
            path = reports / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
            with suppress(FileExistsError):
                path.mkdir()
                return path
    except (FileExistsError, NotADirectoryError) as error:
        msg = f"{reports} is (or is below) a file, so it can hold no report; nothing was run. Name a folder"
        raise UsageError(msg) from error
    except OSError as error:
        msg = (
            f"no run can be kept in {reports} ({error.strerror}); nothing was run. Make room or correct the "
            "permissions there, or name another folder (--reports)"
        )
        raise StoreError(msg) from error


def is_text(path: Path) -> bool:
    """Whether the path is valid UTF-8 (names on disk may be any bytes)."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def mark_latest(run_dir: Path) -> None:
    """Point `latest` beside the run directory at it, in one step (the last of two runs at once wins).

    A real file or directory of that name is the user's and stays.
    """
    link = run_dir.parent / LATEST
    draft = run_dir.parent / f".{LATEST}-{run_dir.name}"
    if link.exists() and not link.is_symlink():
        return
    with explained(link, "write"):
        draft.symlink_to(run_dir.name)
        draft.replace(link)


class Store:
    """Writes one run's results; each process opens its own on the same directory."""

    def __init__(self, run_dir: Path, name: str = RESULTS) -> None:
        self.run_dir = run_dir
        self._log = AppendLog(run_dir / name)
        self._synced = time.monotonic()

    @classmethod
    def create(cls, reports: Path) -> Store:
        """A store in a new run directory; its `run_id` is the directory's name."""
        return cls(create_run_dir(reports))

    @property
    def run_id(self) -> str:
        return self.run_dir.name

    def append(self, record: CellRecord) -> None:
        """Store one record: one write. Raises StoreError if it is not stored; the rest is intact."""
        self.append_many((record,))

    def append_many(self, records: Iterable[CellRecord]) -> None:
        """Store several records in one write: all or none."""
        lines = b"".join(record.to_line() for record in records)
        if not lines:
            return
        self._log.append(lines)
        if time.monotonic() - self._synced > SYNC_SECONDS:
            self.sync()

    def sync(self) -> None:
        self._log.sync()
        self._synced = time.monotonic()

    def close(self) -> None:
        try:
            self._log.sync()
        finally:
            self._log.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def write_run_info(self, info: RunInfo) -> None:
        write_run_info(self.run_dir, info)

    def write_cells(self, ids: Iterable[str]) -> None:
        """Note which cells were asked for, so that those without an answer can be named (`untested`)."""
        replace_file(self.run_dir / CELLS, (f"{cell}\n".encode() for cell in ids))


def write_run_info(run_dir: Path, info: RunInfo) -> None:
    """Replace `run.json` as a whole. Raises StoreError."""
    text = json.dumps(info.to_json(), indent=1, ensure_ascii=False, allow_nan=False)
    replace_file(run_dir / RUN, (text.encode("utf-8", "backslashreplace"), b"\n"))


def read_run_info(run_dir: Path) -> RunInfo:
    """The provenance of a run. Raises StoreError if it is missing or damaged."""
    path = run_dir / RUN
    data = _read(path, "It is no run directory; runs lie under `reports/`.")
    try:
        value = json.loads(data)
    except ValueError as error:
        msg = f"{path}: not valid JSON ({error}); the run cannot be reported. Run it again."
        raise StoreError(msg) from error
    return RunInfo.from_json(value, str(path))


def read_cells(run_dir: Path) -> list[str]:
    """The ids that were asked for; empty if nobody noted them."""
    path = run_dir / CELLS
    if not path.exists():
        return []
    return _read(path, "").decode("utf-8").splitlines()


def iter_records(run_dir: Path, torn: list[str] | None = None, name: str = RESULTS) -> Iterator[CellRecord]:
    """Every record in the order of writing, superseded ones too.

    A line cut short by a crash is left out (its cell counts as unanswered) and its place noted in `torn`.
    A complete line that is no record raises StoreError: that is another version, or damage.
    """
    path = run_dir / name
    if not path.exists():
        return
    with explained(path, "read"), path.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            where = f"{path}:{number}"
            if not line.strip():
                continue
            try:
                yield CellRecord.from_line(line, where)
            except ValueError:
                if torn is not None:
                    torn.append(where)


def read_records(run_dir: Path, torn: list[str] | None = None) -> dict[str, CellRecord]:
    """Cell id → its last record, in the order of first appearance."""
    return {record.cell: record for record in iter_records(run_dir, torn)}


def answered(run_dir: Path) -> set[str]:
    """Cells that a resumed run need not repeat: those with a record that determines something."""
    return {cell for cell, record in read_records(run_dir).items() if not record.undetermined}


def _read(path: Path, hint: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        msg = f"cannot read {path}: {error.strerror}. {hint}".rstrip()
        raise StoreError(msg) from error


def find_run(reports: Path, name: str = LATEST) -> Path:
    """The run directory called `name` (an id, or `latest`). Raises StoreError listing what there is."""
    path = reports / name
    if (path / RUN).exists():
        return Path(os.path.realpath(path))
    known = sorted((entry.parent.name for entry in reports.glob(f"2*/{RUN}")), reverse=True)[:5]
    have = f"The newest runs are {', '.join(known)}." if known else "`invoke matrix` makes the first one."
    msg = f"no run {name!r} in {reports}. {have}"
    raise StoreError(msg)
