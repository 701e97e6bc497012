# SPDX-License-Identifier: MIT
"""Where the numbers of a product depend on the thread count, and by how much."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tierlab.report.ledger_groups import shapes_text, usual_rows
from tierlab.report.ledger_summary import dependences
from tierlab.report.tables import table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tierlab.report.ledger_summary import Bytes, Dependence
    from tierlab.run.ledger_rows import Row


@dataclass(frozen=True)
class _Alike:
    """Products of one profile, type and path that split by threads and families in the same way."""

    profile: str
    type: str
    path: str
    split: tuple[tuple[tuple[int, ...], tuple[str, ...] | None, bool], ...]


def numbers_table(rows: Sequence[Row]) -> str:
    """One line for products that split alike; NMSE against the operands as given, lowest to highest."""
    found, _ = dependences(rows)
    alike: dict[_Alike, list[Dependence]] = {}
    for each in found:
        split = tuple((part.threads, part.families, part.outputs > 1) for part in each.parts)
        alike.setdefault(_Alike(each.profile, each.type, each.path, split), []).append(each)
    usual = usual_rows([(row.columns, row.rows) for row in rows])
    lines = []
    for key, members in alike.items():
        shapes = shapes_text([(each.columns, each.rows) for each in members], usual)
        texts = [_text([each.parts[at] for each in members]) for at in range(len(key.split))]
        lines.append([key.profile, key.type, key.path, shapes, "; ".join(texts)])
    head = ["profile", "type", "path", "columns", "threads with the same bytes: what ran, NMSE"]
    return table(head, lines) if lines else ""


def _text(parts: Sequence[Bytes]) -> str:
    first = parts[0]
    figures = sorted(part.nmse_given for part in parts if part.nmse_given is not None)
    span = "no figure"
    if figures:
        low, high = f"{figures[0]:.1e}", f"{figures[-1]:.1e}"
        span = low if low == high else f"{low} to {high}"
    moving = ", other bytes at each execution" if first.outputs > 1 else ""
    families = "+".join(first.families or ()) or "unknown"
    return f"t{','.join(map(str, first.threads))}: {families} {span}{moving}"
