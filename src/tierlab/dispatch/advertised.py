# SPDX-License-Identifier: MIT
"""What the program says of itself when it starts: its log, and the features that its backend lists.

This is the layer of announcements. It is read from the program's own words and from nothing else, and it says
nothing of what ran.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tierlab.dispatch.products import in_order

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

NONE = "NONE"
"""The word for KleidiAI's announcement that it has no kernel for a type on this CPU."""

BANNER = {
    "NEON": "neon",
    "FP16_VA": "fp16",
    "DOTPROD": "dotprod",
    "MATMUL_INT8": "i8mm",
    "SVE": "sve",
    "SME": "sme",
    "SME2": "sme2",
    "KLEIDIAI": "kleidiai",
    "REPACK": "repack",
}
"""Names in the backend's list of features → the lab's names for them."""

FAMILY_OF_BANNER = {
    "neon": "NEON",
    "dotprod": "DOTPROD",
    "i8mm": "I8MM",
    "sve": "SVE",
    "sme": "SME",
    "sme2": "SME2",
}

TABLES = {"q4_0": "q4", "q8_0": "q8", "f32": "f32"}
"""Weight type → the word by which KleidiAI's announcements name its table of kernels."""

_ANY_TABLE = "*"
_PRIMARY = re.compile(r"kleidiai: primary (\w+) kernel feature (\w+)")
_NO_KERNELS = re.compile(r"kleidiai: no compatible (\w+) kernels")
_OLD = re.compile(r"kleidiai: using (?:q4 )?kernel with CPU feature (\w+)")
_CAP = re.compile(r"kleidiai: SME enabled \(.*?(?:cap=|GGML_KLEIDIAI_SME=)(\d+)")
_DISABLED = re.compile(r"kleidiai: SME disabled")
_LOADED = re.compile(r"load_backend: loaded CPU backend from (\S+)")
_OURS = re.compile(r"^(kleidiai|load_backend|ggml_cpu\w*|repack)\b.*$", re.MULTILINE)


@dataclass(frozen=True)
class Advertised:
    """`lines` as printed; `loaded` the backend's file; `primary` table → feature word; `cap` SME threads.

    `cap` is None where the program says nothing of it. `banner` are the backend's features (name, value).
    """

    lines: tuple[str, ...] = ()
    loaded: str = ""
    primary: tuple[tuple[str, str], ...] = ()
    cap: int | None = None
    banner: tuple[tuple[str, str], ...] = ()

    @property
    def built(self) -> frozenset[str]:
        """The lab's names of the features that the backend says it has."""
        return frozenset(BANNER[name] for name, value in self.banner if name in BANNER and value != "0")

    @property
    def families(self) -> tuple[str, ...]:
        """Families of instructions that the backend's list of features names, the strongest first."""
        return in_order(FAMILY_OF_BANNER[name] for name in self.built if name in FAMILY_OF_BANNER)

    def choice(self, path: str, kind: str) -> str:
        """The family announced for that type's kernels on that path; empty where nothing is announced."""
        if path != "kleidiai":
            return ""
        said = dict(self.primary)
        return said.get(TABLES.get(kind, ""), said.get(_ANY_TABLE, ""))


def advertised(said: str, banner: Iterable[tuple[str, str]]) -> Advertised:
    """Read what a process wrote to standard error."""
    primary: dict[str, str] = {}
    primary.update({match[1]: match[2] for match in _PRIMARY.finditer(said)})
    primary.update({match[1]: NONE for match in _NO_KERNELS.finditer(said)})
    if old := _OLD.search(said):
        primary[_ANY_TABLE] = old[1]
    cap = _CAP.search(said)
    loaded = _LOADED.search(said)
    return Advertised(
        lines=tuple(dict.fromkeys(match[0].strip() for match in _OURS.finditer(said))),
        loaded=loaded[1] if loaded else "",
        primary=tuple(primary.items()),
        cap=int(cap[1]) if cap else (0 if _DISABLED.search(said) else None),
        banner=tuple(banner),
    )


def table_line(said: Advertised, path: str, kind: str) -> str:
    """The line that announces the choice, as printed; empty without one."""
    if not said.choice(path, kind):
        return ""
    word = TABLES.get(kind, "")
    patterns = (_PRIMARY, _NO_KERNELS, _OLD)
    hits: Mapping[str, str] = {
        (match[1] if pattern is not _OLD else word): line
        for line in said.lines
        for pattern in patterns
        if (match := pattern.search(line))
    }
    return hits.get(word, "")
