# SPDX-License-Identifier: MIT
"""The patch series: unified diffs, applied strictly and without any tool.

A hunk applies only where every one of its context and removed lines stands, byte for byte; it may stand at
another line than the patch says (the nearest one is taken), because earlier patches move lines. There is no
fuzz: a patch that applies "nearly" would test something that nobody wrote.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierlab.errors import PatchError
from tierlab.toolchain.diff import FileChange, Hunk, Patch, lines_of, parse_patch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

SERIES = "series"
_REMEDY = "nothing was built. Refresh the patch against this tree (docs/patches.md)"


def load_series(directory: Path) -> tuple[Patch, ...]:
    """The patches that `directory/series` names, in order; PatchError names a missing one with its line.

    A line reads `NAME [TYPE …]`: the types whose results the patch may change.
    """
    series = directory / SERIES
    try:
        lines = series.read_text("utf-8", "surrogateescape").splitlines()
    except OSError as error:
        msg = (
            f"{series} cannot be read ({error.strerror}); the build `patched` is undefined. "
            "Restore the file; it may be empty"
        )
        raise PatchError(msg) from error
    patches: list[Patch] = []
    for number, line in enumerate(lines, 1):
        name, *touches = line.split("#", 1)[0].split() or [""]
        if not name:
            continue
        if any(patch.name == name for patch in patches):
            msg = f"{series}:{number}: {name} is listed twice; a patch applies once. Remove one of the lines"
            raise PatchError(msg)
        try:
            patches.append(Patch(name, (directory / name).read_bytes(), tuple(touches)))
        except OSError as error:
            msg = f"{series}:{number}: {name} cannot be read ({error.strerror}); nothing was patched"
            raise PatchError(msg) from error
    return tuple(patches)


def apply_series(patches: Sequence[Patch], root: Path) -> None:
    """Apply `patches` in order to the tree at `root`; PatchError names patch, file and hunk.

    A patched file is replaced, never written in place, so trees may share unchanged files. After an error the
    tree is half patched: work on a copy that is thrown away.
    """
    for patch in patches:
        for change in parse_patch(patch):
            _apply(patch, change, root)


def _apply(patch: Patch, change: FileChange, root: Path) -> None:
    path = root / change.path
    lines = _read(patch, change, path)
    moved = 0
    for number, hunk in enumerate(change.hunks, 1):
        at = _find(lines, hunk, moved)
        if at is None:
            raise PatchError(_refusal(patch, change, number, lines, moved))
        lines[at : at + len(hunk.old)] = hunk.new
        moved = at - _position(hunk) + len(hunk.new) - len(hunk.old)
    if change.new is None:
        if lines:
            msg = f"{patch.name} removes {change.path}, but the file holds more than that; {_REMEDY}"
            raise PatchError(msg)
        path.unlink()
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
    fresh = path.with_name(f"{path.name}.patched~")
    fresh.write_bytes(b"".join(lines))
    fresh.chmod(mode | (0o111 if change.executable else 0))
    fresh.replace(path)


def _read(patch: Patch, change: FileChange, path: Path) -> list[bytes]:
    if change.old is None:
        if path.exists():
            msg = f"{patch.name} makes {change.path}, which is there already; {_REMEDY}"
            raise PatchError(msg)
        return []
    try:
        return lines_of(path.read_bytes())
    except OSError as error:
        msg = f"{patch.name} changes {change.path}, which cannot be read ({error.strerror}); {_REMEDY}"
        raise PatchError(msg) from error


def _position(hunk: Hunk) -> int:
    """Index of the hunk's first old line; a hunk without old lines stands after the line it names."""
    return hunk.start - 1 if hunk.old else hunk.start


def _find(lines: Sequence[bytes], hunk: Hunk, moved: int) -> int | None:
    """Where the hunk's old lines stand: the place nearest to the expected one, or None."""
    expected = _position(hunk) + moved
    for at in _outward(expected, len(lines) - len(hunk.old)):
        if lines[at : at + len(hunk.old)] == hunk.old:
            return at
    return None


def _outward(start: int, last: int) -> Iterator[int]:
    """start, then ever farther from it on both sides, within 0..last."""
    for distance in range(max(start, last - start, 0) + 1):
        for at in {start - distance, start + distance}:
            if 0 <= at <= last:
                yield at


def _refusal(patch: Patch, change: FileChange, number: int, lines: Sequence[bytes], moved: int) -> str:
    hunk = change.hunks[number - 1]
    where = f"{patch.name}: hunk {number} of {len(change.hunks)} does not apply to {change.path}"
    if hunk.new and _find(lines, Hunk(hunk.start, hunk.new), moved) is not None:
        return f"{where}: the tree holds its result already; {_REMEDY}, or drop it from the series"
    at = max(_position(hunk) + moved, 0)
    for offset, wanted in enumerate(hunk.old):
        found = lines[at + offset] if at + offset < len(lines) else b"(end of file)"
        if found != wanted:
            where += f" at line {at + offset + 1}: it expects {_show(wanted)}, the tree has {_show(found)}"
            break
    return f"{where}; {_REMEDY}"


def _show(line: bytes) -> str:
    text = line.decode(errors="replace").strip()
    return f"`{text[:80]}`"
