# SPDX-License-Identifier: MIT
"""The generated part of a documentation page: tables of recorded runs between two marks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierlab.errors import UsageError
from tierlab.report.ledger_diff import diff_markdown
from tierlab.report.ledger_numbers import numbers_table
from tierlab.report.ledger_report import bytes_line, legend, ran_table, rules_table, verdict_line
from tierlab.run.appendlog import replace_file

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tierlab.dispatch.rules import Rule
    from tierlab.run.ledger_rows import Ledger

BEGIN = "<!-- begin: written by invoke ledger --docs -->"
END = "<!-- end: written by invoke ledger --docs -->"


def write_docs(page: Path, done: Sequence[Ledger], rules: Sequence[Rule]) -> Path:
    """Put the tables of these runs between the marks of `page`. Raises UsageError where it has none."""
    try:
        text = page.read_text(encoding="utf-8")
    except OSError as error:
        msg = f"{page}: {error.strerror}; the run is recorded, its tables were written nowhere. Name a page"
        raise UsageError(msg) from error
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        msg = f"{page} has no part between {BEGIN} and {END}; the run is recorded, the page was left as it is"
        raise UsageError(msg)
    body = "\n\n".join([*(generated(each, rules) for each in done), *_compared(done)])
    replace_file(page, [f"{before}{BEGIN}\n\n{body}\n\n{END}{after}".encode()])
    return page


def generated(ledger: Ledger, rules: Sequence[Rule]) -> str:
    """The tables of one run, with the command that makes them."""
    run = ledger.run
    parts = [
        f"`{run.command}` on {run.tree}, run {run.run} ({run.finished}).",
        verdict_line(ledger, rules),
        ran_table(ledger),
        legend(ledger.rows),
        "### Rules",
        rules_table(ledger, rules),
        "### Bytes and numbers by thread count",
        bytes_line(ledger.rows),
        numbers_table(ledger.rows),
    ]
    return "\n\n".join(part for part in parts if part)


def _compared(done: Sequence[Ledger]) -> list[str]:
    if len(done) < 2:
        return []
    return [diff_markdown(done[0], done[-1]).replace("# ", "### ", 1).rstrip()]
