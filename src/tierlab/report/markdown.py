# SPDX-License-Identifier: MIT
"""`summary.md`: the page that a CI job shows. It stays under GitHub's limit of 1 MiB for a job summary."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierlab.errors import ExitCode
from tierlab.judge.verdict import Verdict
from tierlab.report import text
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
from tierlab.report.faults import Outcome, thread_groups
from tierlab.report.model import reproducer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tierlab.report.comparison import ChangeGroup, Comparison
    from tierlab.report.faults import FaultGroup
    from tierlab.report.model import Summary

SHOWN = 40
"""Groups (and threads, exclusions) listed a section; with 240 characters a text that makes some 100 KB."""

_MARK = {ExitCode.AS_EXPECTED: "✅", ExitCode.UNEXPECTED: "❌", ExitCode.UNDETERMINED: "⚠️"}
_SPECIAL = str.maketrans({char: f"\\{char}" for char in "\\`*_{}[]<>|~#&"})


def markdown(summary: Summary) -> str:
    """The whole page."""
    sections = [
        f"# {_MARK[summary.exit_code]} {text.headline(summary)}",
        _plain(text.counts(summary)),
        _profiles(summary),
        _faults(summary, "Not as expected", Outcome.UNEXPECTED, Outcome.CURED),
        _faults(summary, "Without an answer", Outcome.UNDETERMINED),
        *(_comparison(comparison, summary) for comparison in summary.comparisons),
        _shards(summary),
        _declared(summary),
        _threads(summary),
        _exclusions(summary),
        _provenance(summary),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _table(head: Iterable[str], align: str, rows: Iterable[Iterable[str]]) -> str:
    marks = {"l": ":--", "r": "--:"}
    lines = ["| " + " | ".join(head) + " |", "| " + " | ".join(marks[a] for a in align) + " |"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def _plain(value: str) -> str:
    """Text that Markdown prints as it stands."""
    return text.one_line(value).translate(_SPECIAL)


def _code(value: str) -> str:
    """Inline code; a backtick or a bar inside could end the span or the table's cell."""
    safe = text.one_line(value, 400).replace("`", "'").replace("|", "¦")
    return f"`{safe}`" if safe else ""


def _number(value: int) -> str:
    return text.count(value) if value else "·"


def _profiles(summary: Summary) -> str:
    if not summary.profiles:
        return ""
    columns = [verdict for verdict in Verdict if summary.total.unexpected[verdict]]
    extras = [result for result in (Outcome.DECLARED, Outcome.CURED) if summary.total.outcomes[result]]
    head = ["profile", "cells", "pass", *extras, *columns, "worst pass, share of budget"]
    rows = []
    for name, tally in [*summary.profiles.items(), ("**all**", summary.total)]:
        numbers = [tally.cells, tally.outcomes[Outcome.PASS], *(tally.outcomes[extra] for extra in extras)]
        numbers += [tally.unexpected[verdict] for verdict in columns]
        title = name if tally is summary.total else _plain(name)
        rows.append([title, *map(_number, numbers), text.share(tally.worst_share)])
    return _table(head, "l" + "r" * (len(head) - 1), rows)


def _faults(summary: Summary, title: str, *wanted: Outcome) -> str:
    groups = summary.of(*wanted)
    if not groups:
        return ""
    lines = [f"## {title}", "Each entry stands for all cells alike; the worst of them is shown."]
    lines += [_fault(group, summary) for group in groups[:SHOWN]]
    if len(groups) > SHOWN:
        cells = sum(len(group.records) for group in groups[SHOWN:])
        lines.append(
            f"… and {len(groups) - SHOWN} more groups ({text.count(cells)} cells): see `report.json`."
        )
    return "\n\n".join(lines)


def _fault(group: FaultGroup, summary: Summary) -> str:
    one = group.example
    figures = [f"share {text.share(one.share)}"] if one.share == one.share else []
    figures += [
        f"{name} {text.figure(value)}"
        for name, value in (("max abs", one.max_abs), ("NMSE", one.nmse), ("ULP", one.ulp))
        if value == value
    ]
    ran = ", ".join(f"{symbol} × {calls}" for symbol, calls in sorted(one.ran.items())[:6])
    evidence = [_plain(one.detail), _plain(", ".join(figures)), f"ran: {_plain(ran)}" if ran else ""]
    if one.verdict is Verdict.PASS:
        evidence = [f"passes, but is declared {one.expected.value} ({_plain(one.reason)})"]
    profiles = ", ".join(group.profiles[:6]) + (" …" if len(group.profiles) > 6 else "")
    return (
        f"**{one.verdict.value}** {_plain(group.title)}: {text.plural(len(group.records), 'cell')} on "
        f"{_plain(profiles)}  \n{' · '.join(part for part in evidence if part)}\n"
        f"```sh\n{text.clean(reproducer(one, summary.info)).replace(chr(10), ' ')}\n```"
    )


