# SPDX-License-Identifier: MIT
"""The results as the page embeds them: columns of indexes into lists of distinct texts.

Some 26,000 cells take 2 to 3 MB this way; one object a cell would take ten times that.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from tierlab.judge.verdict import Verdict
from tierlab.report.faults import SEVERITY, Outcome, outcome
from tierlab.report.model import reproducer, shell_quoted
from tierlab.report.text import clean

if TYPE_CHECKING:
    from collections.abc import Hashable

    from tierlab.report.model import Summary
    from tierlab.run.record import CellRecord

AXES = ("profile", "suite", "type", "path", "build", "shape", "inputs")
FIGURES = ("share", "nmse", "max_abs", "ulp", "resolution")
LETTERS = {
    Verdict.PASS: "",
    Verdict.FAIL: "F",
    Verdict.VACUOUS: "V",
    Verdict.DRIFT: "D",
    Verdict.GUARD: "G",
    Verdict.ABI: "A",
    Verdict.CRASH: "C",
    Verdict.TIMEOUT: "T",
    Verdict.UNBUILDABLE: "U",
    Verdict.UNTESTED: "?",
}
DIGEST_SHOWN = 16
COMMAND = "invoke matrix --only "

_PATHS = ("default", "repack", "kleidiai")
_FAMILIES = (("f32", "f16", "bf16", "f"), ("q8",), ("q",), ("iq",), ("tq",), ("mxfp", "nvfp"))


class _Distinct:
    """Distinct values in the order of first sight, and where each occurs."""

    def __init__(self, values: list[Any] | None = None) -> None:
        self.values: list[Any] = []
        self._index: dict[Hashable, int] = {}
        for value in values or []:
            self.add(value)

    def add(self, value: Hashable) -> int:
        index = self._index.get(value)
        if index is None:
            index = self._index[value] = len(self.values)
            self.values.append(value)
        return index


def type_order(name: str) -> tuple[int, str]:
    """Floats, then legacy, K, IQ, ternary and FP4 types: the order of ggml's families, not the alphabet."""
    if name in _FAMILIES[0]:
        return 0, str(_FAMILIES[0].index(name))
    if name.startswith("q") and "_k" in name:
        return 3, name
    for rank, prefixes in enumerate(_FAMILIES):
        if name.startswith(prefixes):
            return (rank if rank < 3 else rank + 1), name
    return len(_FAMILIES) + 1, name


def path_order(name: str) -> tuple[int, str]:
    return (_PATHS.index(name) if name in _PATHS else len(_PATHS)), name


def page_data(summary: Summary) -> dict[str, Any]:
    """Everything that the page's script needs; all texts are free of control characters."""
    records = summary.records
    axes = {name: _Distinct(_ordered(name, summary)) for name in AXES}
    threads = _Distinct(sorted({record.threads for record in records}))
    details, reasons, ran = _Distinct([""]), _Distinct([""]), _Distinct([()])
    verdicts = list(Verdict)
    outcomes = list(Outcome)
    columns: dict[str, list[Any]] = {
        name: [axes[name].add(clean(getattr(record, name))) for record in records] for name in AXES
    }
    columns["threads"] = [threads.add(record.threads) for record in records]
    columns["verdict"] = [verdicts.index(record.verdict) for record in records]
    columns["outcome"] = [outcomes.index(outcome(record)) for record in records]
    for name in FIGURES:
        columns[name] = [_short(getattr(record, name)) for record in records]
    columns["wall_ms"] = [round(record.wall_ms, 1) for record in records]
    columns["kernel_ms"] = [round(record.kernel_ms, 1) for record in records]
    columns["cached"] = [int(record.cached) for record in records]
    columns["claimed"] = [None if record.claimed is None else int(record.claimed) for record in records]
    columns["digest"] = [record.digest[:DIGEST_SHOWN] for record in records]
    columns["detail"] = [details.add(clean(record.detail)) for record in records]
    columns["reason"] = [reasons.add(clean(record.reason)) for record in records]
    columns["ran"] = [ran.add(tuple(sorted(record.ran.items()))) for record in records]
    return {
        "axes": {**{name: axes[name].values for name in AXES}, "threads": threads.values},
        "columns": columns,
        "texts": {
            "detail": details.values,
            "reason": reasons.values,
            "ran": [[[clean(symbol), calls] for symbol, calls in item] for item in ran.values],
        },
        "verdicts": [verdict.value for verdict in verdicts],
        "letters": [LETTERS[verdict] for verdict in verdicts],
        "severity": [SEVERITY[verdict] for verdict in verdicts],
        "outcomes": ["pass", "as declared", "pass against their declaration", "not as expected", "no answer"],
        "ids": {index: clean(record.cell) for index, record in enumerate(records) if _odd(record)},
        "layout": _layout(summary, axes),
        "profiles": [_products(summary, name) for name in axes["profile"].values],
        "command": COMMAND,
        "options": _options(summary, axes["build"].values),
    }


def embed(value: object) -> str:
    """JSON that can stand in a script element: no `<` closes it, whatever the results contain."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _ordered(name: str, summary: Summary) -> list[str]:
    values = {clean(getattr(record, name)) for record in summary.records}
    if name == "profile":
        return [clean(profile) for profile in summary.profiles]
    if name == "type":
        return sorted(values, key=type_order)
    return sorted(values, key=path_order if name == "path" else str)


def _layout(summary: Summary, axes: dict[str, _Distinct]) -> list[list[Any]]:
    pairs = {(clean(path), clean(types)) for _, path, types in summary.squares}
    paths = sorted({path for path, _ in pairs}, key=path_order)
    return [
        [
            axes["path"].add(path),
            [axes["type"].add(t) for t in sorted((t for p, t in pairs if p == path), key=type_order)],
        ]
        for path in paths
    ]


def _odd(record: CellRecord) -> bool:
    axes = (record.suite, record.type, record.shape, record.inputs, record.path)
    return record.cell != "/".join((*axes, f"t{record.threads}", record.build, record.profile))


def _products(summary: Summary, name: str) -> str:
    for profile in summary.info.profiles:
        if clean(profile.name) == name:
            return clean(f"{profile.emulator} -cpu {profile.cpu}; {', '.join(profile.products)}".rstrip("; "))
    return name


def _options(summary: Summary, builds: list[str]) -> list[str]:
    """The reproducer's words after the cell id, a build."""
    found = {}
    for record in summary.records:
        if clean(record.build) not in found:
            line = reproducer(record, summary.info)
            found[clean(record.build)] = clean(line[len(COMMAND + shell_quoted(record.cell)) :])
    return [found[build] for build in builds]


def _short(value: float) -> float | str | None:
    """Four significant digits: the page prints three."""
    if math.isnan(value):
        return None
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return float(f"{value:.4g}")
