# SPDX-License-Identifier: MIT
"""The source lines that decide what a fast path accepts, found by text search in the tree under test."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tierlab.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

REPACK_FILE = "src/ggml-cpu/repack.cpp"
KLEIDIAI_FILE = "src/ggml-cpu/kleidiai/kleidiai.cpp"
PICKER = "ggml_repack_get_optimal_repack_type("
SUPPORTS = "bool supports_op("
ARM_QUESTIONS = ("ggml_cpu_has_neon", "ggml_cpu_has_sve", "ggml_cpu_has_sme", "ggml_cpu_has_arm")


@dataclass(frozen=True)
class Line:
    """One line of a source file: path from the tree's `ggml/`, number from 1, text without indentation."""

    path: str
    number: int
    text: str

    @property
    def place(self) -> str:
        return f"ggml/{self.path}:{self.number}"


@dataclass(frozen=True)
class Deciders:
    """The lines behind a path's claims.

    `functions` are where the deciding functions begin, `conditions` their demands on any type; `branches`
    maps a type to the lines that name it and, below them, what is asked of CPU and shape.
    """

    functions: tuple[Line, ...]
    conditions: tuple[Line, ...]
    branches: dict[str, tuple[Line, ...]]


def deciders(ggml: Path, symbols: dict[str, str]) -> dict[str, Deciders]:
    """The deciding lines of `repack` and `kleidiai`; `symbols` maps type names to ggml's spelling (`q4_K`).

    Raises SourceError if a function is not where it is looked for: then nobody knows what decides.
    """
    return {"repack": _repack(ggml, symbols), "kleidiai": _kleidiai(ggml, symbols)}


def _repack(ggml: Path, symbols: dict[str, str]) -> Deciders:
    lines = _lines(ggml, REPACK_FILE)
    picker = _function(lines, REPACK_FILE, PICKER)
    supports = _function(lines, REPACK_FILE, SUPPORTS)
    branches = {}
    for kind, symbol in symbols.items():
        start = next((at for at, line in enumerate(picker) if _names(line.text, "cur", symbol)), None)
        branches[kind] = () if start is None else tuple(_branch(picker[start:]))
    return Deciders((picker[0], supports[0]), tuple(_conditions(supports)), branches)


def _kleidiai(ggml: Path, symbols: dict[str, str]) -> Deciders:
    lines = _lines(ggml, KLEIDIAI_FILE)
    supports = _function(lines, KLEIDIAI_FILE, SUPPORTS)
    branches = {
        kind: tuple(line for line in supports if _names(line.text, "op->src[0]", symbol))
        for kind, symbol in symbols.items()
    }
    named = {line.number for found in branches.values() for line in found}
    conditions = tuple(line for line in _conditions(supports) if line.number not in named)
    return Deciders((supports[0],), conditions, branches)


def _lines(ggml: Path, path: str) -> list[Line]:
    try:
        text = (ggml / path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        msg = f"{ggml / path}: {error.strerror}; what decides its claims is unknown. Check the tree"
        raise SourceError(msg) from error
    return [Line(path, number, line) for number, line in enumerate(text.splitlines(), 1)]


def _function(lines: list[Line], path: str, head: str) -> list[Line]:
    """The definition whose head holds the text, from its first line to the brace that closes it."""
    for at, line in enumerate(lines):
        if head in line.text and line.text.rstrip().endswith("{"):
            return list(_braced(lines[at:]))
    msg = (
        f"no definition with {head!r} in ggml/{path}: what decides the claims of this tree is unknown. "
        "Look for what replaced it"
    )
    raise SourceError(msg)


def _braced(lines: Iterable[Line]) -> Iterator[Line]:
    depth = 0
    for line in lines:
        code = line.text.partition("//")[0]
        depth += code.count("{") - code.count("}")
        yield Line(line.path, line.number, line.text.strip())
        if depth <= 0:
            return


def _names(text: str, tensor: str, symbol: str) -> bool:
    """Whether the line asks if `tensor` (the weights) is of that type."""
    pattern = rf"{re.escape(tensor)}->type == GGML_TYPE_{re.escape(symbol)}\b"
    return re.search(pattern, text, re.IGNORECASE) is not None


def _conditions(lines: list[Line]) -> Iterator[Line]:
    words = ("op->op ==", "op->op !=", "ggml_n_dims", "ggml_ne(", "->type ==", "->type !=", "buft", "context")
    return (
        line for line in lines if not line.text.startswith("//") and any(word in line.text for word in words)
    )


def _branch(lines: list[Line]) -> Iterator[Line]:
    """The `if` that names a type and, of its branch, what is asked of an Arm CPU and what is answered."""
    yield lines[0]
    ours = False
    for line in lines[1:]:
        if "cur->type ==" in line.text:
            return
        if "ggml_cpu_has" in line.text:
            ours = any(word in line.text for word in ARM_QUESTIONS)
        if ours and any(word in line.text for word in ("ggml_cpu_has", "cur->ne[", "return &")):
            yield line
