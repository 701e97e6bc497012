# SPDX-License-Identifier: MIT
"""Fetching a package with pip, whole and verified or not at all."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from typing import TYPE_CHECKING

from tierlab.errors import SourceError
from tierlab.toolchain.cache import PARTIAL_MARK, built_whole, is_disk_full, remove_tree, sweep_partials
from tierlab.toolchain.digests import file_sha256

if TYPE_CHECKING:
    from pathlib import Path

    from tierlab.toolchain.engine import Say

TRIES = 2
_SHA256 = re.compile(r"[0-9a-f]{64}")
_GOT = re.compile(r"^\s*Got\s+([0-9a-f]{64})\s*$", re.MULTILINE)


SOURCE, WHEEL = ".tar.gz", ".whl"
"""The kinds of archives, by the end of their names."""


def fetched(
    package: str, version: str, sha256: str, downloads: Path, say: Say, *, kind: str = SOURCE
) -> Path:
    """The archive of `package` `version` with the SHA-256 `sha256`, below `downloads`.

    An archive that is there already is checked and used without the network. SourceError if the fetched one
    has another hash (names both) or cannot be fetched; then nothing of it is left. Hold a lock around this.
    """
    place = downloads / f"{package}-{version}-{sha256[:16]}"
    for archive in _archives(place, kind):
        found = file_sha256(archive)
        if found == sha256:
            return archive
        say(f"sources: {archive} is damaged (sha256 {found[:16]}…); fetching it again")
    remove_tree(place)
    if downloads.is_dir():
        sweep_partials(downloads)
    say(f"sources: fetching {package} {version}")
    with built_whole(place) as partial:
        _download(package, version, sha256, partial, kind)
        found = file_sha256(_only_archive(package, version, partial, kind))
        if found != sha256:
            raise _mismatch(package, version, sha256, found)
    return _archives(place, kind)[0]


def fetched_by_index(package: str, version: str, downloads: Path, say: Say) -> tuple[Path, str]:
    """The source archive of `package` `version` and its SHA-256, for a version that nobody has pinned.

    The first time pip checks it against the hash that the package index gives; that hash is noted, and from
    then on the archive is held to it. SourceError as for `fetched`. Hold a lock around this.
    """
    note = downloads / f"{package}-{version}.sha256"
    try:
        known = note.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        known = ""
    if _SHA256.fullmatch(known):
        return fetched(package, version, known, downloads, say), known
    downloads.mkdir(parents=True, exist_ok=True)
    sweep_partials(downloads)
    say(f"sources: fetching {package} {version}")
    first = downloads / f"{package}-{version}-first"
    with built_whole(first) as partial:
        _download(package, version, None, partial, SOURCE)
        known = file_sha256(_only_archive(package, version, partial, SOURCE))
    place = downloads / f"{package}-{version}-{known[:16]}"
    remove_tree(place)
    first.rename(place)
    note.write_text(f"{known}\n")
    return fetched(package, version, known, downloads, say), known


def _only_archive(package: str, version: str, place: Path, kind: str) -> Path:
    archives = _archives(place, kind)
    if len(archives) != 1:
        msg = f"pip left {len(archives)} archives of {package} {version} instead of one; none was kept"
        raise SourceError(msg)
    return archives[0]


def _archives(place: Path, kind: str) -> list[Path]:
    return sorted(path for path in place.glob(f"*{kind}") if PARTIAL_MARK not in path.name)


def _download(package: str, version: str, sha256: str | None, target: Path, kind: str) -> None:
    """Let pip fetch it with the hash required: pip runs a package's own code (for its metadata), and must
    not do so before the hash is known to be right. Without a pinned hash pip requires the index's."""
    if importlib.util.find_spec("pip") is None:
        msg = (
            f"this Python ({sys.executable}) has no pip, so {package} cannot be fetched. "
            f"Run: {sys.executable} -m ensurepip"
        )
        raise SourceError(msg)
    wanted = target / "wanted.txt"
    pinned = f" --hash=sha256:{sha256}" if sha256 else ""
    wanted.write_text(f"{package}=={version}{pinned}\n")
    command = [
        *(sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-input"),
        *("--no-deps", "--no-binary" if kind == SOURCE else "--only-binary", package),
        *("--progress-bar", "off", *(["--require-hashes"] if sha256 else [])),
        *("--requirement", str(wanted), "--dest", str(target)),
    ]
    said = ""
    for _ in range(TRIES):
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            wanted.unlink()
            return
        said = done.stderr + done.stdout
        if got := _GOT.search(said):
            raise _mismatch(package, version, sha256 or "that of the index", got[1])
        if is_disk_full(said):
            msg = (
                f"the disk is full where {package} {version} was being fetched to ({target.parent}); nothing "
            )
            msg += "of it was kept. Free some space, or set TIERLAB_CACHE to a larger disk"
            raise SourceError(msg)
    errors = [line.strip() for line in said.splitlines() if line.startswith("ERROR:")]
    msg = (
        f"{package} {version} could not be fetched: {errors[-1] if errors else said.strip()[-200:]}. "
        "Nothing was kept; check the network and pip's configuration, or give a tree with --llama-cpp PATH"
    )
    raise SourceError(msg)


def _mismatch(package: str, version: str, wanted: str, found: str) -> SourceError:
    return SourceError(
        f"{package} {version} has another hash than pinned: wanted sha256 {wanted}, got {found}. "
        "Nothing of it was used or kept. Either the pin (a file below kernels/) is wrong, or the package's "
        "source is not to be trusted"
    )
