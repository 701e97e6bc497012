# SPDX-License-Identifier: MIT
"""Names of builds: those of `matrix.yaml`, and `patched-N`, which has the first N patches of the series."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

PATCHED = "patched"
_PREFIX = re.compile(rf"{PATCHED}-([1-9][0-9]{{0,2}})")


def prefix_name(count: int) -> str:
    """The build with the first `count` patches: 2 → `patched-2`."""
    return f"{PATCHED}-{count}"


def prefix_length(name: str) -> int | None:
    """How many patches of the series a numbered build has: `patched-2` → 2; None for any other name."""
    found = _PREFIX.fullmatch(name)
    return int(found[1]) if found else None


def patches_in(name: str) -> float:
    """Patches of the series in a build: all of them (infinity) in `patched`, none in `stock` and `user`."""
    if name == PATCHED:
        return math.inf
    return prefix_length(name) or 0


def family(name: str) -> str:
    """The name that `matrix.yaml` has for a build: `patched-2` → `patched`."""
    return PATCHED if prefix_length(name) is not None else name


def is_known(name: str, known: Iterable[str]) -> bool:
    """Whether a build can be asked for, where `matrix.yaml` has the names `known`."""
    return family(name) in known


def order(name: str, known: Iterable[str]) -> tuple[int, float]:
    """Sort key: as in `matrix.yaml`, and fewer patches first."""
    return list(known).index(family(name)), patches_in(name)
