# SPDX-License-Identifier: MIT
"""`report.json`: the run for programs, with its full provenance; its shape is `report.schema.json`.

It holds every cell that is not plainly a pass; all cells stand in `results.jsonl`.
"""

from __future__ import annotations

import json
import math
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from tierlab.report import text
from tierlab.report.faults import Outcome
from tierlab.report.model import reproducer

if TYPE_CHECKING:
    from tierlab.report.comparison import ChangeGroup, Comparison, SingleGroup
    from tierlab.report.model import Summary, Tally
    from tierlab.run.record import CellRecord

REPORT_SCHEMA = 1
"""Raised when a key changes its meaning or goes; a new key does not raise it."""


def report(summary: Summary) -> dict[str, Any]:
    """The report as JSON values (NaN is null)."""
    return {
        "schema": REPORT_SCHEMA,
        "headline": text.headline(summary),
        "exit_code": int(summary.exit_code),
        "times_are": text.NO_SPEED,
        "run": summary.info.to_json(),
        "total": _tally(summary.total),
        "profiles": [{"profile": name, **_tally(tally)} for name, tally in summary.profiles.items()],
        "squares": [
            {"profile": profile, "path": path, "type": types, **_tally(tally)}
            for (profile, path, types), tally in sorted(summary.squares.items())
        ],
        "cells": {result.value: _cells(summary, result) for result in Outcome if result is not Outcome.PASS},
        "comparisons": [_comparison(comparison) for comparison in summary.comparisons],
        "unnamed": summary.unnamed,
        "torn": summary.torn,
        "thread_dependence": [
            {
                "cell": entry.cell,
                "threads": list(entry.threads),
                "digests": list(entry.digests),
                "declared": entry.declared,
            }
            for entry in summary.thread_dependence
        ],
        "cost": {
            "executed": summary.executed,
            "cached": summary.cached,
            "wall_ms": round(summary.wall_ms, 3),
            "kernel_ms": round(summary.kernel_ms, 3),
            "lanes": [
                {
                    "lane": lane.lane,
                    "executed": lane.executed,
                    "wall_ms": round(lane.wall_ms, 3),
                    "kernel_ms": round(lane.kernel_ms, 3),
                }
                for lane in summary.lanes
            ],
        },
    }


def report_text(summary: Summary) -> str:
    return json.dumps(report(summary), indent=1, ensure_ascii=True, allow_nan=False) + "\n"


def schema() -> dict[str, Any]:
    """The JSON schema of `report.json`, as shipped with the package."""
    loaded: dict[str, Any] = json.loads(files(__package__).joinpath("report.schema.json").read_text("utf-8"))
    return loaded


def _tally(tally: Tally) -> dict[str, Any]:
    return {
        "cells": tally.cells,
        "verdicts": {verdict.value: number for verdict, number in sorted(tally.verdicts.items())},
        "outcomes": {result.value: number for result, number in sorted(tally.outcomes.items())},
        "worst_share": None if math.isnan(tally.worst_share) else tally.worst_share,
        "worst_cell": tally.worst.cell if tally.worst else None,
    }


def _comparison(comparison: Comparison) -> dict[str, Any]:
    step = comparison.step
    return {
        "before": step.before,
        "after": step.after,
        "patches": list(step.patches),
        "touches": list(step.touches),
        "declared": step.declared,
        "pairs": comparison.pairs,
        "open_pairs": comparison.open_pairs,
        "changed": [_group(group) for group in comparison.changed],
        "only_before": [_alone(group) for group in comparison.only_before],
        "only_after": [_alone(group) for group in comparison.only_after],
        "controls": {
            "cells": comparison.controls.total(),
            "types": dict(sorted(comparison.controls.items())),
            "without_bytes": comparison.without_bytes,
            "moved_cells": comparison.moved_cells,
            "moved": [_group(group) for group in comparison.moved],
            "stray": [_alone(group) for group in comparison.stray],
        },
    }


def _group(group: ChangeGroup) -> dict[str, Any]:
    return {
        "changes": [change.value for change in group.changes],
        "where": group.where,
        "profiles": list(group.profiles),
        "cells": [
            {"cell": pair.after.cell, "before": _answer(pair.before), "after": _answer(pair.after)}
            for pair in group.pairs
        ],
    }


def _answer(record: CellRecord) -> dict[str, Any]:
    return {
        "verdict": record.verdict.value,
        "digest": record.digest,
        "claimed": record.claimed,
        "ran": dict(record.ran),
    }


def _alone(group: SingleGroup) -> dict[str, Any]:
    return {
        "where": group.where,
        "verdicts": dict(group.verdicts),
        "cells": [record.cell for record in group.records],
    }


def _cells(summary: Summary, result: Outcome) -> list[dict[str, Any]]:
    records: list[CellRecord] = [record for group in summary.of(result) for record in group.records]
    return [{**record.to_json(), "reproduce": reproducer(record, summary.info)} for record in records]
