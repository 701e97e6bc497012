# SPDX-License-Identifier: MIT
"""Selectors of exclusions and declared verdicts: globs on axes, resolved once against known values."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from tierlab.cells.matrix import Selector
from tierlab.cells.positions import nearest
from tierlab.cells.schema import ACTIVATION_DISTRIBUTIONS, WEIGHT_DISTRIBUTIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tierlab.cells.matrix import Matrix
    from tierlab.cells.positions import Document, Keys


def axis_values(matrix: Matrix) -> dict[str, tuple[str, ...]]:
    """Every value that an axis can have, in the order of the file; `threads` as text."""
    rows = [row for preset in matrix.presets.values() for row in preset.rows]
    shapes: dict[str, None] = {}
    for row in rows:
        for shape in row.shapes:
            for name in row.types:
                shapes[shape.of(block_of(matrix, name)).id] = None
    return {
        "suites": tuple(matrix.suites),
        "types": tuple(dict.fromkeys((*matrix.types, *matrix.codes))),
        "activation_types": tuple(dict.fromkeys(name for row in rows for name in row.activation_types)),
        "shapes": tuple(shapes),
        "weights": WEIGHT_DISTRIBUTIONS,
        "activations": ACTIVATION_DISTRIBUTIONS,
        "paths": tuple(matrix.paths),
        "threads": tuple(dict.fromkeys(str(count) for row in rows for count in row.threads)),
        "builds": tuple(matrix.builds),
        "profiles": tuple(matrix.profiles),
        "variants": tuple(variant.name for variant in matrix.variants),
    }


def block_of(matrix: Matrix, name: str) -> int:
    """Elements in a block of a weight type or a code type."""
    return matrix.types[name].block if name in matrix.types else matrix.codes[name].block


def resolve(patterns: Iterable[str], known: Iterable[str]) -> tuple[list[str], str | None]:
    """The known values that the globs name, in the order of `known`, and the first glob without any."""
    names = list(known)
    wanted: set[str] = set()
    for pattern in patterns:
        found = {name for name in names if fnmatchcase(name, pattern)}
        if not found:
            return [], pattern
        wanted |= found
    return [name for name in names if name in wanted], None


def load_selector(
    document: Document, where: Keys, entry: dict[str, Any], values: Mapping[str, tuple[str, ...]]
) -> Selector:
    """The selector in `entry`, over `axis_values`.

    Raises ConfigError for a glob that names nothing and for no glob at all.
    """
    axes: dict[str, frozenset[str] | frozenset[int]] = {}
    for axis, known in values.items():
        if axis not in entry:
            continue
        found, bad = resolve([str(word) for word in entry[axis]], known)
        if bad is not None:
            index = [str(word) for word in entry[axis]].index(bad)
            msg = f"{bad!r} matches no value of {axis}; {nearest(bad, known)}"
            raise document.error((*where, axis, index), msg)
        axes[axis] = frozenset(int(name) for name in found) if axis == "threads" else frozenset(found)
    features = frozenset(entry.get("features", ()))
    if not axes and not features:
        msg = "names no axis, so it would hold for every cell; add types, paths, profiles, …"
        raise document.error(where, f"an entry of {where[0]} {msg}")
    return Selector(axes, features, document.place(where).line)
