# SPDX-License-Identifier: MIT
"""Which builds of a run are held against each other, and what may differ between them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from tierlab.cells.builds import PATCHED, family, parse_build, patches_in, prefix_name
from tierlab.cells.positions import nearest
from tierlab.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tierlab.cells.matrix import Matrix
    from tierlab.toolchain.diff import Patch

STOCK = "stock"


@dataclass(frozen=True)
class Step:
    """Two builds: `patches` are in `after` and not in `before`; they may change results of `touches`.

    With `declared` every other type is a control: its results must be the same in both. Nobody has declared
    what another tree (a user's, a published one) or another way of building may change.
    """

    before: str
    after: str
    patches: tuple[str, ...] = ()
    touches: tuple[str, ...] = ()
    declared: bool = True


def steps_of(builds: Iterable[str], series: Sequence[Patch]) -> tuple[Step, ...]:
    """Each build against the one before it; with more than two, the last against the first as well.

    Raises UsageError for fewer than two.
    """
    names = tuple(dict.fromkeys(builds))
    if len(names) < 2:
        have = names[0] if names else "none"
        msg = (
            f"--compare holds builds against each other, and {have} is the only one selected; nothing was "
            "run. Name two or more, like --build stock,patched"
        )
        raise UsageError(msg)
    pairs = list(pairwise(names))
    if len(names) > 2:
        pairs.append((names[0], names[-1]))
    return tuple(_step(before, after, series) for before, after in pairs)


def _step(before: str, after: str, series: Sequence[Patch]) -> Step:
    if not _differ_by_patches(before, after):
        return Step(before, after, declared=False)
    first, last = sorted(int(min(patches_in(name), len(series))) for name in (before, after))
    between = series[first:last]
    touches = tuple(dict.fromkeys(name for patch in between for name in patch.touches))
    return Step(before, after, tuple(patch.name for patch in between), touches)


def _differ_by_patches(before: str, after: str) -> bool:
    """Whether both are the pinned tree with patches of the series, built in the same way."""
    trees = {family(name) for name in (before, after)}
    ways = {replace(parse_build(name), tree="") for name in (before, after)}
    return trees <= {STOCK, PATCHED} and len(ways) == 1


def each_patch(series: Sequence[Patch]) -> tuple[str, ...]:
    """The builds that add the series patch by patch: `stock` … `patched`. UsageError without a patch."""
    if not series:
        msg = (
            "the patch series is empty, so there is no patch to add; nothing was run. "
            "Name patches in kernels/llama.cpp/patches/series, or use --compare"
        )
        raise UsageError(msg)
    return (STOCK, *(prefix_name(count) for count in range(1, len(series))), PATCHED)


def check_touches(series: Iterable[Patch], matrix: Matrix) -> None:
    """Raise ConfigError for a type that a patch may change and that the matrix does not know."""
    known = (*matrix.types, *matrix.codes)
    for patch in series:
        for name in patch.touches:
            if name not in known:
                msg = (
                    f"kernels/llama.cpp/patches/series: {patch.name} may change {name!r}, which is no type "
                    f"of {matrix.path.name}; nothing was run; {nearest(name, known)}"
                )
                raise ConfigError(msg)
