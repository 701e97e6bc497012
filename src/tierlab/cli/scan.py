# SPDX-License-Identifier: MIT
"""`invoke scan FILE…`: L1 evidence for binaries that others ship."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from invoke import parser as invoke_parser

from tierlab.dispatch.scan import scan_file
from tierlab.dispatch.scan_text import as_json, as_text
from tierlab.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

TASK = "scan"
WITH_VALUE = ("--json", "--file", "-f", "-j")


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
        _write(Path(json_file), json.dumps(as_json(scans), indent=1) + "\n")
    return max(found.exit_code for found in scans)


def _write(path: Path, text: str) -> None:
    """Whole or not at all."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        part.write_text(text, encoding="utf-8", errors="replace")
        part.replace(path)
    except OSError as problem:
        part.unlink(missing_ok=True)
        msg = f"--json {path}: it cannot be written ({problem.strerror}); the scan is printed, not kept"
        raise UsageError(msg) from problem


def install_file_arguments() -> None:
    """Let `invoke scan a b` mean `invoke scan --file a --file b`: Invoke knows no list of plain arguments.

    All that follows `scan` and is no option is a file, so that `scan` is the last task of a command line.
    """
    original = invoke_parser.Parser.parse_argv
    if getattr(original, "takes_files", False):
        return

    def parse_argv(self: invoke_parser.Parser, argv: list[str]) -> Any:
        return original(self, with_file_options(argv) if TASK in self.contexts else argv)

    parse_argv.takes_files = True  # type: ignore[attr-defined]
    # Seen by `install_exit_contract`, whichever of the two comes first.
    parse_argv.keeps_exit_contract = getattr(original, "keeps_exit_contract", False)  # type: ignore[attr-defined]
    invoke_parser.Parser.parse_argv = parse_argv  # type: ignore[method-assign]


def with_file_options(argv: Sequence[str]) -> list[str]:
    """Command-line words with `--file` in front of each plain argument of `scan`."""
    if TASK not in argv:
        return list(argv)
    begin = list(argv).index(TASK) + 1
    words, plain_only, value = list(argv[:begin]), False, False
    for word in argv[begin:]:
        if value or (word.startswith("-") and not plain_only and word != "--"):
            words.append(word)
            value = not value and word in WITH_VALUE
        elif word == "--" and not plain_only:
            plain_only = True
        else:
            words.append(f"--file={word}")
    return words
