# SPDX-License-Identifier: MIT
"""Command line words → checked values. Whatever is wrong here is wrong use: exit 3."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tierlab.cells.builds import BuildWish
from tierlab.cells.selection import Selection
from tierlab.cli.checks import project_root
from tierlab.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable


BuildWords = tuple[str, str, str, tuple[str, ...]]
"""The options `--build`, `--llama-cpp`, `--sdist`, and how to build as words of a build's name."""


@dataclass(frozen=True)
class SelectionWords:
    """The words of a selection, unchecked: they are checked inside `finish`, where errors are messages."""

    preset: str
    only: tuple[str, ...]
    profiles: tuple[str, ...]
    types: tuple[str, ...]
    paths: tuple[str, ...]
    suites: tuple[str, ...]
    builds: BuildWords
    shard: str
    file: str

    def checked(self) -> Selection:
        """The selection. Raises UsageError for a malformed shard."""
        return Selection(
            preset=self.preset,
            only=self.only,
            profiles=self.profiles,
            types=self.types,
            paths=self.paths,
            suites=self.suites,
            shard=shard_of(self.shard),
        )

    @property
    def build_wish(self) -> BuildWish:
        return build_wish(*self.builds)

    @property
    def tree(self) -> Path | None:
        """The tree as reports name it; a shell leaves `~` in `--llama-cpp=~/tree` to its reader."""
        llama_cpp = self.builds[1]
        return tree_path(llama_cpp) if llama_cpp else None

    @property
    def matrix(self) -> Path:
        """The matrix file: as named, or the checkout's where that name does not exist here."""
        path = given_path(self.file)
        if path.is_absolute() or path.exists() or self.file != "matrix.yaml":
            return path
        return project_root() / self.file


def selection(
    preset: str,
    only: Iterable[str] | None,
    profile: Iterable[str] | None,
    type: Iterable[str] | None,
    path: Iterable[str] | None,
    suite: Iterable[str] | None,
    builds: BuildWords,
    shard: str,
    file: str,
) -> SelectionWords:
    """Collect a task's selection options; commas separate values of one axis, globs may hold commas."""
    return SelectionWords(
        preset=preset,
        only=tuple(only or ()),
        profiles=_split(profile),
        types=_split(type),
        paths=_split(path),
        suites=_split(suite),
        builds=builds,
        shard=shard,
        file=file,
    )


def build_options(
    march: str, assertions: bool, llamafile: bool, openmp: bool, kleidiai: bool
) -> tuple[str, ...]:
    """How to build, as the words of a build's name."""
    switches = {
        "assertions": assertions,
        "llamafile": llamafile,
        "no-openmp": not openmp,
        "no-kleidiai": not kleidiai,
    }
    return (*([march] if march else []), *(word for word, said in switches.items() if said))


def build_wish(names: str, llama_cpp: str, sdist: str, options: tuple[str, ...]) -> BuildWish:
    """What is to be built, of the options `--build`, `--llama-cpp`, `--sdist` and how to build."""
    return BuildWish(_split([names]), bool(llama_cpp), _split([sdist]), options)


def _split(values: Iterable[str] | None) -> tuple[str, ...]:
    return tuple(part.strip() for value in values or () for part in value.split(",") if part.strip())


def shard_of(text: str) -> tuple[int, int]:
    """`2/4` → (2, 4); empty → (1, 1)."""
    if not text:
        return (1, 1)
    found = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
    if not found:
        msg = f"--shard {text!r} is not of the form i/n; nothing was run. The first of four parts is 1/4"
        raise UsageError(msg)
    return int(found[1]), int(found[2])


def whole_number(name: str, text: str, lowest: int, default: int | None) -> int | None:
    """The value of a numeric option; `default` where it was not given."""
    if not text:
        return default
    if not re.fullmatch(r"[0-9]{1,19}", text) or int(text) < lowest:
        msg = f"--{name} {text!r} is no whole number from {lowest} up; nothing was run. Give one"
        raise UsageError(msg)
    return int(text)


CHECKOUT_PATHS = ("matrix.yaml", "reports", "reports/latest")
"""Defaults of options: they lie in the checkout, wherever the caller stands."""


def given_path(text: str) -> Path:
    """A path from the command line: relative to where the caller stood, also when `./lab` moved on."""
    if text in CHECKOUT_PATHS:
        return Path(text)
    return Path(os.environ.get("TIERLAB_CALLER", "")) / Path(text).expanduser()


def tree_path(text: str) -> Path:
    """A user's tree as reports name it: absolute, without `..` or links."""
    return Path(os.path.realpath(given_path(text)))
