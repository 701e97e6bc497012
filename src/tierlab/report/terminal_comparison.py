# SPDX-License-Identifier: MIT
"""The terminal's words on builds that are held against each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from tierlab.report import text
from tierlab.report.comparison_text import change_rows, compare_again, facts, moved_lines, single_rows, title

if TYPE_CHECKING:
    from rich.console import Console

    from tierlab.report.comparison import Comparison
    from tierlab.report.model import Summary

SHOWN = 12
"""Rows of a table, and groups of controls that moved; the reports hold all."""


def print_comparison(comparison: Comparison, summary: Summary, console: Console) -> None:
    """What changed, then the controls: those that moved with the command that compares one again."""
    console.print(Text(title(comparison), style="bold"))
    lines = facts(comparison)
    for line in lines[:-1]:
        console.print(Text(f"  {text.clean(line)}"), soft_wrap=True)
    rows = [row[:-1] for row in change_rows(comparison.changed)]
    rows += [
        (f"in {build} only", where, cells, "", verdicts)
        for build, where, cells, verdicts, _ in single_rows(comparison)
    ]
    if rows:
        console.print(_table(rows))
    console.print(Text(f"  {lines[-1]}", style="bold red" if comparison.moved_cells else ""), soft_wrap=True)
    moved = list(moved_lines(comparison))
    for line in moved[:SHOWN]:
        console.print(Text(f"  {text.clean(line)}", style="red"), soft_wrap=True)
    if len(moved) > SHOWN:
        console.print(Text(f"  and {len(moved) - SHOWN} more groups, see the reports", style="red"))
    if comparison.moved:
        command = compare_again(comparison.moved[0].example, summary.info)
        console.print(Text(f"  {command}"), soft_wrap=True)


def _table(rows: list[tuple[str, ...]]) -> Table:
    table = Table("what changed", "where", box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
    table.add_column("cells", justify="right")
    table.add_column("on")
    table.add_column("verdict")
    for row in rows[:SHOWN]:
        table.add_row(*(Text(text.clean(value)) for value in row))
    if len(rows) > SHOWN:
        table.add_row(Text(f"{len(rows) - SHOWN} more rows, see the reports"))
    return table
