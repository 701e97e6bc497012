# SPDX-License-Identifier: MIT
"""Did the expected kernel run? Patterns of symbols against the counts of a receipt."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ALIAS_SEPARATOR = "|"
"""Between the names of one address in a counted name."""

SOURCE_SEPARATOR = "@"
"""Before the source file, where several functions share a name."""

_STATIC = re.compile(r"_ZL([1-9][0-9]*)")


def plain_names(counted: str) -> tuple[str, ...]:
    """The function names behind a counted name, as the source has them.

    Aliases are split, what compiler and counters append is cut off (`f.constprop.0@a.c|g` → `f`, `g`), and a
    C++ function that is static and in no namespace has its name back (`_ZL4gemmiPf` → `gemm`).
    """
    names = counted.split(ALIAS_SEPARATOR)
    return tuple(_unmangled(name.partition(SOURCE_SEPARATOR)[0].partition(".")[0]) for name in names)


def _unmangled(name: str) -> str:
    """Itanium C++ ABI, 5.1.2: `_Z`, `L` for internal linkage, the name's length, the name, the parameters."""
    found = _STATIC.match(name)
    if found is None:
        return name
    start, length = found.end(), int(found[1])
    return name[start : start + length] if start + length <= len(name) else name


def matches(patterns: Iterable[str], counted: str) -> bool:
    """Whether a counted name is one of the expected kernels (shell patterns, case matters)."""
    names = plain_names(counted)
    return any(fnmatchcase(name, pattern) for pattern in patterns for name in names)


def ran_expected(patterns: Iterable[str], ran: Mapping[str, int]) -> int:
    """Number of calls of the expected kernels; 0 means that the cell is vacuous."""
    wanted = tuple(patterns)
    return sum(calls for name, calls in ran.items() if matches(wanted, name))


def uncountable(patterns: Iterable[str], countable: Iterable[str]) -> tuple[str, ...]:
    """The patterns that no countable symbol matches: a 0 for them says nothing.

    `countable` are the symbols under counting: those of the build, less those that the harness refused.
    """
    names = tuple(countable)
    return tuple(pattern for pattern in patterns if not any(matches((pattern,), name) for name in names))
