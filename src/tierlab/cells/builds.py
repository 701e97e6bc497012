# SPDX-License-Identifier: MIT
"""Names of builds: a tree, and how it is built where that is not the usual way.

`stock`, `patched-2` (the first two patches of the series), `user`, `sdist-0.3.16` (a published source
package), `sdist-0.3.8:armv8.2-a+dotprod:assertions`. The name stands in every cell id and is enough to make
the build again; `user` besides needs to be told where the tree lies.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from tierlab.cells.march import demanded, march_features
from tierlab.cells.positions import nearest
from tierlab.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

PATCHED = "patched"
USER = "user"
SDIST = "sdist"
SEPARATOR = ":"
_PREFIX = re.compile(rf"{PATCHED}-([1-9][0-9]{{0,2}})")
_VERSION = re.compile(rf"{SDIST}-((?:0|[1-9][0-9]*)(?:\.(?:0|[1-9][0-9]*)){{1,3}})")
_MARCH = re.compile(r"armv[0-9][a-z0-9.+_-]*")
_SWITCHES = {
    "assertions": ("assertions", True),
    "llamafile": ("llamafile", True),
    "no-openmp": ("openmp", False),
    "no-kleidiai": ("kleidiai", False),
}
"""The word in a name → the field of BuildName and its value; the usual build has the other one."""

SWITCHES = tuple(_SWITCHES)


@dataclass(frozen=True)
class BuildName:
    """A build's name, taken apart; `text` puts it together again, one spelling for each build.

    `march` is GCC's text for one backend in place of all loadable variants; empty for those. `assertions`
    leaves a kernel's asserts in; `llamafile` lets tinyBLAS take products away from the kernels.
    """

    tree: str
    march: str = ""
    assertions: bool = False
    llamafile: bool = False
    openmp: bool = True
    kleidiai: bool = True

    @property
    def text(self) -> str:
        words = [word for word, (field, value) in _SWITCHES.items() if getattr(self, field) is value]
        return SEPARATOR.join([self.tree, *([self.march] if self.march else []), *words])


@cache
def parse_build(text: str) -> BuildName:
    """A build's name taken apart; whether there is such a tree is for `is_known` to say.

    Raises UsageError for an option that does not exist or contradicts another.
    """
    tree, *words = text.split(SEPARATOR)
    name = BuildName(tree)
    for word in words:
        if word in _SWITCHES:
            field, value = _SWITCHES[word]
            name = replace(name, **{field: value})  # type: ignore[arg-type]
        elif not _MARCH.fullmatch(word):
            msg = f"build {text!r}: {word!r} is neither an Arm architecture nor an option; nothing was run; "
            raise UsageError(msg + nearest(word, [*_SWITCHES, "armv8.2-a+dotprod"]))
        elif name.march not in ("", word):
            msg = f"build {text!r} names two architectures; nothing was run. Name one"
            raise UsageError(msg)
        else:
            march_features(word)
            name = replace(name, march=word)
    return name


def tree_name(name: str) -> str:
    """The tree of a build, without how it is built."""
    return name.partition(SEPARATOR)[0]


def prefix_name(count: int) -> str:
    """The build with the first `count` patches: 2 → `patched-2`."""
    return f"{PATCHED}-{count}"


def prefix_length(name: str) -> int | None:
    """How many patches of the series a numbered build has: `patched-2` → 2; None for any other name."""
    found = _PREFIX.fullmatch(tree_name(name))
    return int(found[1]) if found else None


def patches_in(name: str) -> float:
    """Patches of the series in a build: all of them (infinity) in `patched`, none in the other trees."""
    if tree_name(name) == PATCHED:
        return math.inf
    return prefix_length(name) or 0


def sdist_version(name: str) -> str | None:
    """The version of the source package under test: `sdist-0.3.16` → `0.3.16`; None for any other name."""
    found = _VERSION.fullmatch(tree_name(name))
    return found[1] if found else None


def family(name: str) -> str:
    """The name that `matrix.yaml` has for a build: `patched-2` → `patched`, `sdist-0.3.16` → `sdist`."""
    if prefix_length(name) is not None:
        return PATCHED
    return SDIST if sdist_version(name) is not None else tree_name(name)


def is_known(name: str, known: Iterable[str]) -> bool:
    """Whether a build can be asked for, where `matrix.yaml` has the names `known`."""
    return family(name) in known and tree_name(name) != SDIST


def order(name: str, known: Iterable[str]) -> tuple[int, tuple[float, ...], str]:
    """Sort key: as in `matrix.yaml`; fewer patches, older packages, and the usual way of building first."""
    version = sdist_version(name)
    among = tuple(map(float, version.split("."))) if version is not None else (patches_in(name),)
    return list(known).index(family(name)), among, name


def compiled_in(name: str) -> frozenset[str] | None:
    """The features that a build's one backend was compiled for; None where each CPU loads its variant."""
    march = parse_build(name).march
    return march_features(march) if march else None


def missing(name: str, features: frozenset[str]) -> frozenset[str]:
    """What a CPU with these features lacks to run the build."""
    march = parse_build(name).march
    return demanded(march) - features if march else frozenset()


@dataclass(frozen=True)
class BuildWish:
    """What the command line says of builds: `names` (`--build`), whether a tree was given (`--llama-cpp`),
    versions of the source package (`--sdist`), and `options` that hold for each build."""

    names: tuple[str, ...] = ()
    user: bool = False
    sdists: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    def builds(self, known: Iterable[str], usual: tuple[str, ...]) -> tuple[str, ...]:
        """The builds' names, each in its one spelling; `usual` are those of whom nothing else was said.

        Raises UsageError for unknown names, for `user` without a tree and for a tree that nobody uses.
        """
        known = tuple(known)
        own = (USER,) if self.user and not self.names else ()
        versions = tuple(f"{SDIST}-{version}" for version in self.sdists)
        wanted = (*self.names, *own, *versions) or usual
        for name in wanted:
            check_build(name, known)
        found = tuple(dict.fromkeys(self._spelled(name) for name in wanted))
        has_user = any(tree_name(name) == USER for name in found)
        if has_user and not self.user:
            msg = "build 'user' needs the tree: nothing was run. Add --llama-cpp PATH"
            raise UsageError(msg)
        if self.user and not has_user:
            msg = (
                f"--llama-cpp was given but build 'user' is not among {', '.join(found)}; nothing was run. "
                "Add it to --build"
            )
            raise UsageError(msg)
        return found

    def _spelled(self, name: str) -> str:
        return parse_build(SEPARATOR.join([name, *self.options])).text


def check_build(name: str, known: Iterable[str]) -> None:
    """Raise UsageError unless there is such a build."""
    names = tuple(known)
    tree = tree_name(name)
    if tree.startswith(f"{SDIST}-") and SDIST in names and sdist_version(tree) is None:
        word = tree.removeprefix(f"{SDIST}-")
        msg = f"{word!r} is no version of a source package; nothing was run. Give one like 0.3.16"
        raise UsageError(msg)
    if tree == SDIST:
        msg = "build 'sdist' needs a version: nothing was run. Write sdist-0.3.16, or --sdist 0.3.16"
        raise UsageError(msg)
    if not is_known(tree, names):
        msg = f"unknown build {tree!r}; nothing was run; {nearest(tree, names)}"
        raise UsageError(msg)
    parse_build(name)
