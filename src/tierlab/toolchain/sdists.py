# SPDX-License-Identifier: MIT
"""Published source packages as trees under test: any version, each fetched and unpacked once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tierlab.cells.positions import read
from tierlab.errors import SourceError
from tierlab.toolchain.cache import cache_root
from tierlab.toolchain.digests import digest_of
from tierlab.toolchain.fetch import fetched, fetched_by_index
from tierlab.toolchain.sources import Tree, kept_or_made, kernels_directory, load_pin
from tierlab.toolchain.unpack import unpack

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tierlab.toolchain.engine import Say
    from tierlab.toolchain.sources import Fill, Pin

SOURCE = ".tierlab-source"
"""Beside the tree in the cache: the SHA-256 of the archive that it was unpacked from."""

_SHA256 = re.compile(r"[0-9a-f]{64}")


def known_sdists(path: Path | None = None) -> Mapping[str, str]:
    """Version → SHA-256 (hex) of the source packages that `kernels/llama.cpp/sdists.yaml` lists.

    ConfigError with file, line and column for anything but such a table.
    """
    path = path if path is not None else kernels_directory() / "llama.cpp" / "sdists.yaml"
    document = read(path)
    if not isinstance(document.data, dict):
        raise document.error((), "the file must map versions to hashes. Like: 0.3.16: 34ed…")
    for version, sha256 in document.data.items():
        if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
            msg = f"the hash of {version} must be 64 hexadecimal digits in lower case, and is {sha256!r}."
            raise document.error((version,), msg)
    return document.data


def sdist_tree(version: str, *, cache: Path | None = None, pin: Pin | None = None, say: Say = print) -> Tree:
    """`ggml/` of the pinned source package in another version, unpacked in the cache.

    A version that sdists.yaml (or the pin) names is held to that hash, any other to the hash that the package
    index gives. SourceError where it cannot be fetched, has another hash, or is too old for the harness.
    """
    pin = pin if pin is not None else load_pin()
    cache = cache if cache is not None else cache_root()
    known = {**known_sdists(), pin.version: pin.sha256}.get(version, "")
    root = cache / "trees" / f"sdist-{version}-{digest_of([known, pin.package, pin.subtree])[:16]}"

    def fetch() -> Fill:
        downloads = cache / "downloads"
        if known:
            archive, sha256 = fetched(pin.package, version, known, downloads, say), known
        else:
            archive, sha256 = fetched_by_index(pin.package, version, downloads, say)
        say(f"sources: unpacking {pin.package} {version}")

        def unpacked(partial: Path) -> None:
            unpack(archive, f"{pin.subtree}/ggml", partial / "ggml")
            _check_age(partial / "ggml", f"{pin.package} {version}")
            (partial / SOURCE).write_text(f"{sha256}\n")

        return unpacked

    digest = kept_or_made(root, cache, say, fetch)
    sha256 = (root / SOURCE).read_text().strip()
    return Tree(f"sdist-{version}", root, root / "ggml", digest, f"{pin.package} {version}, sha256 {sha256}")


def _check_age(ggml: Path, text: str) -> None:
    if not (ggml / "src" / "ggml-cpu").is_dir():
        msg = (
            f"{text} is older than ggml's loadable backends (November 2024), which the harness drives; "
            "nothing was built. Take 0.3.2 or newer"
        )
        raise SourceError(msg)