def _comparison(comparison: Comparison, summary: Summary) -> str:
    parts = [f"## {_plain(title(comparison))}", *(_plain(line) for line in facts(comparison))]
    if comparison.moved_cells:
        parts[-1] = f"**{parts[-1]}**"
        parts += ["\n".join(f"- {_plain(line)}" for line in list(moved_lines(comparison))[:SHOWN])]
        parts += [_again(group, summary) for group in comparison.moved[:1]]
    parts.append(_rows(CHANGE_HEAD, "llrlll", change_rows(comparison.changed)))
    parts.append(_rows(SINGLE_HEAD, "llrll", single_rows(comparison)))
    return "\n\n".join(part for part in parts if part)


def _again(group: ChangeGroup, summary: Summary) -> str:
    line = text.clean(compare_again(group.example, summary.info)).replace("\n", " ")
    return f"```sh\n{line}\n```"


def _rows(head: Iterable[str], align: str, rows: Iterable[Sequence[str]]) -> str:
    """A table whose last column is a cell's id; empty without rows."""
    found = [[*(_plain(value) for value in row[:-1]), _code(row[-1])] for row in rows]
    more = f"\n\n… and {len(found) - SHOWN} more: see `report.json`." if len(found) > SHOWN else ""
    return _table(head, align, found[:SHOWN]) + more if found else ""


def _shards(summary: Summary) -> str:
    lines = []
    if summary.info.missing_shards:
        listed = ", ".join(map(str, summary.info.missing_shards))
        lines.append(f"**Missing shards: {listed}.** Their cells were not tested.")
    if summary.torn:
        lines.append(f"{text.plural(len(summary.torn), 'line')} of results cut short by a crash.")
    return "\n\n".join([*lines, *(_plain(note) for note in summary.info.notes)])


def _declared(summary: Summary) -> str:
    groups = summary.of(Outcome.DECLARED)
    if not groups:
        return ""
    rows = [
        [
            group.example.verdict.value,
            _plain(group.title),
            text.count(len(group.records)),
            _plain(group.example.reason),
        ]
        for group in groups[:SHOWN]
    ]
    table = _table(["verdict", "where", "cells", "reason"], "llrl", rows)
    more = f"\n\n… and {len(groups) - SHOWN} more groups." if len(groups) > SHOWN else ""
    return f"## Faulty as declared\n\n{table}{more}"


def _threads(summary: Summary) -> str:
    found = summary.thread_dependence
    if not found:
        return ""
    groups = thread_groups(found)
    rows = [
        [
            _plain(group.where),
            text.count(len(group.members)),
            ", ".join(map(str, group.threads)),
            _plain(group.declared) or "**none**",
            _code(group.members[0].cell),
        ]
        for group in groups[:SHOWN]
    ]
    more = f"\n\n… and {len(groups) - SHOWN} more." if len(groups) > SHOWN else ""
    table = _table(["where", "problems", "threads", "declared reason", "for example"], "lrlll", rows)
    return (
        f"## Output bytes that depend on the thread count\n\n<details><summary>"
        f"{text.plural(len(found), 'problem')}</summary>\n\n{table}{more}\n\n</details>"
    )


def _exclusions(summary: Summary) -> str:
    if not summary.info.exclusions:
        return ""
    entries = summary.info.exclusions
    rows = [[text.count(e.count), _code(e.rule), _plain(e.reason)] for e in entries[:SHOWN]]
    more = f"\n\n… and {len(entries) - SHOWN} more." if len(entries) > SHOWN else ""
    return f"## Excluded\n\n{_table(['cells', 'rule', 'reason'], 'rll', rows)}{more}"


def _provenance(summary: Summary) -> str:
    info = summary.info
    rows = [
        ["run", _code(info.run_id)],
        ["tierlab", _plain(f"{info.version} {info.commit[:12]}{' (changed)' if info.dirty else ''}")],
        ["seed", str(info.seed)],
        ["preset, selection", _plain(" ".join([info.preset, *info.selection])) or "–"],
        ["engine", _plain(f"{info.engine} {info.engine_identity[:19]}")],
        *([f"emulator {_plain(name)}", _plain(value)] for name, value in info.emulators.items()),
        *([f"build {_plain(b.name)}", _plain(f"{b.source} {b.digest[:19]}")] for b in info.builds),
        ["started, finished", _plain(f"{info.started}, {info.finished or 'not finished'}")],
        ["cost", f"{_plain(text.cost(summary))}. {text.NO_SPEED}"],
    ]
    return f"## Provenance\n\n{_table(['what', 'value'], 'll', rows)}"
