# SPDX-License-Identifier: MIT
"""Unpacking one subtree of a source archive, with nothing that could reach outside it."""

from __future__ import annotations

import os
import shutil
import tarfile
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from tierlab.errors import SourceError

if TYPE_CHECKING:
    from pathlib import Path


def unpack(archive: Path, subtree: str, target: Path) -> int:
    """Unpack what lies below `<any>/<subtree>/` into the directory `target`; returns the number of files.

    Only regular files and directories are taken; links and devices are left out, a name that leads outside
    is a SourceError. Owners are the caller, modes 644 or 755, times those of the archive.
    """
    wanted = PurePosixPath(subtree).parts
    count = 0
    try:
        with tarfile.open(archive, "r:*") as tar:
            for member in tar:
                parts = PurePosixPath(member.name).parts
                if parts[1 : 1 + len(wanted)] != wanted or not member.isfile():
                    continue
                inner = parts[1 + len(wanted) :]
                if ".." in inner or not inner or PurePosixPath(member.name).is_absolute():
                    msg = f"{archive.name} holds the name {member.name!r}, which leads outside; none was kept"
                    raise SourceError(msg)
                _write(tar, member, target.joinpath(*inner))
                count += 1
    except (tarfile.TarError, EOFError) as error:
        msg = f"{archive} is no readable source archive ({error}); nothing was kept. Check the pin"
        raise SourceError(msg) from error
    if count == 0:
        msg = (
            f"{archive.name} holds nothing below {subtree}/; nothing was kept. Correct `subtree` in pin.yaml"
        )
        raise SourceError(msg)
    return count


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    content = tar.extractfile(member)
    if content is None:
        msg = f"{member.name} cannot be read from the archive; nothing was kept"
        raise SourceError(msg)
    path.parent.mkdir(parents=True, exist_ok=True)
    with content, path.open("xb") as file:
        shutil.copyfileobj(content, file, 1 << 20)
    path.chmod(0o755 if member.mode & 0o100 else 0o644)
    os.utime(path, (member.mtime, member.mtime))
