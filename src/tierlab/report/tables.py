# SPDX-License-Identifier: MIT
"""Markdown tables for the surveys' reports; the same text is what a terminal shows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tierlab.report import text
from tierlab.run.appendlog import replace_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path
    from typing import Any

WIDEST = 1200
"""Characters in a cell; the branch of one type, spelled out, is the longest text in a table."""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table whose columns are padded, so that it reads as plain text too."""
    body = [[_cell(value) for value in row] for row in rows]
    titles = [_cell(value) for value in head]
    widths = [max(len(row[at]) for row in [titles, *body]) for at in range(len(titles))]
    lines = [_line(titles, widths), "| " + " | ".join("-" * max(width, 3) for width in widths) + " |"]
    return "\n".join(lines + [_line(row, widths) for row in body])


def code(value: str) -> str:
    """Inline code; empty stays empty."""
    return f"`{value.replace('`', chr(39))}`" if value else ""


def write_both(folder: Path, name: str, markdown: str, value: Any) -> tuple[Path, Path]:
    """Write `name`.md and `name`.json into the folder; returns their paths. Raises StoreError."""
    paths = folder / f"{name}.md", folder / f"{name}.json"
    replace_file(paths[0], (markdown.encode(),))
    replace_file(paths[1], ((json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode(),))
    return paths


def _line(values: Sequence[str], widths: Sequence[int]) -> str:
    padded = (value.ljust(max(width, 3)) for value, width in zip(values, widths, strict=True))
    return f"| {' | '.join(padded)} |"


def _cell(value: str) -> str:
    return text.one_line(value, WIDEST).replace("|", "\\|")
