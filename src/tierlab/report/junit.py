# SPDX-License-Identifier: MIT
"""`junit.xml`: a testsuite a lane, a testcase a cell, for CI systems that read this form."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

from tierlab.report.comparison_text import controls, moved_lines, title
from tierlab.report.faults import Outcome, outcome
from tierlab.report.model import reproducer
from tierlab.report.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tierlab.report.comparison import Comparison
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
    suites = [_comparison(comparison) for comparison in summary.comparisons]
    kinds = [_kind(record) for record in summary.records] + [kind for kind, _ in suites]
    yield '<?xml version="1.0" encoding="UTF-8"?>\n'
    yield f'<testsuites name="tierlab"{_totals(kinds)} time="{summary.wall_ms / 1000:.3f}">\n'
    for lane, records in lanes.items():
        seconds = sum(record.wall_ms for record in records) / 1000
        totals = _totals([_kind(record) for record in records])
        yield f'<testsuite name={_attribute(lane)}{totals} time="{seconds:.3f}">\n'
        yield f'<properties><property name="seed" value="{summary.info.seed}"/></properties>\n'
        for record in records:
            yield _testcase(record, summary)
        yield "</testsuite>\n"
    yield from (suite for _, suite in suites)
    yield "</testsuites>\n"


def _comparison(comparison: Comparison) -> tuple[str | None, str]:
    """A suite of one case, and its outcome: a control that moved is a failure of no cell."""
    kind, message, body = None, controls(comparison), ""
    if comparison.moved_cells:
        kind, body = "failure", "\n".join(moved_lines(comparison))
    elif not comparison.pairs:
        kind, message = "error", "nothing was compared"
    name = _attribute(f"controls {title(comparison)}")
    inside = ""
    if kind is not None:
        inside = f'<{kind} type="moved" message={_attribute(message)}>{escape(clean(body))}</{kind}>'
    case = f'<testcase classname={name} name={name} time="0">{inside}</testcase>'
    return kind, f'<testsuite name={name}{_totals([kind])} time="0">\n{case}\n</testsuite>\n'


def _kind(record: CellRecord) -> str | None:
    return _ELEMENT.get(outcome(record))


def _totals(kinds: list[str | None]) -> str:
    numbers = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    texts = [f' {name}="{kinds.count(kind)}"' for name, kind in numbers.items()]
    return f' tests="{len(kinds)}"' + "".join(texts)


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
