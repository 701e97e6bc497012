# SPDX-License-Identifier: MIT
"""`invoke gguf diff A B` as Markdown and JSON: the verdict first, then what it rests on."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tierlab.gguf.compare import Outcome
from tierlab.gguf.pairs import AS_IT_IS
from tierlab.report.tables import code, table
from tierlab.report.text import one_line, plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tierlab.gguf.diff import Diff
    from tierlab.gguf.metadata_diff import MetadataDiff
    from tierlab.gguf.pairs import Pair

MOST_NAMED = 20
SHORT = {
    Outcome.EQUAL: "equal",
    Outcome.ROUNDED: "rounded",
    Outcome.EXPLAINED: "within steps",
    Outcome.DIFFERENT: "DIFFERENT",
}


def diff_markdown(found: Diff, digests: Sequence[str]) -> str:
    """`digests` are lines that identify the files, of A and of B."""
    parts = [
        f"# {one_line(found.verdict, 400)}",
        "\n".join(f"- {side}: {one_line(digest, 400)}" for side, digest in zip("AB", digests, strict=True)),
        _groups(found.pairs),
    ]
    proofs = set(found.proofs)
    proving = [pair for pair in found.pairs if pair.name in proofs]
    if proving:
        parts += [f"## The {plural(len(proving), 'tensor')} that prove it", _listed(proving)]
    for side, alone in zip("AB", found.only, strict=True):
        if alone:
            parts.append(f"Only in {side}: {_named(alone)}")
    ways = [pair for pair in found.pairs if pair.conversion != AS_IT_IS]
    for way in dict.fromkeys(pair.conversion for pair in ways):
        names = [pair.name for pair in ways if pair.conversion == way]
        parts.append(f"Conversion, {way}: {_named(names)}")
    if found.metadata is not None:
        parts += ["## Metadata", _metadata(found.metadata)]
    return "\n\n".join(parts) + "\n"


def _groups(pairs: Sequence[Pair]) -> str:
    """One row for each pair of types."""
    groups: dict[tuple[str, str], list[Pair]] = {}
    for pair in pairs:
        groups.setdefault((pair.kinds[0].name, pair.kinds[1].name), []).append(pair)
    rows = []
    for (a, b), members in groups.items():
        counts = [str(sum(pair.outcome is outcome for pair in members)) for outcome in Outcome]
        same = str(sum(pair.identical for pair in members))
        apart = [pair.distance for pair in members if pair.distance is not None]
        worst = [
            _figure(
                min((d.correlation for d in apart if not math.isnan(d.correlation)), default=math.nan), 6
            ),
            _figure(max((d.nmse for d in apart if not math.isnan(d.nmse)), default=math.nan), 2),
            _figure(max((d.used for d in apart), default=math.nan), 2),
        ]
        rows.append([a, b, str(len(members)), same, *counts, *worst])
    head = ["A", "B", "tensors", "same bytes", *(SHORT[outcome] for outcome in Outcome)]
    return table([*head, "least correlation", "largest NMSE", "steps used"], rows)


def _listed(pairs: Sequence[Pair]) -> str:
    rows = [
        [
            code(one_line(pair.name, 80)),
            f"{pair.kinds[0].name} → {pair.kinds[1].name}",
            SHORT[pair.outcome] if pair.outcome is not None else _shapes(pair),
            *_distance(pair),
        ]
        for pair in pairs[:MOST_NAMED]
    ]
    more = f"\n\n… and {len(pairs) - MOST_NAMED} more" if len(pairs) > MOST_NAMED else ""
    head = ["tensor", "types", "values", "equal", "correlation", "NMSE", "largest difference"]
    return table(head, rows) + more


def _shapes(pair: Pair) -> str:
    a, b = ("×".join(map(str, shape)) for shape in pair.shapes)
    return f"{a} → {b}" if pair.shapes[0] != pair.shapes[1] else "not read"


def _distance(pair: Pair) -> list[str]:
    found = pair.distance
    if found is None:
        return ["–"] * 4
    equal = f"{found.equal:,} of {found.count:,}"
    return [equal, _figure(found.correlation, 6), _figure(found.nmse, 2), _figure(found.largest, 2)]


def _numbers(values: Iterable[float]) -> list[float]:
    return [value for value in values if not math.isnan(value)]


def _figure(value: float, digits: int) -> str:
    return "–" if math.isnan(value) else f"{value:.{digits}g}"


def _named(names: Iterable[str]) -> str:
    shown = [code(one_line(name, 80)) for name in names]
    more = f" and {len(shown) - MOST_NAMED} more" if len(shown) > MOST_NAMED else ""
    return ", ".join(shown[:MOST_NAMED]) + more


def _metadata(found: MetadataDiff) -> str:
    words = {True: "the same tokenizer", False: "NOT the same tokenizer", None: "no tokenizer in either"}
    lines = [f"{plural(found.equal, 'key')} equal, {len(found.changes)} not; {words[found.same_tokenizer]}."]
    if found.changes:
        shown = found.changes[:MOST_NAMED]
        rows = [
            [code(one_line(c.key, 80)), one_line(c.a, 80) or "–", one_line(c.b, 80) or "–"] for c in shown
        ]
        lines.append(table(["key", "A", "B"], rows))
        if len(found.changes) > MOST_NAMED:
            lines.append(f"… and {len(found.changes) - MOST_NAMED} more")
    return "\n\n".join(lines)


def diff_json(found: Diff, digests: Sequence[str]) -> dict[str, Any]:
    """All of it as plain data; NaN is null."""
    metadata = found.metadata
    return {
        "a": found.a,
        "b": found.b,
        "files": list(digests),
        "answer": str(found.answer),
        "verdict": found.verdict,
        "proofs": list(found.proofs),
        "only": {"a": list(found.only[0]), "b": list(found.only[1])},
        "tensors": [_pair(pair) for pair in found.pairs],
        "metadata": None
        if metadata is None
        else {
            "equal": metadata.equal,
            "same_tokenizer": metadata.same_tokenizer,
            "changes": [{"key": c.key, "a": c.a, "b": c.b} for c in metadata.changes],
        },
    }


def _pair(pair: Pair) -> dict[str, Any]:
    found = pair.distance
    figures = (
        {}
        if found is None
        else {
            "count": found.count,
            "equal": found.equal,
            "correlation": _number(found.correlation),
            "nmse": _number(found.nmse),
            "largest": _number(found.largest),
            "steps_used": _number(found.used),
        }
    )
    return {
        "name": pair.name,
        "types": [kind.name for kind in pair.kinds],
        "shapes": [list(shape) for shape in pair.shapes],
        "same_bytes": pair.identical,
        "values": None if pair.outcome is None else pair.outcome.name.lower(),
        "conversion": pair.conversion,
        **figures,
    }


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
