# SPDX-License-Identifier: MIT
"""The ledger file: every run appends its lines, nothing is ever rewritten.

One JSON object a line: `{"run": …}` with the provenance, then one `{"row": …}` for each of its rows, all in
one write. A line that a crash cut short is passed over and named; a run without all of its rows is no run.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tierlab.errors import StoreError, UsageError
from tierlab.run.appendlog import AppendLog, explained
from tierlab.run.decode import decode, encode
from tierlab.run.ledger_rows import SCHEMA, Ledger, LedgerRun, Row

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LEDGER = "ledger.jsonl"
LATEST = "latest"


def append(path: Path, ledger: Ledger) -> None:
    """Append a run: all of its lines or none. Raises StoreError."""
    values = [{"run": encode(ledger.run)}, *({"row": encode(row)} for row in ledger.rows)]
    lines = b"".join(_line(value) for value in values)
    log = AppendLog(path)
    try:
        log.append(lines)
        log.sync()
    finally:
        log.close()


def read(path: Path, torn: list[str] | None = None) -> dict[str, Ledger]:
    """Run id → run with its rows, in the order of writing.

    A torn line is left out and its place noted in `torn`, as is the run that misses it. A whole line of
    another version raises StoreError.
    """
    if torn is None:
        torn = []
    runs: dict[str, LedgerRun] = {}
    rows: dict[str, list[Row]] = {}
    for where, value in _values(path, torn):
        if "run" in value:
            run = _run(value["run"], where)
            runs[run.run], rows[run.run] = run, []
        elif "row" in value:
            row = decode(Row, value["row"], where)
            rows.setdefault(row.run, []).append(row)
    whole = {}
    for name, run in runs.items():
        if len(rows[name]) == run.rows:
            whole[name] = Ledger(run, tuple(rows[name]))
        else:
            torn.append(f"run {name}: {len(rows[name])} of {run.rows} rows")
    return whole


def find(path: Path, word: str, known: dict[str, Ledger]) -> Ledger:
    """The run of that id, or its only beginning; `latest` is the last. UsageError names what there is."""
    names = list(known)
    if word == LATEST and names:
        return known[names[-1]]
    hits = [name for name in names if name == word] or [name for name in names if name.startswith(word)]
    if len(hits) == 1:
        return known[hits[0]]
    newest = ", ".join(reversed(names[-5:])) or "none"
    fact = "names several runs" if hits else "names no run"
    msg = f"{word!r} {fact} of {path}; nothing was compared. The newest are: {newest}"
    raise UsageError(msg)


def _line(value: dict[str, Any]) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8", "backslashreplace") + b"\n"


def _run(value: object, where: str) -> LedgerRun:
    found = value.get("schema") if isinstance(value, dict) else None
    if found != SCHEMA:
        msg = f"{where}: schema {found!r}, this tierlab reads {SCHEMA}. Use the version that wrote it."
        raise StoreError(msg)
    return decode(LedgerRun, value, where)


def _values(path: Path, torn: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    if not path.exists():
        msg = f"there is no ledger at {path}; nothing was compared. `invoke ledger` writes the first run"
        raise UsageError(msg)
    with explained(path, "read"), path.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            where = f"{path}:{number}"
            if not line.strip():
                continue
            try:
                value = json.loads(line)
            except ValueError:
                torn.append(where)
                continue
            if not isinstance(value, dict) or not {"run", "row"} & value.keys():
                msg = f"{where}: neither a run nor a row; it was written by another version of tierlab."
                raise StoreError(msg)
            yield where, value
