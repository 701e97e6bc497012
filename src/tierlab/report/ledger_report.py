# SPDX-License-Identifier: MIT
"""A ledger's run as Markdown: the short form for a terminal and the long one for a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierlab.dispatch.divergence import (
    AGREE,
    CLASSES,
    HYBRID,
    NOTHING,
    OTHER,
    REACH_CLASSES,
    SILENT,
    UNADVERTISED,
    UNKNOWN,
)
from tierlab.report.ledger_groups import merged, shapes_text, threads_text, usual_rows
from tierlab.report.ledger_numbers import numbers_table
from tierlab.report.ledger_summary import breaks, dependences, exit_code, reach, rule_totals
from tierlab.report.tables import code, table
from tierlab.report.text import count, plural
from tierlab.run.ledger_rows import OWN

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tierlab.dispatch.rules import Rule
    from tierlab.report.ledger_groups import Group, Key
    from tierlab.run.ledger_rows import Ledger, LedgerRun, Row

MARKS = {AGREE: "=", OTHER: "≠", HYBRID: "±", SILENT: "", UNADVERTISED: "!", NOTHING: "0", UNKNOWN: "?"}
"""Behind a family in a table: how it compares with what was announced."""

SHOWN = 20
"""Broken predictions and rows without one, spelled out; the rest stand in the JSON."""

Cell = tuple[str, str, tuple[str, ...], str]
"""Path, announced family, compiled families, executed families with their mark."""


def short_form(ledger: Ledger, rules: Sequence[Rule]) -> str:
    """What a terminal shows: what ran where, whether every prediction held, where bytes depend on threads."""
    parts = [
        f"# Dispatch ledger: {ledger.run.tree}",
        ran_table(ledger),
        legend(ledger.rows),
        *_broken(ledger),
        *_unknown(ledger),
        bytes_line(ledger.rows),
        verdict_line(ledger, rules),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def ran_table(ledger: Ledger) -> str:
    """Advertised, compiled and executed families, one line for types that agree."""
    told = {each.profile: each for each in ledger.run.profiles}
    never = {(r.profile, r.type, r.asked): r.unreachable for r in reach(ledger.rows, told)}
    items = {_key(row): _cell(row) for row in ledger.rows}
    groups = merged(items)
    usual = usual_rows([(row.columns, row.rows) for row in ledger.rows])
    head = ["profile", "types", "path", "advertised", "compiled", "executed (columns: family)", "unreachable"]
    rows = []
    for group in groups:
        path, choice, compiled, _ = group.parts[0].what
        idle = sorted({" ".join(never.get((group.profile, kind, group.asked), ())) for kind in group.types})
        rows.append(
            [
                group.profile,
                " ".join(group.types),
                path if group.asked == OWN else f"{path} (asked)",
                choice or "–",
                " ".join(compiled) or "–",
                _executed(group, usual, ledger.rows),
                " ".join(idle) or "–",
            ]
        )
    return table(head, rows)


def _executed(group: Group[Cell], usual: int, rows: Iterable[Row]) -> str:
    rows = list(rows)
    every = sorted({row.threads for row in rows})
    shapes = {(row.columns, row.rows) for row in rows}
    texts = []
    for part in group.parts:
        threads = threads_text(part.threads, every)
        where = "all" if set(part.shapes) == shapes else shapes_text(part.shapes, usual)
        texts.append(f"{where}{f' {threads}' if threads else ''}: {part.what[3]}")
    return "; ".join(texts)


def _key(row: Row) -> Key:
    return row.profile, row.type, row.asked, (row.columns, row.rows), row.threads


def _cell(row: Row) -> Cell:
    families = "+".join(row.families or ()) or ("none" if row.families is not None else "unknown")
    mark = MARKS[row.divergence]
    return row.path, row.choice, row.compiled, f"{families} {mark}".rstrip()


def legend(rows: Iterable[Row]) -> str:
    """The marks that occur."""
    seen = dict.fromkeys(row.divergence for row in rows)
    words = [f"{MARKS[name]} {name}" for name in CLASSES if name in seen and MARKS[name]]
    return "Marks: " + ", ".join(words) + "." if words else ""


def _broken(ledger: Ledger) -> list[str]:
    found = breaks(ledger.rows)
    if not found:
        return []
    rows = [
        [
            each.check.rule,
            each.check.predicted,
            each.check.observed,
            count(len(each.rows)),
            code(each.rows[0].cell),
        ]
        for each in found[:SHOWN]
    ]
    more = [f"{count(len(found) - SHOWN)} more are in the JSON."] if len(found) > SHOWN else []
    head = ["rule", "predicted (old)", "observed (new)", "rows", "the first"]
    return ["## Rules that this tree breaks", table(head, rows), *more]


def _unknown(ledger: Ledger) -> list[str]:
    lines = [f"- {each.profile}: {each.problem}" for each in ledger.run.profiles if each.problem]
    silent = [row for row in ledger.rows if not row.predicted]
    lines += [f"- no rule says which kernels run: {code(row.cell)}" for row in silent[:SHOWN]]
    odd = [row for row in ledger.rows if not row.as_expected]
    lines += [f"- {row.verdict}: {code(row.cell)} {row.detail}" for row in odd[:SHOWN]]
    left = len(silent) + len(odd) - min(len(silent), SHOWN) - min(len(odd), SHOWN)
    lines += [f"- {count(left)} more are in the JSON"] if left else []
    return ["## Not as expected, or not known", "\n".join(lines)] if lines else []


def bytes_line(rows: Sequence[Row]) -> str:
    """In how many products the bytes depend on the thread count, and where."""
    found, products = dependences(rows)
    if not found:
        return f"Bytes: the same at all thread counts in each of {plural(products, 'product')}."
    where = dict.fromkeys(f"{each.profile} {each.type} on {each.path}" for each in found)
    names = list(where)
    text = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
    return f"Bytes: {count(len(found))} of {plural(products, 'product')} depend on the thread count: {text}."


def verdict_line(ledger: Ledger, rules: Sequence[Rule]) -> str:
    """Counts and the exit code, on one line."""
    totals = rule_totals(ledger.rows, [rule.id for rule in rules])
    held, broken = sum(each.held for each in totals), sum(each.broken for each in totals)
    untold = sum(each.untold for each in totals)
    share = f"{100 * held / (held + broken):.4g} %" if held + broken else "none"
    silent = f", {count(untold)} of which nothing is told" if untold else ""
    return (
        f"{plural(len(ledger.rows), 'row')} on {plural(len(ledger.run.profiles), 'profile')} · predictions: "
        f"{count(held)} held, {count(broken)} broken ({share}){silent} · exit "
        f"{int(exit_code(ledger.rows, ledger.run.profiles))}"
    )


def long_form(ledger: Ledger, rules: Sequence[Rule]) -> str:
    """The whole run: the short form, the rules with their places, kernels, numbers and binaries."""
    run = ledger.run
    parts = [
        f"# Dispatch ledger: {run.tree}",
        "\n".join(_facts(run)),
        verdict_line(ledger, rules),
        *_broken(ledger),
        *_unknown(ledger),
        "## What ran",
        ran_table(ledger),
        legend(ledger.rows),
        "\n".join(f"- **{name}**: {text}" for name, text in {**CLASSES, **REACH_CLASSES}.items()),
        "## Rules",
        rules_table(ledger, rules),
        "## Bytes and numbers by thread count",
        bytes_line(ledger.rows),
        numbers_table(ledger.rows),
        "## Kernels",
        _kernels(ledger),
        "## What each profile announced, and what is compiled into the file that it loaded",
        _announced(run),
        "## Files",
        run.models_note[:1].upper() + run.models_note[1:] + ".",
        _binaries(run),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _facts(run: LedgerRun) -> list[str]:
    set_here = " ".join(f"{name}={value}" for name, value in run.environment.items()) or "nothing"
    return [
        f"- run {run.run}, {run.started} to {run.finished}, lab {run.version} {run.commit[:12]}"
        f"{' with changes' if run.dirty else ''}, seed {run.seed}",
        f"- build {run.build} {run.build_digest[:16]} of tree {run.tree_digest[:16]}",
        f"- engine {run.engine}, image {run.engine_identity[:16]}, emulators "
        + ", ".join(f"{name} {version}" for name, version in run.emulators.items()),
        f"- set for the processes: {set_here}",
        *(f"- the build: {note}" for note in run.build_notes),
    ]


def rules_table(ledger: Ledger, rules: Sequence[Rule]) -> str:
    """Every rule in words, how often it was tested, and the lines of the tree that decide it."""
    totals = {each.rule: each for each in rule_totals(ledger.rows, [rule.id for rule in rules])}
    places: dict[str, list[str]] = {}
    for place in ledger.run.places:
        places.setdefault(place.rule, []).append(place.at or f"**{place.missing}**")
    rows = []
    for rule in rules:
        total = totals[rule.id]
        tested = f"{count(total.held)} of {count(total.held + total.broken)}" if total.rows else "no row"
        rows.append([rule.id, rule.says, tested, ", ".join(dict.fromkeys(places.get(rule.id, [])))])
    return table(["rule", "says", "held", "decided at"], rows)


def _kernels(ledger: Ledger) -> str:
    items = {_key(row): tuple(row.calls.items()) for row in ledger.rows}
    every = sorted({row.threads for row in ledger.rows})
    usual = usual_rows([(row.columns, row.rows) for row in ledger.rows])
    rows = []
    for group in merged(items):
        for part in group.parts:
            calls = ", ".join(f"{name} × {calls}" for name, calls in part.what) or "none"
            threads = threads_text(part.threads, every) or "all"
            rows.append(
                [group.profile, " ".join(group.types), shapes_text(part.shapes, usual), threads, calls]
            )
    return table(["profile", "types", "columns", "threads", "kernels and exact calls"], rows)


def _announced(run: LedgerRun) -> str:
    rows = []
    for told in run.profiles:
        families = ", ".join(f"{family} {number}" for family, number in sorted(told.compiled.items()))
        classes = ", ".join(f"{name} {number}" for name, number in told.instructions.items() if number)
        rows.append(
            [
                told.profile,
                told.variant,
                " / ".join(told.lines),
                " ".join(told.banner),
                families,
                classes,
            ]
        )
    head = ["profile", "loaded", "log", "features of the backend", "product kernels compiled", "instructions"]
    return table(head, rows)


def _binaries(run: LedgerRun) -> str:
    seen = {binary: None for told in run.profiles for binary in told.binaries}
    rows = [
        [binary.role, binary.path, count(binary.bytes), binary.sha256]
        for binary in sorted(seen, key=lambda each: (each.role, each.path))
    ]
    return table(["role", "file", "bytes", "sha256"], rows)
