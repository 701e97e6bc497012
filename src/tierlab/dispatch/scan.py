# SPDX-License-Identifier: MIT
"""L1 of files that others ship: what is compiled in. It says nothing about what runs.

One file of the command line gives one `FileScan` with one verdict and all binaries found in it.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO, cast

from tierlab.dispatch.elf_reader import DamagedError, Window
from tierlab.dispatch.scan_archives import Walker
from tierlab.dispatch.scan_binary import Binary, scan_elf, scan_library
from tierlab.dispatch.scan_streams import Budget, LimitError
from tierlab.errors import ExitCode

if TYPE_CHECKING:
    from pathlib import Path

LAYER = "L1: what is compiled in. Nothing here says what a program selects (L2) or what runs (L3)."


@dataclass
class FileScan:
    """One file's verdict: `exit_code` 0 scanned, 2 not (wholly) determined, 3 no such file."""

    path: str
    size: int = 0
    exit_code: ExitCode = ExitCode.UNDETERMINED
    verdict: str = ""
    binaries: list[Binary] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    others: dict[str, int] = field(default_factory=dict)


def scan_file(path: Path, budget: Budget | None = None) -> FileScan:
    """Scan one file with everything inside of it. Raises nothing that a file can cause."""
    found = FileScan(str(path))
    try:
        # Without blocking: opening a pipe that nobody writes to would wait forever.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return _ended(found, ExitCode.WRONG_USE, "no such file. Check the name")
    except OSError as problem:
        return _ended(found, ExitCode.UNDETERMINED, f"it cannot be opened ({problem.strerror})")
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        os.close(handle)
        kind = "a directory" if stat.S_ISDIR(status.st_mode) else "no regular file"
        return _ended(found, ExitCode.WRONG_USE, f"it is {kind}. Name the files themselves")
    found.size = status.st_size
    budget = budget or Budget()
    budget.file_size = found.size
    with os.fdopen(handle, "rb") as stream:
        try:
            return _scan(found, cast("BinaryIO", stream), budget)
        except OSError as problem:
            return _ended(found, ExitCode.UNDETERMINED, f"it cannot be read ({problem.strerror or problem})")


def _scan(found: FileScan, stream: BinaryIO, budget: Budget) -> FileScan:
    walker = Walker(
        lambda name, window: found.binaries.append(scan_elf(name, window)),
        lambda name, window, members: found.binaries.append(scan_library(name, window, members)),
        budget,
        found.problems,
        found.others,
    )
    try:
        known = walker.visit("", Window(stream, 0, found.size))
    except (LimitError, DamagedError) as problem:
        found.problems.append(str(problem))
        known = True
    if found.problems:
        return _ended(found, ExitCode.UNDETERMINED, _trouble(found))
    if found.binaries:
        return _ended(found, ExitCode.AS_EXPECTED, _count(len(found.binaries)))
    return _ended(found, ExitCode.UNDETERMINED, _nothing(found, known, walker.archives))


def _trouble(found: FileScan) -> str:
    first = found.problems[0]
    more = f" (and {len(found.problems) - 1:,} more)" if len(found.problems) > 1 else ""
    seen = f"{_count(len(found.binaries))}, but " if found.binaries else ""
    return f"{seen}{first}{more}"


def _nothing(found: FileScan, known: bool, archives: int) -> str:
    if not found.size:
        return "it is empty"
    if not known:
        return "it is neither an ELF file nor an archive that is read here"
    if not found.others:
        return "no ELF file is in it"
    kinds = ", ".join(sorted(found.others))
    many = sum(found.others.values())
    if not archives:
        return f"it is an ELF file for {kinds}, not for AArch64"
    return f"no AArch64 code is in it; {many:,} ELF files for {kinds}"


def _count(number: int) -> str:
    return "1 AArch64 binary" if number == 1 else f"{number:,} AArch64 binaries"


def _ended(found: FileScan, code: ExitCode, why: str) -> FileScan:
    found.exit_code = code
    words = {ExitCode.AS_EXPECTED: "scanned", ExitCode.WRONG_USE: "wrong use"}
    found.verdict = f"{words.get(code, 'cannot be determined')}: {why}"
    return found
