# SPDX-License-Identifier: MIT
"""Which extension of the architecture an A64 instruction word needs, for whole code sections at once.

Classes: `neon` (Advanced SIMD that needs nothing more), `fp16` (half-precision arithmetic, FMLAL included),
`dotprod`, `i8mm`, `bf16`, `sve`, `sve2`, `sme`, `sme2`. An instruction counts in the class of the newest
extension that it needs; SVE forms of I8MM and BF16 need two that are independent and count in both. Plain
scalar floating point, loads of single registers and cryptography are in no class. Encodings that SVE2.1
shares with SME or SME2 count there: the groups' names say so. What needs an extension that is not
in this list (FP8, structures of quadwords) counts in the widest class of its space: neon, sve, sme2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tierlab.dispatch.instruction_groups import SPACES

if TYPE_CHECKING:
    from numpy.typing import NDArray

CLASSES = ("neon", "fp16", "dotprod", "i8mm", "bf16", "sve", "sve2", "sme", "sme2")
"""In the order of the tiers; column c of every table of counts is CLASSES[c]."""

NO_GROUP = 0
"""Group number of every word that belongs to none."""


@dataclass(frozen=True)
class Group:
    """Words w with `w & mask == value`; `classes` may be empty: told apart so that nobody else claims it."""

    name: str
    mask: int
    value: int
    classes: tuple[str, ...]


@dataclass(frozen=True)
class Space:
    """A top-level part of the A64 encoding and the numbers of its groups, the widest first."""

    name: str
    mask: int
    value: int
    groups: tuple[int, ...]


def _parse() -> tuple[tuple[Group, ...], tuple[Space, ...]]:
    groups, spaces = [Group("", 0, 0, ())], []
    for name, mask, value, lines in SPACES:
        first = len(groups)
        for line in lines.strip().splitlines():
            classes, fixed, bits, title = line.split(maxsplit=3)
            members = () if classes == "-" else tuple(classes.split(","))
            groups.append(Group(title, int(fixed, 16), int(bits, 16), members))
        spaces.append(Space(name, mask, value, tuple(range(first, len(groups)))))
    return tuple(groups), tuple(spaces)


GROUPS, _SPACES = _parse()

MEMBERSHIP: NDArray[np.bool_] = np.array([[name in group.classes for name in CLASSES] for group in GROUPS])
"""bool[group, class]."""


def group_numbers(words: NDArray[np.uint32]) -> NDArray[np.uint8]:
    """The group (index into GROUPS) of each A64 instruction word; NO_GROUP for those without one."""
    words = np.ascontiguousarray(words, np.uint32)
    found = np.zeros(words.shape, np.uint8)
    for space in _SPACES:
        where = np.flatnonzero((words & np.uint32(space.mask)) == np.uint32(space.value))
        if where.size:
            found[where] = _in_space(words[where], space)
    return found


def _in_space(words: NDArray[np.uint32], space: Space) -> NDArray[np.uint8]:
    found = np.zeros(words.shape, np.uint8)
    masked = np.empty_like(words)
    hit = np.empty(words.shape, np.bool_)
    for number in space.groups:
        np.bitwise_and(words, np.uint32(GROUPS[number].mask), out=masked)
        np.equal(masked, np.uint32(GROUPS[number].value), out=hit)
        found[hit] = number
    return found


def class_counts(words: NDArray[np.uint32]) -> dict[str, int]:
    """Instructions of each class in a run of A64 words; every class is there, with 0 if need be."""
    by_group = np.bincount(group_numbers(words), minlength=len(GROUPS))
    return dict(zip(CLASSES, (by_group @ MEMBERSHIP).tolist(), strict=True))


def classes_of(word: int) -> tuple[str, ...]:
    """The classes of one instruction word, for messages and tests."""
    return GROUPS[int(group_numbers(np.array([word], np.uint32))[0])].classes
