# SPDX-License-Identifier: MIT
"""Two runs of the ledger in one table: what each tree executed for the same product."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tierlab.report.ledger_groups import merged, shapes_text, threads_text, usual_rows
from tierlab.report.tables import table
from tierlab.report.text import count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tierlab.report.ledger_groups import Key, Part
    from tierlab.run.ledger_rows import Ledger, Row

ABSENT = "not asked"

SAME, PATH, FAMILY, KERNELS, CALLS, ONE_SIDED = (
    "same",
    "other path",
    "other family",
    "other kernels",
    "other number of calls",
    "in one run only",
)
"""How a product differs, the weightiest difference first after `same`."""


@dataclass(frozen=True)
class Pair:
    """One product in both runs; None where a run has no row for it."""

    old: Row | None
    new: Row | None

    @property
    def difference(self) -> str:
        """The weightiest difference."""
        if self.old is None or self.new is None:
            return ONE_SIDED
        if self.old.path != self.new.path:
            return PATH
        if self.old.families != self.new.families:
            return FAMILY
        if set(self.old.calls) != set(self.new.calls):
            return KERNELS
        return SAME if dict(self.old.calls) == dict(self.new.calls) else CALLS


What = tuple[str, str, str]
"""Old run, new run, difference; in words."""


def pairs(old: Ledger, new: Ledger) -> dict[Key, Pair]:
    """Products of either run, those of the old one first."""
    rows = [{_key(row): row for row in ledger.rows} for ledger in (old, new)]
    return {key: Pair(rows[0].get(key), rows[1].get(key)) for key in dict.fromkeys([*rows[0], *rows[1]])}


def diff_markdown(old: Ledger, new: Ledger) -> str:
    """What was compared, how often they differ in what, one line for products that agree in everything."""
    found = pairs(old, new)
    counts = dict.fromkeys((SAME, PATH, FAMILY, KERNELS, CALLS, ONE_SIDED), 0)
    for pair in found.values():
        counts[pair.difference] += 1
    said = ", ".join(f"{count(number)} {name}" for name, number in counts.items() if number)
    parts = [
        f"# {_name(old)} against {_name(new)}",
        "\n".join([*_facts("old", old), *_facts("new", new)]),
        f"{count(len(found))} products: {said}.",
        "A family stands for what ran, behind the path that took the weight; calls are left out.",
        _table(found, _name(old), _name(new)),
        "## Variant and announcements",
        _announced(old, new),
    ]
    return "\n\n".join(parts) + "\n"


def diff_json(old: Ledger, new: Ledger) -> dict[str, Any]:
    """Every product with what both runs executed."""
    return {
        "schema": 1,
        "old": old.run.run,
        "new": new.run.run,
        "products": [
            {
                "profile": profile,
                "type": kind,
                "asked": asked,
                "columns": columns,
                "rows": rows,
                "threads": threads,
                "old": _side(pair.old),
                "new": _side(pair.new),
                "difference": pair.difference,
            }
            for (profile, kind, asked, (columns, rows), threads), pair in pairs(old, new).items()
        ],
    }


def _side(row: Row | None) -> dict[str, Any] | None:
    if row is None:
        return None
    return {
        "path": row.path,
        "advertised": row.choice,
        "families": None if row.families is None else list(row.families),
        "calls": dict(row.calls),
        "verdict": row.verdict,
        "broken": [check.rule for check in row.broken],
    }


def _table(found: dict[Key, Pair], old: str, new: str) -> str:
    items: dict[Key, What] = {
        key: (_words(pair.old), _words(pair.new), pair.difference) for key, pair in found.items()
    }
    every = sorted({key[4] for key in found})
    usual = usual_rows([key[3] for key in found])
    lines = [
        [group.profile, " ".join(group.types), *_part(part, every, usual)]
        for group in merged(items)
        for part in group.parts
    ]
    return table(["profile", "types", "columns", "threads", old, new, "difference"], lines)


def _part(part: Part[What], every: Sequence[int], usual: int) -> list[str]:
    old, new, difference = part.what
    threads = threads_text(part.threads, every) or "all"
    return [shapes_text(part.shapes, usual), threads, old, new, "" if difference == SAME else difference]


def _words(row: Row | None) -> str:
    if row is None:
        return ABSENT
    if not row.calls:
        return f"{row.path}: nothing ({row.verdict})"
    kernels = " + ".join(_short(name) for name in row.calls)
    return f"{row.path}: {'+'.join(row.families or ()) or 'unknown'} ({kernels})"


def _short(name: str) -> str:
    return name.removeprefix("kai_run_matmul_clamp_f32_").removeprefix("ggml_")


def _key(row: Row) -> Key:
    return row.profile, row.type, row.asked, (row.columns, row.rows), row.threads


def _name(ledger: Ledger) -> str:
    """The tree's version, or the build where it has none."""
    return ledger.run.build if ledger.run.build != "stock" else ledger.run.tree.partition(" (")[0]


def _facts(which: str, ledger: Ledger) -> list[str]:
    run = ledger.run
    notes = [f"- {which}, the build: {note}" for note in run.build_notes]
    return [f"- {which}: run {run.run}, tree {run.tree}, {_set(ledger)}", *notes]


def _set(ledger: Ledger) -> str:
    words = " ".join(f"{name}={value}" for name, value in ledger.run.environment.items())
    return f"with {words}" if words else "nothing set"


def _announced(old: Ledger, new: Ledger) -> str:
    sides = [{told.profile: told for told in ledger.run.profiles} for ledger in (old, new)]
    lines = []
    for profile in dict.fromkeys([*sides[0], *sides[1]]):
        for which, side in zip(("old", "new"), sides, strict=True):
            told = side.get(profile)
            if told is not None:
                lines.append([profile, which, told.variant or told.problem, " / ".join(told.lines)])
    return table(["profile", "run", "loaded", "log"], lines)
