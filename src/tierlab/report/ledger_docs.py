# SPDX-License-Identifier: MIT
"""The generated part of a documentation page: tables of a run, or of a comparison, between marks."""

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

RUN, COMPARISON = "a run", "a comparison"
"""What a pair of marks encloses."""


def marks(what: str) -> tuple[str, str]:
    """The lines of a page between which the tables of `what` stand."""
    return f"<!-- begin: {what}, written by invoke ledger --docs -->", f"<!-- end: {what} -->"


def write_docs(page: Path, what: str, body: str) -> Path:
    """Put `body` between the marks of `page`. Raises UsageError where it has none."""
    try:
        text = page.read_text(encoding="utf-8")
    except OSError as error:
        msg = f"{page}: {error.strerror}; the run is recorded, its tables were written nowhere. Name a page"
        raise UsageError(msg) from error
    first, last = marks(what)
    before, begin, rest = text.partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        msg = f"{page} has no part between {first} and {last}; the run is recorded, the page is as it was"
        raise UsageError(msg)
    replace_file(page, [f"{before}{first}\n\n{body.strip()}\n\n{last}{after}".encode()])
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


def generated_diff(old: Ledger, new: Ledger) -> str:
    """The comparison of two runs, as part of a page."""
    return diff_markdown(old, new).replace("\n## ", "\n#### ").replace("# ", "### ", 1)
