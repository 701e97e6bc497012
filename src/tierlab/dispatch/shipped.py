# SPDX-License-Identifier: MIT
"""The shared libraries of a ggml that others ship, taken out of packages, wheels and archives.

What a stranger's archive calls its members is looked at and never used as a path: each library is kept under
the name that the loader will ask for (its soname, or a plain file name for a loadable backend).
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tierlab.dispatch.elf_reader import SHT_SYMTAB, DamagedError, Window, read_elf
from tierlab.dispatch.scan_archives import BETWEEN, Walker
from tierlab.dispatch.scan_binary import returned_string, soname
from tierlab.dispatch.scan_streams import Budget, LimitError
from tierlab.dispatch.scan_symbols import addresses_of
from tierlab.errors import SourceError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tierlab.dispatch.elf_reader import Elf

BASE, FRONT, CPU = "libggml-base", "libggml", "libggml-cpu"
_LIBRARY = re.compile(r"(libggml(?:-base|-cpu[A-Za-z0-9_.+-]*?)?)\.so(?:\.[0-9.]+)?")
MOST_LIBRARY = 512 << 20
"""Bytes of one library; more is refused."""


@dataclass(frozen=True)
class Library:
    """One library: `stem` (`libggml-cpu-armv8.2_1`), the name it is loaded by, the hash of its bytes.

    `loadable` says that it is a backend which ggml finds at run time; `version` is ggml's own word, empty if
    the library does not tell it; `named` whether it still has its `.symtab`.
    """

    stem: str
    name: str
    sha256: str
    size: int
    loadable: bool
    version: str
    named: bool
    origin: str


@dataclass
class Shipped:
    """The libraries that were found, by stem, and those of other machines by machine."""

    libraries: dict[str, Library] = field(default_factory=dict)
    others: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def backends(self) -> list[Library]:
        """The CPU backends."""
        return [library for stem, library in sorted(self.libraries.items()) if stem.startswith(CPU)]

    @property
    def loadable(self) -> bool:
        """Whether backends are found at run time, not linked."""
        return bool(self.backends) and all(library.loadable for library in self.backends)

    @property
    def version(self) -> str:
        """ggml's version as the base library tells it; empty if it does not."""
        return self.libraries[BASE].version if BASE in self.libraries else ""


def collect(paths: Iterable[Path], target: Path) -> Shipped:
    """Copy every AArch64 `libggml*.so` of the files (or, for a folder, of the files in it) into `target`.

    UsageError for what is no file, SourceError if the parts of a working ggml are not there, or twice with
    different bytes.
    """
    found = Shipped()
    for path in paths:
        for file in _files(path):
            _collect(file, target, found)
    _complete(found)
    return found


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(entry for entry in path.iterdir() if entry.is_file() and not entry.is_symlink())
    if not path.is_file():
        msg = f"{path}: no such file or folder; nothing was run. Name packages, libraries or a folder of them"
        raise UsageError(msg)
    return [path]


def _collect(file: Path, target: Path, found: Shipped) -> None:
    budget = Budget()
    budget.file_size = file.stat().st_size

    def keep(member: str, window: Window) -> None:
        _keep(f"{file.name}{BETWEEN}{member}" if member else file.name, window, target, found)

    try:
        with file.open("rb") as stream:
            walker = Walker(keep, lambda *_: None, budget, found.problems, found.others)
            walker.visit("", Window(stream, 0, budget.file_size))
    except (DamagedError, LimitError) as problem:
        msg = f"{file}: {problem}; nothing was run"
        raise SourceError(msg) from problem
    except OSError as problem:
        msg = f"{file}: it cannot be read ({problem.strerror}); nothing was run"
        raise UsageError(msg) from problem


def _keep(place: str, window: Window, target: Path, found: Shipped) -> None:
    shown = re.split(rf"{re.escape(BETWEEN)}|/", place)[-1]
    matched = _LIBRARY.fullmatch(shown)
    if matched is None:
        return
    if window.size > MOST_LIBRARY:
        msg = f"{place}: {window.size:,} bytes are too many for a library of ggml; nothing was run"
        raise SourceError(msg)
    data = window.read(0, window.size)
    stem, elf = matched.group(1), read_elf(window)
    asked = soname(elf) or shown
    library = Library(
        stem=stem,
        # A stranger's text becomes a file name only if it looks like one of these.
        name=asked if _LIBRARY.fullmatch(asked) else f"{stem}.so",
        sha256=hashlib.sha256(data).hexdigest(),
        size=len(data),
        loadable=stem.startswith(CPU) and any(addresses_of(elf, "ggml_backend_init")),
        version=returned_string(elf, "ggml_version"),
        named=_has_symtab(elf),
        origin=place,
    )
    known = found.libraries.get(stem)
    if known is not None and known.sha256 != library.sha256:
        msg = (
            f"{stem} is there twice with different bytes ({known.origin}; {place}), and a process can load "
            "only one. Give one package at a time"
        )
        raise SourceError(msg)
    found.libraries[stem] = library
    (target / library.name).write_bytes(data)


def _has_symtab(elf: Elf) -> bool:
    return elf.section_of(SHT_SYMTAB) is not None


def _complete(found: Shipped) -> None:
    missing = [name for name in (BASE, FRONT) if name not in found.libraries]
    if found.libraries and not missing and found.backends:
        return
    if not found.libraries:
        others = ", ".join(f"{count} of {machine}" for machine, count in sorted(found.others.items()))
        what = "no shared library of ggml for AArch64 is in it" + (
            f" (ELF files: {others})" if others else ""
        )
    else:
        what = f"{' and '.join(missing) or 'a CPU backend (libggml-cpu…)'} is not in it"
    problem = f" ({found.problems[0]})" if found.problems else ""
    msg = (
        f"{what}{problem}; there is nothing to run. Give every package that belongs to it (invoke scan shows "
        "what a file holds)"
    )
    raise SourceError(msg)
