# SPDX-License-Identifier: MIT
"""Words of `invoke ledger` → what is asked. Whatever is wrong here is wrong use: exit 3."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tierlab.cli.claims import chosen
from tierlab.cli.options import build_wish, whole_number
from tierlab.errors import UsageError
from tierlab.run.survey import BUILD
from tierlab.run.survey_ledger import Ask
from tierlab.run.workbench import ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tierlab.cells.matrix import Matrix

    Words = Iterable[str] | None

PROFILES = (
    *("cortex-a53", "neoverse-n1", "neoverse-v1", "neoverse-n2", "sve2-512"),
    *("sme1-svl512", "sme2-svl512", "sme2-nosve"),
)
TYPES = ("q4_0", "q8_0", "f16", "f32", "q4_k", "iq4_nl", "iq4_xs", "mxfp4")
THREADS, COLUMNS = (1, 2, 8), (1, 4, 127, 128)
"""What is asked where nothing is said: every rule of dispatch, in a few minutes."""

ALL_THREADS, ALL_COLUMNS = (1, 2, 4, 8, 16), (1, 4, 127, 128, 400)
"""With --full, on every profile and for every type."""

ROWS, K = 256, 256
"""Weights: so many rows that two slots both get chunks, and one super-block of the K types in each row."""

NARROW = (128, 16)
"""One more shape (columns, rows) of every default: too few rows to be split by many threads."""

MOST_THREADS, MOST_COLUMNS, MOST_ROWS = 64, 4096, 4096

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class LedgerWords:
    """The task's words, unchecked; tuples may hold comma-separated words."""

    profile: tuple[str, ...] = ()
    type: tuple[str, ...] = ()
    threads: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    rows: str = ""
    repeat: str = ""
    full: bool = False
    build: str = ""
    llama_cpp: str = ""
    sdist: str = ""
    rules: str = ""
    docs: str = ""
    diff: tuple[str, ...] = ()

    def builds(self, known: Iterable[str]) -> tuple[str, ...]:
        """The builds to ask; the pinned tree where nothing is said. UsageError for unknown ones."""
        return build_wish(self.build, self.llama_cpp, self.sdist, ()).builds(known, (BUILD,))


def ledger_words(
    profile: Words,
    type: Words,
    threads: Words,
    columns: Words,
    path: Words,
    env: Words,
    diff: Words,
    *single: Any,
) -> LedgerWords:
    """Collect the task's options; commas separate values, but in `env` they belong to the value."""
    lists = (split(profile), split(type), split(threads), split(columns), split(path), tuple(env or ()))
    names = ("rows", "repeat", "full", "build", "llama_cpp", "sdist", "rules", "docs")
    return LedgerWords(*lists, diff=split(diff), **dict(zip(names, single, strict=True)))


def ask_of(words: LedgerWords, matrix: Matrix) -> Ask:
    """Which rows. Raises UsageError for unknown names and numbers that cannot be."""
    profiles = words.profile or (() if words.full else tuple(p for p in PROFILES if p in matrix.profiles))
    kinds = words.type or (() if words.full else tuple(t for t in TYPES if t in matrix.types))
    threads = _numbers("threads", words.threads, MOST_THREADS) or (ALL_THREADS if words.full else THREADS)
    columns = _numbers("columns", words.columns, MOST_COLUMNS)
    rows = whole_number("rows", words.rows, 1, ROWS) or ROWS
    _at_most("rows", rows, MOST_ROWS)
    shapes = [(each, rows) for each in columns or (ALL_COLUMNS if words.full else COLUMNS)]
    if not columns and not words.rows:
        shapes.append(NARROW)
    return Ask(
        profiles=chosen("profile", profiles, matrix.profiles),
        kinds=chosen("type", kinds, matrix.types),
        threads=threads,
        shapes=tuple(shapes),
        k=K,
        paths=chosen("path", words.path, matrix.paths) if words.path else (),
        repeat=whole_number("repeat", words.repeat, 1, 1) or 1,
    )


def environment_of(words: Iterable[str]) -> Mapping[str, str]:
    """`NAME=VALUE` words as a mapping. The lab's own variables are not for setting."""
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not _NAME.fullmatch(name) or "\0" in value:
            msg = f"--env {word!r} is not of the form NAME=VALUE; nothing was run. Write GGML_KLEIDIAI_SME=2"
            raise UsageError(msg)
        if name in ENVIRONMENT:
            msg = f"--env {name} is set by the lab itself; nothing was run. Leave it out"
            raise UsageError(msg)
        found[name] = value
    return found


def split(values: Iterable[str] | None) -> tuple[str, ...]:
    """Words of a repeatable option, commas apart."""
    return tuple(part.strip() for value in values or () for part in value.split(",") if part.strip())


def _numbers(name: str, words: Iterable[str], most: int) -> tuple[int, ...]:
    found = []
    for word in words:
        number = whole_number(name, word, 1, None)
        if number is not None:
            _at_most(name, number, most)
            found.append(number)
    return tuple(sorted(set(found)))


def _at_most(name: str, number: int, most: int) -> None:
    if number > most:
        msg = f"--{name} {number} is more than {most}; nothing was run. Give a smaller number"
        raise UsageError(msg)
