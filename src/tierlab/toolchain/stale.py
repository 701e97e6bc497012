# SPDX-License-Identifier: MIT
"""What a build by time stamps cannot see.

Ninja rebuilds what is newer than its output. A file that was replaced by an older one (a copy that kept its
time, a tree that was moved back), or a new header that hides another, is changed and not newer. Contents are
hashed anyway, so such a change is seen here, and the objects are dropped; the compiler cache brings back
those that are still right.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tierlab.toolchain.cache import remove_tree

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tierlab.toolchain.digests import TreeDigest

_FILE = "sources.json"
UNKNOWN_END = 1 << 62
"""For a build that did not come to its end: any change since then counts as not newer."""


@dataclass(frozen=True)
class Remembered:
    """What the objects in a build directory were made from, and when that ended (ns)."""

    ended_ns: int
    files: Mapping[str, Mapping[str, str]]


def remember(place: Path, what: Remembered) -> None:
    """Write it before the compiler starts too, with UNKNOWN_END: a build that breaks off has made objects."""
    (place / _FILE).write_text(json.dumps({"ended_ns": what.ended_ns, "files": what.files}))


def forget_stale(place: Path, roots: Mapping[str, Path], sources: Mapping[str, TreeDigest]) -> None:
    """Drop from `place/build` what time stamps would wrongly keep.

    `roots` and `sources` tell, by the same names, where the sources lie and what they are now.
    """
    build = place / "build"
    if not build.is_dir():
        return
    before = _recall(place)
    if before is None:
        remove_tree(build)
        return
    rules_changed = False
    for name, root in roots.items():
        old, new = before.files.get(name, {}), sources[name].files
        if new.keys() - old.keys():
            remove_tree(build)
            return
        for path in (path for path in new if new[path] != old[path]):
            if (root / path).stat().st_mtime_ns <= before.ended_ns:
                remove_tree(build)
                return
        changed = {path for path in old if new.get(path) != old[path]}
        rules_changed |= any(path.endswith((".cmake", "CMakeLists.txt")) for path in changed)
    if rules_changed:
        # A target that the rules no longer have would leave its library behind, and it would be loaded.
        remove_tree(build / "bin")


def _recall(place: Path) -> Remembered | None:
    try:
        found = json.loads((place / _FILE).read_text())
        return Remembered(int(found["ended_ns"]), found["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
