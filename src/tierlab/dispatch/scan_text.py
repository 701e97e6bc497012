# SPDX-License-Identifier: MIT
"""Scans as text for a terminal and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tierlab.dispatch.instruction_classes import CLASSES
from tierlab.dispatch.scan import LAYER
from tierlab.dispatch.scan_families import OTHER, UNNAMED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tierlab.dispatch.scan import FileScan
    from tierlab.dispatch.scan_binary import Binary

FORMAT = 1
"""Of the JSON; a field that is added leaves it."""

_NONE = "·"
_MOST_SHOWN = 20


def as_json(scans: Sequence[FileScan]) -> dict[str, Any]:
    """Everything, as plain data."""
    return {"format": FORMAT, "layer": "L1", "says": LAYER, "files": [_file(scan) for scan in scans]}


def _file(scan: FileScan) -> dict[str, Any]:
    return {**asdict(scan), "exit_code": int(scan.exit_code)}


def as_text(scans: Sequence[FileScan]) -> Iterator[str]:
    """Lines: the verdicts, each with its binaries; last of all what the layer does not say."""
    for scan in scans:
        yield f"{scan.path}: {scan.verdict}"
        for problem in scan.problems[1:_MOST_SHOWN]:
            yield f"  {problem}"
        if len(scan.problems) > _MOST_SHOWN:
            yield f"  … and {len(scan.problems) - _MOST_SHOWN:,} more"
        for binary in scan.binaries:
            yield ""
            yield from _binary(scan, binary)
        if scan.binaries:
            yield ""
    yield LAYER


def _binary(scan: FileScan, binary: Binary) -> Iterator[str]:
    yield f"  {binary.name or scan.path}"
    yield f"    {binary.kind}, {binary.size:,} bytes, {binary.code_bytes:,} of code, sha256 {binary.sha256}"
    facts = ["symbols stripped" if binary.stripped else "not stripped"]
    facts += [f"soname {binary.soname}"] if binary.soname else []
    facts += [f"ggml {binary.ggml_version} ({binary.ggml_commit})"] if binary.ggml_version else []
    facts += [f"{binary.members} objects"] if binary.members != 1 else []
    yield "    " + ", ".join(facts)
    yield f"    KleidiAI: {binary.kleidiai} ({binary.kleidiai_reason})"
    for note in binary.notes:
        yield f"    {note}"
    yield from (f"    {line}" for line in _table(binary))


def _table(binary: Binary) -> Iterator[str]:
    """Instructions by family of kernels and class."""
    rows = [["instructions", "symbols", *CLASSES]]
    last = {OTHER: 1, UNNAMED: 2}
    for title in sorted(binary.families, key=lambda title: (last.get(title, 0), title)):
        family = binary.families[title]
        names = f"{len(family.symbols):,}" if family.symbols else _NONE
        rows.append([title, names, *_figures(family.classes)])
    rows.append(["all", _NONE, *_figures(binary.classes)])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        yield "  ".join(cells)


def _figures(classes: dict[str, int]) -> list[str]:
    return [f"{classes[name]:,}" if classes.get(name) else _NONE for name in CLASSES]
