# SPDX-License-Identifier: MIT
"""Content digests of files and trees, made fast by remembering what was hashed before.

A tree's digest covers the relative path and the bytes of every file in it: not times, owners or the place
where it lies. Equal digests mean equal builds.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import zlib
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tierlab.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

IGNORED_DIRECTORIES = frozenset({".git", "__pycache__"})
"""Never compiled, and changed by merely looking at a checkout."""

SETTLED_NS = 2_000_000_000
"""A file younger than this may change again within one tick of its clock, so its hash is not remembered."""


@dataclass(frozen=True)
class TreeDigest:
    """`digest` is SHA-256 (hex) over `files`: relative path → SHA-256 (hex) of its bytes."""

    digest: str
    files: Mapping[str, str]


def file_sha256(path: Path) -> str:
    """SHA-256 (hex) of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_of(parts: object) -> str:
    """SHA-256 (hex) of a JSON value, independent of the order of its keys."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def tree_digest(root: Path, memory: Path | None = None) -> TreeDigest:
    """Digest of all files below `root`; symbolic links count as what they point to.

    `memory` is a directory for remembered hashes: an unchanged size, time and inode spare reading the file
    again. Raises SourceError if a file cannot be read.
    """
    store = None if memory is None else memory / f"{digest_of(str(root.resolve()))[:24]}.json"
    known = _recall(store)
    fresh: dict[str, list[object]] = {}
    files: dict[str, str] = {}
    now = time.time_ns()
    for name in sorted(_names(root)):
        path = root / name
        try:
            status = path.stat()
            stamp: list[object] = [status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino]
            entry = known.get(name)
            found = entry[-1] if entry is not None and entry[:-1] == stamp else file_sha256(path)
        except OSError as error:
            raise _unreadable(path, error) from error
        files[name] = str(found)
        if now - max(status.st_mtime_ns, status.st_ctime_ns) > SETTLED_NS:
            fresh[name] = [*stamp, found]
    if store is not None and fresh != known:
        _remember(store, fresh)
    return TreeDigest(digest_of(files), files)


def _names(root: Path) -> list[str]:
    names = []
    for folder, folders, leaves in os.walk(root, onerror=_stop):
        folders[:] = [name for name in folders if name not in IGNORED_DIRECTORIES]
        inner = os.path.relpath(folder, root)
        names += [leaf if inner == "." else f"{inner}/{leaf}" for leaf in leaves]
    return names


def _stop(error: OSError) -> None:
    raise _unreadable(error.filename, error) from error


def _unreadable(path: object, error: OSError) -> SourceError:
    return SourceError(
        f"{path} cannot be read ({error.strerror}), so the tree's content is unknown; nothing was built. "
        "Make it readable for this user"
    )


def _recall(store: Path | None) -> dict[str, list[object]]:
    """What was remembered; a missing or damaged file is an empty memory.

    A hash with one wrong digit would read well and have a whole tree made anew, hence the checksum.
    """
    if store is None:
        return {}
    try:
        seal, _, text = store.read_bytes().partition(b"\n")
        found = json.loads(text) if seal == b"%08x" % zlib.crc32(text) else {}
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _remember(store: Path, entries: Mapping[str, list[object]]) -> None:
    """Write whole or not at all; a memory that cannot be kept only costs time."""
    with suppress(OSError):
        store.parent.mkdir(parents=True, exist_ok=True)
        partial = store.with_name(f"{store.name}.{os.getpid()}")
        text = json.dumps(entries).encode()
        partial.write_bytes(b"%08x\n" % zlib.crc32(text) + text)
        partial.replace(store)
