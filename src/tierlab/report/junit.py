# SPDX-License-Identifier: MIT
"""`junit.xml`: a testsuite a lane, a testcase a cell, for CI systems that read this form."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

from tierlab.report.faults import Outcome, outcome
from tierlab.report.model import reproducer
from tierlab.report.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tierlab.report.model import Summary
    from tierlab.run.record import CellRecord

_ELEMENT = {
    Outcome.UNEXPECTED: "failure",
    Outcome.CURED: "failure",
    Outcome.UNDETERMINED: "error",
    # The form knows no "failed as declared"; skipped with the reason is the nearest that is not a success.
    Outcome.DECLARED: "skipped",
}


def junit_lines(summary: Summary) -> Iterator[str]:
    """The document, line by line (a run of 26,000 cells is never held as one text)."""
    lanes: dict[str, list[CellRecord]] = {}
    for record in summary.records:
        lanes.setdefault(record.lane, []).append(record)
    totals = _totals(summary.records)
    yield '<?xml version="1.0" encoding="UTF-8"?>\n'
    yield f'<testsuites name="tierlab"{totals} time="{summary.wall_ms / 1000:.3f}">\n'
    for lane, records in lanes.items():
        seconds = sum(record.wall_ms for record in records) / 1000
        yield f'<testsuite name={_attribute(lane)}{_totals(records)} time="{seconds:.3f}">\n'
        yield f'<properties><property name="seed" value="{summary.info.seed}"/></properties>\n'
        for record in records:
            yield _testcase(record, summary)
        yield "</testsuite>\n"
    yield "</testsuites>\n"


def _totals(records: list[CellRecord]) -> str:
    kinds = [_ELEMENT.get(outcome(record)) for record in records]
    numbers = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    texts = [f' {name}="{kinds.count(kind)}"' for name, kind in numbers.items()]
    return f' tests="{len(records)}"' + "".join(texts)


def _testcase(record: CellRecord, summary: Summary) -> str:
    head = (
        f"<testcase classname={_attribute(record.lane)} name={_attribute(record.cell)} "
        f'time="{record.wall_ms / 1000:.4f}"'
    )
    result = outcome(record)
    element = _ELEMENT.get(result)
    if element is None:
        return f"{head}/>\n"
    message = record.detail
    if result is Outcome.CURED:
        message = f"passes, but is declared {record.expected.value}: remove the declaration"
    elif result is Outcome.DECLARED:
        message = f"{record.verdict.value} as declared: {record.reason}"
    body = f"{record.detail}\n{reproducer(record, summary.info)}"
    kind = "" if element == "skipped" else f" type={_attribute(record.verdict.value)}"
    inside = f"<{element}{kind} message={_attribute(message)}>{escape(clean(body))}</{element}>"
    return f"{head}>{inside}</testcase>\n"


def _attribute(value: str) -> str:
    # A raw newline in an attribute would be read back as a blank.
    return quoteattr(clean(value), {"\n": "&#10;", "\t": "&#9;", "\r": "&#13;"})
