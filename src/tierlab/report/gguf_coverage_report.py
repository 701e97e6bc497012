# SPDX-License-Identifier: MIT
"""`invoke gguf --coverage`: the share of a model's work that each path takes, and the weights that leave
them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tierlab.gguf.work import DECODE, PREFILL, PROMPT, WORKLOADS
from tierlab.report.gguf_report import named, percent
from tierlab.report.tables import table
from tierlab.run.survey_coverage import NEITHER, UNKNOWN, weight

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tierlab.gguf.work import Matmul
    from tierlab.run.survey_coverage import Coverage, Placement

HEAD = ["profiles", "path", "weights", "decode bytes", "decode MACs", "prefill bytes", "prefill MACs"]


def coverage_markdown(found: Coverage, matmuls: Sequence[Matmul], origin: str) -> str:
    """A table and the names, profiles of equal answers together. `origin` says which library was asked."""
    groups = _groups(found, matmuls)
    letters = {names: chr(ord("A") + at) for at, names in enumerate(groups)}
    parts = [
        "## Coverage",
        f"Which path takes the matmuls with weights, asked of the built library ({origin}) as llama.cpp "
        f"asks when it loads a model. Decode is one token, prefill a prompt of {PROMPT}; only its last token "
        "is answered, so the output matrix counts once. Attention's products with the cache have no weights "
        "and are not counted.",
        "\n".join(f"- {letter}: {', '.join(names)}" for names, letter in letters.items()),
        table(
            HEAD, [row for names in groups for row in _rows(letters[names], found, groups[names], matmuls)]
        ),
    ]
    for names, placed in groups.items():
        parts.append(_leaving(letters[names], placed, matmuls))
    return "\n\n".join(parts) + "\n"


def _groups(found: Coverage, matmuls: Sequence[Matmul]) -> dict[tuple[str, ...], tuple[Placement, ...]]:
    """Profiles with equal placements → the placement of each matmul."""
    by_placement: dict[tuple[Placement, ...], list[str]] = {}
    for profile in found.profiles:
        placed = tuple(found.placed[profile, weight(matmul)] for matmul in matmuls)
        by_placement.setdefault(placed, []).append(profile)
    return {tuple(names): placed for placed, names in by_placement.items()}


def shares(
    found: Coverage, placed: Sequence[Placement], matmuls: Sequence[Matmul]
) -> dict[str, dict[str, dict[str, int]]]:
    """Path → workload → `weights`, `bytes` and `macs`; paths that take nothing too."""
    paths = [*found.paths, NEITHER, UNKNOWN]
    sums = {path: {work: {"weights": 0, "bytes": 0, "macs": 0} for work in WORKLOADS} for path in paths}
    for placement, matmul in zip(placed, matmuls, strict=True):
        for work in WORKLOADS:
            into = sums[placement.path][work]
            into["weights"] += 1
            into["bytes"] += matmul.nbytes[work]
            into["macs"] += matmul.macs[work]
    return sums


def _rows(
    letter: str, found: Coverage, placed: Sequence[Placement], matmuls: Sequence[Matmul]
) -> list[list[str]]:
    sums = shares(found, placed, matmuls)
    totals = {
        (work, what): sum(each[work][what] for each in sums.values())
        for work in WORKLOADS
        for what in ("bytes", "macs")
    }
    return [
        [
            letter,
            path,
            str(each[DECODE]["weights"]),
            *(
                percent(each[work][what], totals[work, what])
                for work in (DECODE, PREFILL)
                for what in ("bytes", "macs")
            ),
        ]
        for path, each in sums.items()
        if path != UNKNOWN or each[DECODE]["weights"]
    ]


def _leaving(letter: str, placed: Sequence[Placement], matmuls: Sequence[Matmul]) -> str:
    lines = []
    for path, reason, words in (
        (NEITHER, "type", "no fast path takes the type"),
        (NEITHER, "shape", "a fast path takes the type, and not this shape"),
        (UNKNOWN, "", "no answer came"),
        (UNKNOWN, "type", "matrix.yaml does not know the type, so nobody was asked"),
    ):
        leaving = [
            matmul.tensor
            for placement, matmul in zip(placed, matmuls, strict=True)
            if (placement.path, placement.reason) == (path, reason)
        ]
        if leaving:
            lines.append(f"- {letter}, {words}: {named(leaving)}")
    return "\n".join(lines) or f"- {letter}: every weight is on a fast path"


def coverage_json(found: Coverage, matmuls: Sequence[Matmul], origin: str) -> dict[str, Any]:
    """Shares and the placement of every weight, profile by profile."""
    profiles = {}
    for profile in found.profiles:
        placed = [found.placed[profile, weight(matmul)] for matmul in matmuls]
        profiles[profile] = {
            "paths": shares(found, placed, matmuls),
            "weights": {
                matmul.tensor.name: {"path": placement.path, "reason": placement.reason}
                for placement, matmul in zip(placed, matmuls, strict=True)
            },
        }
    return {"tree": origin, "prompt": PROMPT, "profiles": profiles}
