# SPDX-License-Identifier: MIT
"""`invoke scan FILE…`: L1 evidence for binaries that others ship."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from tierlab.dispatch.scan import scan_file
from tierlab.dispatch.scan_text import as_json, as_text
from tierlab.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence


def scan(files: Sequence[str], json_file: str) -> ExitCode:
    """Scan every file, print what is found, write `json_file` if one is named; the worst exit code."""
    if not files:
        msg = "scan needs at least one file: invoke scan FILE…"
        raise UsageError(msg)
    if json_file and os.path.realpath(json_file) in {os.path.realpath(file) for file in files}:
        msg = f"--json {json_file} is one of the files to scan and would be overwritten; name another"
        raise UsageError(msg)
    scans = [scan_file(Path(file)) for file in files]
    for line in as_text(scans):
        print(line)
    if json_file:
        write_whole("json", Path(json_file), json.dumps(as_json(scans), indent=1) + "\n")
    return max(found.exit_code for found in scans)


def write_whole(option: str, path: Path, text: str) -> None:
    """Write the file that an option names, whole or not at all; UsageError where that is impossible."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        part.write_text(text, encoding="utf-8", errors="replace")
        part.replace(path)
    except OSError as problem:
        part.unlink(missing_ok=True)
        msg = f"--{option} {path}: it cannot be written ({problem.strerror}); the result is printed, not kept"
        raise UsageError(msg) from problem
