# SPDX-License-Identifier: MIT
"""Unified diffs as values: what a patch does to which file, hunk by hunk."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from tierlab.errors import PatchError

if TYPE_CHECKING:
    from collections.abc import Sequence

_LINE = re.compile(rb"[^\n]*\n|[^\n]+")
_HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_EPOCH = re.compile(rb"\t(1970-01-01|1969-12-31) ")
_UNSUPPORTED = {
    b"rename from ": "renames a file (make it with: git diff --no-renames)",
    b"copy from ": "copies a file (make it with: git diff --no-renames)",
    b"GIT binary patch": "changes a binary file",
    b"Binary files ": "changes a binary file",
}


@dataclass(frozen=True)
class Patch:
    """A patch of the series: file name and bytes. `touches` are the types whose results it may change."""

    name: str
    content: bytes
    touches: tuple[str, ...] = ()


@dataclass
class Hunk:
    """Lines with their ends; `start` is the first old line, counted from 1 (0 for an empty file)."""

    start: int
    old: list[bytes] = field(default_factory=list)
    new: list[bytes] = field(default_factory=list)


@dataclass
class FileChange:
    """What a patch does to one file; `old` or `new` is None where the file is made or removed."""

    old: str | None
    new: str | None
    executable: bool = False
    hunks: list[Hunk] = field(default_factory=list)

    @property
    def path(self) -> str:
        return self.new or self.old or ""


def lines_of(content: bytes) -> list[bytes]:
    """Lines with their ends; only a line feed ends a line, as in every diff."""
    return _LINE.findall(content)


def parse_patch(patch: Patch) -> list[FileChange]:
    """The changes of a patch; PatchError with the line number where it is no well-formed unified diff."""
    lines = lines_of(patch.content)
    changes: list[FileChange] = []
    executable = False
    index = 0
    while index < len(lines):
        line = lines[index]
        for start, what in _UNSUPPORTED.items():
            if line.startswith(start):
                raise _malformed(patch, index, f"this {what}, which is not supported")
        if line.startswith(b"diff --git "):
            executable = False
        if line.startswith((b"new file mode ", b"new mode ")):
            executable = line.rstrip().endswith(b"755")
        if line.startswith(b"--- ") and lines[index + 1 : index + 2] and lines[index + 1].startswith(b"+++ "):
            change, index = _parse_file(patch, lines, index, executable)
            changes.append(change)
        else:
            index += 1
    if not changes:
        raise _malformed(patch, 0, "there is no unified diff in it" if lines else "the file is empty")
    return changes


def _parse_file(patch: Patch, lines: Sequence[bytes], index: int, executable: bool) -> tuple[FileChange, int]:
    first, second = lines[index : index + 2]
    change = FileChange(_name(patch, index, first[4:]), _name(patch, index + 1, second[4:]), executable)
    if change.path == "":
        raise _malformed(patch, index, "both file names are /dev/null")
    if change.old is not None and change.new is not None and change.old != change.new:
        raise _malformed(patch, index, f"it turns {change.old} into {change.new}; renames are not supported")
    index += 2
    while index < len(lines) and (head := _HUNK.match(lines[index])):
        hunk, index = _parse_hunk(patch, lines, index, head)
        change.hunks.append(hunk)
    if not change.hunks:
        raise _malformed(patch, index, f"{change.path} has no hunk")
    _forget_absent(change, first, second)
    return change, index


def _forget_absent(change: FileChange, first: bytes, second: bytes) -> None:
    """`diff -N` writes a file that is not there as an empty one of the epoch, under its name."""
    if len(change.hunks) == 1 and not change.hunks[0].old and _EPOCH.search(first):
        change.old = None
    elif len(change.hunks) == 1 and not change.hunks[0].new and _EPOCH.search(second):
        change.new = None


def _parse_hunk(patch: Patch, lines: Sequence[bytes], index: int, head: re.Match[bytes]) -> tuple[Hunk, int]:
    """Read by the counts of the head, so that a mail signature after it is no part of it."""
    hunk = Hunk(int(head[1]))
    old_left, new_left = (int(count) if count is not None else 1 for count in (head[2], head[4]))
    first = index
    index += 1
    while old_left > 0 or new_left > 0 or (lines[index : index + 1] and lines[index].startswith(b"\\ ")):
        if index >= len(lines):
            raise _malformed(patch, first, "the hunk is shorter than its head says")
        line = lines[index]
        kind, body = line[:1], line[1:]
        if line.startswith(b"\\ "):
            _cut_newline(hunk, lines[index - 1][:1])
        elif kind in b" -+" and kind:
            if kind != b"+":
                hunk.old.append(body)
                old_left -= 1
            if kind != b"-":
                hunk.new.append(body)
                new_left -= 1
        elif line in (b"\n", b"\r\n"):
            # Mail programs and editors strip the blank that stands for "context" from empty lines.
            hunk.old.append(line)
            hunk.new.append(line)
            old_left, new_left = old_left - 1, new_left - 1
        else:
            raise _malformed(patch, index, "a hunk's line starts with none of blank, + and -")
        index += 1
    if old_left or new_left:
        raise _malformed(patch, first, "the hunk is longer than its head says")
    return hunk, index


def _cut_newline(hunk: Hunk, kind: bytes) -> None:
    """The line before the marker has no line end in the file."""
    for side in [hunk.old] * (kind in b" -") + [hunk.new] * (kind in b" +"):
        if side:
            side[-1] = side[-1].rstrip(b"\r\n")


def _name(patch: Patch, index: int, text: bytes) -> str | None:
    """The file name without its first component (a/, b/); None for /dev/null."""
    name = text.split(b"\t", 1)[0].strip().decode(errors="replace")
    if name == "/dev/null":
        return None
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or len(path.parts) < 2:
        raise _malformed(patch, index, f"the file name {name!r} does not have the form a/path or b/path")
    return str(PurePosixPath(*path.parts[1:]))


def _malformed(patch: Patch, index: int, what: str) -> PatchError:
    return PatchError(
        f"{patch.name}:{index + 1}: {what}; nothing was patched. "
        "Make the patch anew with `git diff` or `diff -u`, from the top of llama.cpp"
    )
