# SPDX-License-Identifier: MIT
"""The recipe of the toolchain image (`images/toolchain/`) and the manifest it leaves in the image."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tierlab.errors import EngineError
from tierlab.toolchain.cache import built_whole, locked

if TYPE_CHECKING:
    from collections.abc import Mapping

RELEASE = "trixie"
"""The Debian release of the base; packages.txt and extras.txt speak of it."""

RECIPE_FILES = ("Dockerfile", "install.sh", "packages.txt", "extras.txt")
"""All that decides what is in the image; a list like llvm.txt belongs to an image of its own."""

INSTALL_DIRECTORY = "/opt/tierlab"
"""Where the recipe lies inside the image, and its manifest afterwards."""

PACKAGES = "packages.txt"
MANIFEST_PATH = f"{INSTALL_DIRECTORY}/manifest.txt"
IMAGE_BYTES = 2 << 30
"""Disk that an image takes while it is made: twice its 0.76 GB, and the downloads."""


@dataclass(frozen=True)
class Recipe:
    """What the image is made from; `digest` is SHA-256 (hex) over its files' names and contents."""

    directory: Path
    digest: str
    base: str

    @property
    def short(self) -> str:
        return self.digest[:12]

    @property
    def tag(self) -> str:
        """The name of the docker image."""
        return f"tierlab-toolchain:{self.short}"

    @property
    def inside(self) -> tuple[Path, ...]:
        """The files that are copied into the image."""
        return tuple(self.directory / name for name in RECIPE_FILES if name != "Dockerfile")


def recipe_directory() -> Path:
    """`images/toolchain` of the checkout that this package was installed from."""
    for parent in Path(__file__).resolve().parents:
        candidate = parent / "images" / "toolchain"
        if (candidate / "install.sh").is_file():
            return candidate
    msg = (
        f"no images/toolchain/ above {Path(__file__).parent}, so the toolchain image cannot be made. "
        "Install the package from a checkout with: pip install -e ."
    )
    raise EngineError(msg)


def load_recipe(directory: Path | None = None) -> Recipe:
    """Read the recipe; EngineError names the file that is missing."""
    directory = directory if directory is not None else recipe_directory()
    digest = hashlib.sha256()
    contents = {}
    for name in RECIPE_FILES:
        try:
            contents[name] = (directory / name).read_bytes()
        except OSError as error:
            msg = (
                f"the image recipe's file {directory / name} cannot be read ({error.strerror}); "
                "no image can be made. Restore it from version control"
            )
            raise EngineError(msg) from error
        digest.update(f"{name} {len(contents[name])}\n".encode() + contents[name])
    return Recipe(directory, digest.hexdigest(), _base_of(contents["Dockerfile"].decode()))


def extended_recipe(recipe: Recipe, name: str, cache: Path) -> Recipe:
    """`recipe` with the packages of its list `NAME.txt` besides: the recipe of another image.

    Its files are written to a folder below `cache`, named by their content. EngineError for a list that is
    not there.
    """
    more = recipe.directory / f"{name}.txt"
    try:
        packages = (recipe.directory / PACKAGES).read_bytes() + more.read_bytes()
    except OSError as error:
        msg = (
            f"the package list {error.filename} cannot be read ({error.strerror}); no image with {name} can "
            "be made. Restore it from version control"
        )
        raise EngineError(msg) from error
    content = hashlib.sha256(recipe.digest.encode() + packages).hexdigest()
    final = cache / f"recipe-{name}-{content[:12]}"
    if not final.is_dir():
        with locked(cache / "lock"), built_whole(final) as partial:
            for part in RECIPE_FILES:
                (partial / part).write_bytes((recipe.directory / part).read_bytes())
            (partial / PACKAGES).write_bytes(packages)
    return load_recipe(final)


def _base_of(dockerfile: str) -> str:
    for line in dockerfile.splitlines():
        if line.startswith("ARG BASE="):
            return line.removeprefix("ARG BASE=").strip()
    msg = "images/toolchain/Dockerfile has no line ARG BASE=…; no image can be made. Restore the line"
    raise EngineError(msg)


def parse_manifest(text: str) -> dict[str, str]:
    """Lines `package<TAB>version` → mapping; EngineError if it is not such a text."""
    versions = {}
    for line in text.splitlines():
        name, tab, version = line.partition("\t")
        if not (name and tab and version):
            msg = f"the image's manifest has the line {line!r}; the image is damaged. Remove it: invoke clean"
            raise EngineError(msg)
        versions[name] = version
    if not versions:
        msg = "the image's manifest is empty; the image is damaged. Remove it with: invoke clean"
        raise EngineError(msg)
    return versions


def identity_of(recipe: Recipe, manifest: Mapping[str, str]) -> str:
    """SHA-256 (hex) of recipe and package versions: equal for every engine with the same contents."""
    text = "".join(f"{name}\t{version}\n" for name, version in sorted(manifest.items()))
    return hashlib.sha256(f"{recipe.digest}\n{text}".encode()).hexdigest()


def log_failure(log: Path, lines: int = 3) -> str:
    """What an image build's log gives as the reason: the recipe's own words, else its last lines."""
    try:
        found = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "no log was written"
    for line in reversed(found):
        if "recipe error: " in line:
            return line[line.index("recipe error: ") + len("recipe error: ") :].strip()
    tail = [line.strip() for line in found if line.strip()][-lines:]
    return " / ".join(tail) if tail else "its log is empty"
