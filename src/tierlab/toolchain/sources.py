# SPDX-License-Identifier: MIT
"""The trees under test: the pinned llama.cpp, the patched one, a user's own.

The pinned source package is fetched once, checked against its hash before anything in it is used, and
unpacked into the cache; then no network is needed.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from tierlab.cells.builds import USER, tree_name
from tierlab.errors import ConfigError, SourceError, UsageError
from tierlab.toolchain.cache import built_whole, cache_root, locked, sweep_partials
from tierlab.toolchain.digests import digest_of, tree_digest
from tierlab.toolchain.disk import disk_errors
from tierlab.toolchain.fetch import fetched
from tierlab.toolchain.patches import apply_series, load_series
from tierlab.toolchain.unpack import unpack

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tierlab.toolchain.diff import Patch
    from tierlab.toolchain.engine import Say

    Fill = Callable[[Path], object]

RECORD = ".tierlab-digest"
"""Beside the tree in the cache: the digest of ggml/ when it was made."""

_GGML_PARTS = ("CMakeLists.txt", "include/ggml.h", "src/CMakeLists.txt")
_PIN_KEYS = ("package", "version", "sha256", "subtree", "describes")


@dataclass(frozen=True)
class Pin:
    """A source package: name, version, SHA-256 (hex) of the archive, and where llama.cpp lies inside."""

    package: str
    version: str
    sha256: str
    subtree: str
    describes: str = ""

    @property
    def text(self) -> str:
        return f"{self.package} {self.version}"


@dataclass(frozen=True)
class Tree:
    """Sources to build. `root` is the checkout, `ggml` the directory with ggml's CMakeLists.txt inside it.

    `digest` covers the files of `ggml` alone: nothing else is compiled. `origin` says in one line where it
    comes from; `patches` are the names of the patches in it.
    """

    name: str
    root: Path
    ggml: Path
    digest: str
    origin: str
    patches: tuple[str, ...] = ()

    @property
    def mutable(self) -> bool:
        """Whether its owner may change it at any time."""
        return tree_name(self.name) == USER


def kernels_directory() -> Path:
    """`kernels/` of the checkout that this package was installed from."""
    for parent in Path(__file__).resolve().parents:
        if (parent / "kernels" / "llama.cpp" / "pin.yaml").is_file():
            return parent / "kernels"
    msg = (
        f"no kernels/llama.cpp/pin.yaml above {Path(__file__).parent}, so there is nothing to test. "
        "Install the package from a checkout with: pip install -e ."
    )
    raise SourceError(msg)


def load_pin(path: Path | None = None) -> Pin:
    """Read a pin file; ConfigError names the file and the key that is wrong."""
    path = path if path is not None else kernels_directory() / "llama.cpp" / "pin.yaml"
    try:
        found = yaml.safe_load(path.read_text("utf-8"))
    except UnicodeDecodeError as error:
        msg = f"{path} is not UTF-8 text (byte {error.start}). Restore the file"
        raise ConfigError(msg) from error
    except OSError as error:
        msg = f"{path} cannot be read ({error.strerror}), so it is unknown what to test. Restore the file"
        raise ConfigError(msg) from error
    except yaml.YAMLError as error:
        msg = f"{path} is no YAML: {' '.join(str(error).split())}. Restore the file"
        raise ConfigError(msg) from error
    if not isinstance(found, dict):
        msg = f"{path} must hold the keys {', '.join(_PIN_KEYS)}"
        raise ConfigError(msg)
    for key in found.keys() ^ set(_PIN_KEYS):
        what = "is missing" if key in _PIN_KEYS else f"is not known; the keys are {', '.join(_PIN_KEYS)}"
        msg = f"{path}: the key {key} {what}"
        raise ConfigError(msg)
    pin = Pin(**{key: str(found[key]) for key in _PIN_KEYS})
    if not re.fullmatch(r"[0-9a-f]{64}", pin.sha256):
        msg = f"{path}: sha256 must be 64 hexadecimal digits in lower case, and is {pin.sha256!r}"
        raise ConfigError(msg)
    return pin


def load_patches(directory: Path | None = None) -> tuple[Patch, ...]:
    """The patch series of the checkout; see patches.load_series."""
    return load_series(directory if directory is not None else kernels_directory() / "llama.cpp" / "patches")


def stock_tree(pin: Pin | None = None, *, cache: Path | None = None, say: Say = print) -> Tree:
    """The pinned tree, unpacked in the cache.

    Raises SourceError where it cannot be fetched, has another hash than the pin (names both), or does not
    fit on the disk; nothing half done is left then.
    """
    pin = pin if pin is not None else load_pin()
    cache = cache if cache is not None else cache_root()
    root = cache / "trees" / f"stock-{digest_of([pin.sha256, pin.subtree])[:16]}"

    def fetch() -> Fill:
        archive = fetched(pin.package, pin.version, pin.sha256, cache / "downloads", say)
        say(f"sources: unpacking {pin.text}")
        return lambda partial: unpack(archive, pin.subtree, partial)

    digest = kept_or_made(root, cache, say, fetch)
    return Tree("stock", root, root / "ggml", digest, f"{pin.text} ({pin.describes})")


def patched_tree(
    pin: Pin | None = None,
    patches: Sequence[Patch] | None = None,
    *,
    cache: Path | None = None,
    say: Say = print,
) -> Tree:
    """The pinned tree with `patches` applied (default: the whole series; a prefix of it is fine).

    Without patches it is the stock tree itself under the name `patched`. PatchError names patch, file and
    hunk of what does not apply.
    """
    pin = pin if pin is not None else load_pin()
    patches = patches if patches is not None else load_patches()
    cache = cache if cache is not None else cache_root()
    stock = stock_tree(pin, cache=cache, say=say)
    names = tuple(patch.name for patch in patches)
    if not patches:
        return Tree("patched", stock.root, stock.ggml, stock.digest, stock.origin)
    contents = [patch.content.hex() for patch in patches]
    root = cache / "trees" / f"patched-{digest_of([stock.root.name, contents])[:16]}"

    def patched(partial: Path) -> None:
        say(f"sources: applying {len(patches)} patch{'es' if len(patches) > 1 else ''}")
        _copy_linked(stock.root, partial)
        apply_series(patches, partial)

    digest = kept_or_made(root, cache, say, lambda: patched)
    origin = f"{stock.origin} + {len(patches)} patch{'es' * (len(patches) > 1)}"
    return Tree("patched", root, root / "ggml", digest, origin, names)


def user_tree(path: Path, *, cache: Path | None = None) -> Tree:
    """A user's own tree: a llama.cpp checkout (with ggml/) or a bare ggml. It is only ever read.

    UsageError if there is no such directory, SourceError if it holds no ggml.
    """
    root = path.expanduser().absolute()
    if not root.is_dir():
        msg = (
            f"--llama-cpp {path}: there is no such directory, so nothing was built. Give a llama.cpp checkout"
        )
        raise UsageError(msg)
    cache = cache if cache is not None else cache_root()
    for ggml in (root / "ggml", root):
        if all(os.path.isfile(ggml / part) for part in _GGML_PARTS):  # False where it may not look, too
            return Tree("user", root, ggml, tree_digest(ggml, cache / "digests").digest, str(root))
    msg = (
        f"{root} holds no ggml: neither it nor its folder ggml/ has {', '.join(_GGML_PARTS)}; "
        "nothing was built. Give the top of a llama.cpp or ggml checkout"
    )
    raise SourceError(msg)


def kept_or_made(root: Path, cache: Path, say: Say, prepare: Callable[[], Fill]) -> str:
    """The digest of the tree `root` in the cache; it is made where it is not there, or was changed since.

    `prepare` fetches what is needed and returns what fills a folder with the tree. Whole or not at all, and
    by one lab at a time.
    """
    with (
        disk_errors(cache),
        locked(cache / "locks" / "trees", lambda: say("sources: waiting for another lab")),
    ):
        digest = _kept(root, cache, say)
        if digest is None:
            fill = prepare()
            sweep_partials(root.parent)
            with built_whole(root) as partial:
                fill(partial)
                digest = _record(partial, cache)
    return digest


def _kept(root: Path, cache: Path, say: Say) -> str | None:
    """The digest of a tree in the cache; None if it is not there or no longer what was unpacked."""
    try:
        recorded = (root / RECORD).read_text("utf-8", "replace").strip()
        found = tree_digest(root / "ggml", cache / "digests").digest
    except (OSError, SourceError):
        return None
    if found == recorded:
        return found
    say(f"sources: {root} was changed since it was made; making it anew")
    return None


def _record(root: Path, cache: Path) -> str:
    if not (root / "ggml" / "CMakeLists.txt").is_file():
        msg = (
            "the source package holds no ggml/CMakeLists.txt; nothing was kept. Correct `subtree` in pin.yaml"
        )
        raise SourceError(msg)
    digest = tree_digest(root / "ggml").digest
    (root / RECORD).write_text(digest + "\n")
    return digest


def _copy_linked(source: Path, target: Path) -> None:
    """Copy a tree by hard links: patches replace files, so what they do not touch is shared."""
    for folder, folders, names in os.walk(source):
        inner = target / os.path.relpath(folder, source)
        for name in folders:
            (inner / name).mkdir()
        for name in names:
            if name != RECORD:
                os.link(os.path.join(folder, name), inner / name)
