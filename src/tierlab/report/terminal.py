# SPDX-License-Identifier: MIT
"""The end of a run in the terminal: a table to read in ten seconds, then how to repeat what went wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from tierlab.errors import ExitCode
from tierlab.judge.verdict import Verdict
from tierlab.report import text
from tierlab.report.faults import Outcome
from tierlab.report.model import reproducer
from tierlab.report.terminal_comparison import print_comparison

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from tierlab.report.faults import FaultGroup
    from tierlab.report.model import Summary, Tally

SHOWN = 8
"""Groups of failing cells printed; the rest is counted and found in the reports."""

_STYLE = {
    ExitCode.AS_EXPECTED: "bold green",
    ExitCode.UNEXPECTED: "bold red",
    ExitCode.UNDETERMINED: "bold yellow",
}


def print_summary(summary: Summary, console: Console, run_dir: Path | None = None) -> None:
    """Print table, failing cells and where the reports lie; ends with the headline, so it stays in view."""
    console.print(profile_table(summary))
    _print_groups(summary, console, run_dir)
    if summary.total.outcomes[Outcome.DECLARED]:
        declared = summary.of(Outcome.DECLARED)
        number = text.plural(summary.total.outcomes[Outcome.DECLARED], "cell")
        console.print(Text(f"Faulty as declared: {number} in {text.plural(len(declared), 'group')}"))
    for comparison in summary.comparisons:
        print_comparison(comparison, summary, console)
    _print_exclusions(summary, console)
    for line in _caveats(summary):
        console.print(Text(line, style="yellow"))
    console.print(Text(f"{text.cost(summary)}. {text.NO_SPEED}", style="dim"))
    if run_dir is not None:
        console.print(Text(f"Reports: {run_dir}/index.html", style="dim"), soft_wrap=True)
    console.print(Text(text.counts(summary)))
    last = Text(text.headline(summary), style=_STYLE[summary.exit_code])
    last.append(f" · seed {summary.info.seed} · exit {int(summary.exit_code)}", style="not bold default")
    console.print(last)


def profile_table(summary: Summary) -> Table:
    """Profiles down, verdicts across. Only the columns that hold anything are there."""
    columns = [verdict for verdict in Verdict if summary.total.unexpected[verdict]]
    extras = [result for result in (Outcome.DECLARED, Outcome.CURED) if summary.total.outcomes[result]]
    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold", show_footer=len(summary.profiles) > 1)
    table.add_column("profile", footer="all", no_wrap=True)
    table.add_column("cells", footer=text.count(summary.total.cells), justify="right")
    table.add_column("pass", footer=_number(summary.total.outcomes[Outcome.PASS]), justify="right")
    for extra in extras:
        table.add_column(extra.value, footer=_number(summary.total.outcomes[extra]), justify="right")
    for verdict in columns:
        table.add_column(verdict.value, footer=_number(summary.total.unexpected[verdict]), justify="right")
    table.add_column("worst pass", footer=text.share(summary.total.worst_share), justify="right")
    for name, tally in summary.profiles.items():
        table.add_row(*_row(name, tally, extras, columns))
    return table


def _row(name: str, tally: Tally, extras: list[Outcome], columns: list[Verdict]) -> list[Text]:
    passed = tally.outcomes[Outcome.PASS]
    row = [
        Text(name),
        Text(text.count(tally.cells)),
        Text(_number(passed), style="green" if passed == tally.cells else ""),
    ]
    styles = {Outcome.DECLARED: "cyan", Outcome.CURED: "red"}
    row += [Text(_number(tally.outcomes[extra]), style=styles[extra]) for extra in extras]
    for verdict in columns:
        open_question = verdict in (Verdict.UNTESTED, Verdict.UNBUILDABLE)
        row.append(Text(_number(tally.unexpected[verdict]), style="yellow" if open_question else "bold red"))
    row.append(Text(text.share(tally.worst_share)))
    return row


def _number(value: int) -> str:
    return text.count(value) if value else "·"


def _print_groups(summary: Summary, console: Console, run_dir: Path | None) -> None:
    groups = summary.of(Outcome.UNEXPECTED, Outcome.CURED, Outcome.UNDETERMINED)
    for group in groups[:SHOWN]:
        # Never cut or wrapped: the cause often stands at the end, in a log as in a terminal, and a command
        # that was broken over two lines cannot be copied.
        console.print(group_title(group), soft_wrap=True)
        if group.example.detail:
            console.print(Text(f"  {text.one_line(group.example.detail, 500)}"), soft_wrap=True)
        command = Text(f"  {reproducer(group.example, summary.info)}")
        console.print(command, soft_wrap=True)
    if len(groups) > SHOWN:
        cells = sum(len(group.records) for group in groups[SHOWN:])
        place = f"{run_dir}/summary.md" if run_dir is not None else "the reports"
        console.print(Text(f"and {len(groups) - SHOWN} more groups ({text.count(cells)} cells), see {place}"))
    if groups:
        console.print()


def group_title(group: FaultGroup) -> Text:
    """`fail  ggml.mul_mat iq4_xs repack (stock): 12 cells on 3 profiles, worst 44 × the budget`"""
    one = group.example
    title = Text(f"{one.verdict.value:<8} ", style="yellow" if one.undetermined else "bold red")
    title.append(group.title, style="bold")
    size = f": {text.plural(len(group.records), 'cell')} on {text.plural(len(group.profiles), 'profile')}"
    title.append(size)
    if one.share > 1:
        title.append(f", worst {text.share(one.share)} the budget")
    if one.verdict is Verdict.PASS:
        title.append(f", declared {one.expected.value} ({text.one_line(one.reason, 100)})")
    return title


def _print_exclusions(summary: Summary, console: Console) -> None:
    entries = summary.info.exclusions
    for entry in entries[:SHOWN]:
        line = (
            f"Excluded: {text.count(entry.count)} × {text.clean(entry.rule)}: {text.one_line(entry.reason)}"
        )
        console.print(Text(line, style="dim"), no_wrap=True, overflow="ellipsis")
    if len(entries) > SHOWN:
        left = sum(entry.count for entry in entries[SHOWN:])
        line = f"Excluded: {text.plural(left, 'cell')} by {len(entries) - SHOWN} more rules, see the reports"
        console.print(Text(line, style="dim"))


def _caveats(summary: Summary) -> list[str]:
    lines = list(summary.info.notes)
    if summary.info.missing_shards:
        listed = ", ".join(map(str, summary.info.missing_shards))
        lines.append(f"Missing shards: {listed}. Their cells were not tested.")
    if summary.torn:
        lines.append(
            f"{text.plural(len(summary.torn), 'line')} cut short by a crash, first {summary.torn[0]}"
        )
    undeclared = [entry for entry in summary.thread_dependence if not entry.declared]
    if undeclared:
        lines.append(
            f"{text.plural(len(undeclared), 'problem')} with other output bytes at another thread count and "
            f"no declared reason, first {undeclared[0].cell}"
        )
    return [text.clean(line) for line in lines]
