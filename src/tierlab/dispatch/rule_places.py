# SPDX-License-Identifier: MIT
"""Where a tree decides what a rule says: found by text in the tree under test, at every run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tierlab.dispatch.sources import Line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from tierlab.dispatch.rules import Place, Rule

HEAD_LINES = 12
"""A function's parameters may take that many lines before its brace opens."""


@dataclass(frozen=True)
class Found:
    """One place of one rule: the line, or in words what is missing."""

    place: Place
    line: Line | None
    missing: str = ""


def find_places(ggml: Path, rules: Iterable[Rule]) -> dict[str, tuple[Found, ...]]:
    """Rule id → its places in the tree, whose directory `ggml/` is given. A missing text is no error."""
    files: dict[str, list[str] | None] = {}

    def lines(name: str) -> list[str] | None:
        if name not in files:
            path = ggml / name
            files[name] = _read(path) if path.is_file() else None
        return files[name]

    return {rule.id: tuple(_find(place, lines(place.file)) for place in rule.decided) for rule in rules}


def _read(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").splitlines()


def _find(place: Place, lines: Sequence[str] | None) -> Found:
    if lines is None:
        return Found(place, None, f"the tree has no ggml/{place.file}")
    body = _body(lines, place.function)
    if body is None:
        return Found(place, None, f"ggml/{place.file} defines no {place.function!r}")
    wanted = "".join(place.text.split())
    for number in body:
        if wanted in "".join(lines[number].split()):
            return Found(place, Line(place.file, number + 1, lines[number].strip()))
    return Found(place, None, f"{place.function!r} in ggml/{place.file} holds no {place.text!r}")


def _body(lines: Sequence[str], head: str) -> range | None:
    """Line numbers (from 0) of the definition whose first line holds `head`, to its closing brace."""
    for start, line in enumerate(lines):
        if head in line and _opens(lines[start : start + HEAD_LINES], head):
            return range(start, _end(lines, start))
    return None


def _opens(lines: Sequence[str], head: str) -> bool:
    """Whether a brace opens before a semicolon: a definition, neither a call nor a declaration."""
    text = lines[0][lines[0].index(head) :] + "".join(lines[1:])
    brace, end = text.find("{"), text.find(";")
    return brace >= 0 and (end < 0 or brace < end)


def _end(lines: Sequence[str], start: int) -> int:
    depth, opened = 0, False
    for number in range(start, len(lines)):
        code = lines[number].partition("//")[0]
        depth += code.count("{") - code.count("}")
        opened = opened or "{" in code
        if opened and depth <= 0:
            return number + 1
    return len(lines)
