# SPDX-License-Identifier: MIT
"""A comparison of builds in words and rows, the same for every report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierlab.report import text
from tierlab.report.model import reproducer, shell_quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tierlab.report.comparison import ChangeGroup, Comparison, Pair, SingleGroup
    from tierlab.run.record import RunInfo

CHANGE_HEAD = ("what changed", "where", "cells", "on", "verdict", "for example")
SINGLE_HEAD = ("only in", "where", "cells", "verdicts", "for example")


def title(comparison: Comparison) -> str:
    """`stock → patched`"""
    return f"{comparison.step.before} → {comparison.step.after}"


def facts(comparison: Comparison) -> list[str]:
    """What was compared, what changed, what the controls say; a sentence each."""
    return [_what(comparison), _changes(comparison), controls(comparison)]


def _what(comparison: Comparison) -> str:
    step = comparison.step
    if not step.declared:
        return "Not one tree with more or fewer patches, so no type is a control; what differs is listed."
    if not step.patches:
        return "No patch lies between them: nothing may change."
    may = f"may change {', '.join(step.touches)}" if step.touches else "may change no type"
    noun = "patch" if len(step.patches) == 1 else f"{len(step.patches)} patches"
    return f"{noun} {', '.join(step.patches)}: {may}."


def _changes(comparison: Comparison) -> str:
    parts = [
        f"{text.plural(comparison.pairs, 'cell')} in both, {text.count(comparison.changed_cells)} changed"
    ]
    for build, groups in (
        (comparison.step.before, comparison.only_before),
        (comparison.step.after, comparison.only_after),
    ):
        alone = sum(len(group.records) for group in groups)
        if alone:
            parts.append(f"{text.count(alone)} in {build} only")
    if comparison.open_pairs:
        parts.append(f"{text.count(comparison.open_pairs)} without an answer in one of them")
    return f"{'; '.join(parts)}."


def controls(comparison: Comparison) -> str:
    """`Controls: 1 400 cells of 27 types, 0 moved.`"""
    if not comparison.step.declared:
        return "Controls: none."
    found = comparison.controls
    cells, types = text.plural(found.total(), "cell"), text.plural(len(found), "type")
    line = f"Controls: {cells} of {types}, {text.count(comparison.moved_cells)} moved"
    if comparison.without_bytes:
        line += (
            f" ({text.count(comparison.without_bytes)} of them by verdict and claim alone, for they have no "
            "bytes: claims, cells that left their buffers, bytes declared undefined)"
        )
    return f"{line}."


def change_rows(groups: Iterable[ChangeGroup]) -> Iterator[tuple[str, ...]]:
    """Under CHANGE_HEAD; the example is a cell of the later build."""
    for group in groups:
        before, after = group.example.before, group.example.after
        verdict = after.verdict.value
        if before.verdict is not after.verdict:
            verdict = f"{before.verdict.value} → {verdict}"
        profiles = text.plural(len(group.profiles), "profile")
        if len(group.profiles) < 4:
            profiles = ", ".join(group.profiles)
        what = ", ".join(group.changes)
        yield what, group.where, text.count(len(group.pairs)), profiles, verdict, after.cell


def single_rows(comparison: Comparison) -> Iterator[tuple[str, ...]]:
    """Under SINGLE_HEAD."""
    for build, groups in (
        (comparison.step.before, comparison.only_before),
        (comparison.step.after, comparison.only_after),
    ):
        for group in groups:
            yield build, group.where, text.count(len(group.records)), _verdicts(group), group.example.cell


def _verdicts(group: SingleGroup) -> str:
    return ", ".join(f"{text.count(number)} {name}" for name, number in group.verdicts.most_common())


def moved_lines(comparison: Comparison) -> Iterator[str]:
    """One line for each group of controls that moved or that one build alone has."""
    for group in comparison.moved:
        what = ", ".join(group.changes)
        cells = text.plural(len(group.pairs), "cell")
        yield f"control moved ({what}): {group.where}, {cells} on {', '.join(group.profiles)}"
    for single in comparison.stray:
        cells = text.plural(len(single.records), "cell")
        yield f"control in {single.example.build} only: {single.where}, {cells}"


def compare_again(pair: Pair, info: RunInfo) -> str:
    """The one command that compares this cell again."""
    quoted = shell_quoted(pair.after.cell)
    return reproducer(pair.after, info).replace(
        quoted, f"{shell_quoted(pair.before.cell)} --only {quoted} --compare", 1
    )
