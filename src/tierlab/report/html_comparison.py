# SPDX-License-Identifier: MIT
"""The page's part on builds that are held against each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierlab.report.comparison_text import (
    CHANGE_HEAD,
    SINGLE_HEAD,
    change_rows,
    compare_again,
    facts,
    moved_lines,
    single_rows,
    title,
)
from tierlab.report.html_sections import LISTED, fold, plain_table, safe

if TYPE_CHECKING:
    from tierlab.report.comparison import Comparison
    from tierlab.report.model import Summary


def comparison_sections(summary: Summary) -> str:
    """One section for each comparison; a control that moved stands open, at its head."""
    return "\n".join(_section(comparison, summary) for comparison in summary.comparisons)


def _section(comparison: Comparison, summary: Summary) -> str:
    *told, controls = facts(comparison)
    tone = ' class="alert"' if comparison.moved_cells else ""
    body = [*(f"<p>{safe(line)}</p>" for line in told), f"<p{tone}>{safe(controls)}</p>"]
    body += [f"<p{tone}>{safe(line)}</p>" for line in list(moved_lines(comparison))[:LISTED]]
    for group in comparison.moved[:1]:
        command = safe(compare_again(group.example, summary.info))
        copy = f'<button type="button" class="copy" data-copy="{command}">Copy</button>'
        body.append(f'<p class="run"><code>{command}</code> {copy}</p>')
    changes, alone = list(change_rows(comparison.changed)), list(single_rows(comparison))
    if changes:
        table = plain_table(CHANGE_HEAD, changes[:LISTED], ("", "mono", "num", "", "", "mono"))
        body.append(fold("Changed", f"{len(changes)} groups of like cells", table))
    if alone:
        table = plain_table(SINGLE_HEAD, alone[:LISTED], ("mono", "mono", "num", "", "mono"))
        body.append(fold("In one build only", f"{len(alone)} groups", table))
    note = "<small>builds held against each other</small>"
    head = f'<div class="bar"><h2>{safe(title(comparison))}{note}</h2></div>'
    return f'<section class="faults">{head}<div>{"".join(body)}</div></section>'
