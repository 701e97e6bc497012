# SPDX-License-Identifier: MIT
"""`invoke variants`: eligible, loaded, forced, refused, and whether they agree, as Markdown and JSON."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tierlab.dispatch.variants import loaded, sum_of
from tierlab.judge.verdict import UNDETERMINED
from tierlab.report.tables import code, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tierlab.cells.matrix import Matrix
    from tierlab.dispatch.variants import Backend
    from tierlab.run.record import CellRecord
    from tierlab.run.survey_variants import Loaded, VariantSurvey

CLAIMS = "ggml.claims"

BLOCKED = (
    "Not executed (--android does): scores by ggml's rule from what the profiles promise, which every "
    "session checks."
)


@dataclass(frozen=True)
class VariantAnswer:
    """What was found, with what was declared: `sets` from the tree's build file, by system."""

    found: VariantSurvey
    sets: Mapping[str, Sequence[Backend]]
    matrix: Matrix
    system: str = "linux"

    @property
    def backends(self) -> Sequence[Backend]:
        """The set that was executed."""
        return self.sets[self.system]

    @property
    def against(self) -> tuple[str, ...]:
        """Everything that is not as it should be, a sentence each."""
        return (*_declared(self), *_loading(self), *_refusing(self), *_computing(self))

    @property
    def silent(self) -> int:
        """Cells without an answer."""
        return sum(record.verdict in UNDETERMINED for record in _records(self.found))


def variants_markdown(answer: VariantAnswer, android: VariantAnswer | None = None) -> str:
    """Two pages where the Android set was executed too, else its scores by ggml's rule."""
    if android is not None:
        return f"{_page(answer, 'Backend variants')}\n{_page(android, 'The Android set, compiled for Linux')}"
    by_rule = ["## The Android set", BLOCKED, _android(answer)]
    return "\n\n".join([_page(answer, "Backend variants").rstrip(), *by_rule]) + "\n"


def _page(answer: VariantAnswer, title: str) -> str:
    found = answer.found
    parts = [
        f"# {title}",
        "\n".join(f"- **{text}**" for text in answer.against) or _all_well(found),
        "## What each variant is compiled for",
        _compiled(answer.backends),
        "## Score on each profile (0: not eligible; the loaded one in brackets)",
        _scores(answer),
        "## Why a variant is not eligible: what the CPU lacks",
        _lacking(answer),
        "## Forced one by one",
        _forced(answer),
        "## Where the bytes of variants differ (all within the budget)",
        _bytes(found),
        "## Where the claims of variants differ (all as the rules say)",
        _claims(found),
    ]
    return "\n\n".join(parts) + "\n"


def _all_well(found: VariantSurvey) -> str:
    count = sum(map(len, found.ran.values()))
    return (
        f"Every profile loads one variant, none dies of a signal. {len(found.ran)} forced pairs of profile "
        f"and variant computed {count} cells as expected, {len(found.refusals)} were refused in words."
    )


def _compiled(backends: Sequence[Backend]) -> str:
    rows = [
        [b.name, ", ".join(sorted(b.needs)) or "nothing", f"{sum_of(b)} = {b.worth}", b.place]
        for b in backends
    ]
    return table(["variant", "needs", "score where eligible", "declared"], rows)


def _scores(answer: VariantAnswer) -> str:
    names = [backend.name for backend in answer.backends]
    rows = []
    for each in answer.found.loaded:
        scores = dict(each.scores)
        shown = (str(scores.get(name, "?")) for name in names)
        row = [f"[{text}]" if name == each.variant else text for name, text in zip(names, shown, strict=True)]
        rows.append([each.profile, *row])
    return table(["profile", *names], rows)


def _lacking(answer: VariantAnswer) -> str:
    rows = []
    for each in answer.found.loaded:
        features = answer.matrix.profiles[each.profile].features
        lacks = {backend.name: backend.lacks(features) for backend in answer.backends}
        text = "; ".join(f"{name}: {', '.join(names)}" for name, names in lacks.items() if names)
        rows.append([each.profile, text or "nothing"])
    return table(["profile", "variant: lacking features"], rows)


def _forced(answer: VariantAnswer) -> str:
    refused = {(each.profile, each.variant): each for each in answer.found.refusals}
    names = sorted({variant for _, variant in [*answer.found.ran, *refused]})
    rows = []
    for each in answer.found.loaded:
        row = [each.profile]
        for name in names:
            records = answer.found.ran.get((each.profile, name))
            refusal = refused.get((each.profile, name))
            if records is not None:
                good = sum(record.as_expected for record in records.values())
                row.append(f"{good}/{len(records)}")
            elif refusal is not None:
                row.append("refused" if refusal.clean else "NOT REFUSED CLEANLY")
            else:
                row.append("not asked")
        rows.append(row)
    return table(["profile (cells as expected)", *names], rows)


Groups = tuple[tuple[str, ...], ...]
"""Variants that did alike, group by group."""


def byte_groups(found: VariantSurvey) -> dict[tuple[str, str, Groups], list[str]]:
    """(type, path, groups of equal bytes) → `profile shape`, …; only where there are two groups."""
    outputs: dict[tuple[str, str], dict[str, list[str]]] = {}
    records: dict[str, CellRecord] = {}
    for (profile, variant), cells in found.ran.items():
        for name, record in cells.items():
            if record.digest and record.suite != CLAIMS:
                outputs.setdefault((profile, name), {}).setdefault(record.digest, []).append(variant)
                records[name] = record
    seen = [
        (records[name].type, records[name].path, _groups(split.values()), f"{profile} {records[name].shape}")
        for (profile, name), split in outputs.items()
        if len(split) > 1
    ]
    return _folded(seen)


def claim_groups(found: VariantSurvey) -> dict[tuple[str, str, Groups], list[str]]:
    """(type, path, (variants that take it, variants that do not)) → profiles; only where variants differ."""
    takes: dict[tuple[str, str, str], dict[bool, list[str]]] = {}
    for (profile, variant), cells in found.ran.items():
        for record in cells.values():
            if record.suite == CLAIMS and record.claimed is not None:
                key = (profile, record.type, record.path)
                takes.setdefault(key, {}).setdefault(record.claimed, []).append(variant)
    seen = [
        (kind, path, _groups([sides[True], sides[False]]), profile)
        for (profile, kind, path), sides in takes.items()
        if len(sides) > 1
    ]
    return _folded(seen)


def _groups(groups: Iterable[Iterable[str]]) -> Groups:
    return tuple(tuple(group) for group in groups)


def _folded(seen: list[tuple[str, str, Groups, str]]) -> dict[tuple[str, str, Groups], list[str]]:
    """One row for all places that split alike: fewer eligible variants make the same split, only shorter."""
    rows: dict[tuple[str, str, Groups], list[str]] = {}
    for kind, path, groups, place in sorted(seen, key=lambda item: -sum(map(len, item[2]))):
        known = (key for key in rows if key[:2] == (kind, path) and _restricts(key[2], groups))
        rows.setdefault(next(known, (kind, path, groups)), []).append(place)
    return dict(sorted(rows.items()))


def _restricts(whole: Groups, part: Groups) -> bool:
    present = {variant for group in part for variant in group}
    left = (tuple(variant for variant in group if variant in present) for group in whole)
    return [group for group in left if group] == list(part)


def _bytes(found: VariantSurvey) -> str:
    rows = [
        [kind, path, " ≠ ".join(", ".join(group) for group in groups), _places(places)]
        for (kind, path, groups), places in byte_groups(found).items()
    ]
    return table(["type", "path", "groups of equal bytes", "where"], rows) if rows else "Nowhere."


def _places(places: Sequence[str]) -> str:
    """`profile shape` pairs, by shape."""
    shapes: dict[str, list[str]] = {}
    for place in places:
        profile, _, shape = place.partition(" ")
        shapes.setdefault(shape, []).append(profile)
    alike: dict[tuple[str, ...], list[str]] = {}
    for shape, profiles in shapes.items():
        alike.setdefault(tuple(sorted(profiles)), []).append(shape)
    return "; ".join(f"{', '.join(shapes)} on {', '.join(names)}" for names, shapes in alike.items())


def _claims(found: VariantSurvey) -> str:
    rows = [
        [kind, path, ", ".join(groups[0]), ", ".join(groups[1]), ", ".join(places)]
        for (kind, path, groups), places in claim_groups(found).items()
    ]
    return table(["type", "path", "taken by", "not by", "profiles"], rows) if rows else "Nowhere."


def _android(answer: VariantAnswer) -> str:
    backends = answer.sets["android"]
    rows = []
    for each in answer.found.loaded:
        features = answer.matrix.profiles[each.profile].features
        best = loaded(backends, features)
        scores = (f"[{b.score(features)}]" if b is best else str(b.score(features)) for b in backends)
        rows.append([each.profile, *scores])
    return table(["profile", *(b.name.removeprefix("android_") for b in backends)], rows)


def _declared(answer: VariantAnswer) -> list[str]:
    if answer.system != "linux":
        return []  # matrix.yaml knows one set
    tree = {backend.name: backend.needs for backend in answer.sets["linux"]}
    known = {variant.name: variant.needs for variant in answer.matrix.variants}
    return [
        f"{name}: the tree declares {_needs(tree.get(name))}, matrix.yaml {_needs(known.get(name))}"
        for name in sorted(tree.keys() | known.keys())
        if tree.get(name) != known.get(name)
    ]


def _needs(needs: frozenset[str] | None) -> str:
    return "no such variant" if needs is None else ", ".join(sorted(needs)) or "no feature"


def _loading(answer: VariantAnswer) -> list[str]:
    lines = []
    for each in answer.found.loaded:
        if each.problem:
            lines.append(f"{each.profile} loads no variant: {each.problem}")
            continue
        lines += [f"{each.profile}: {text}" for text in _wrong(answer, each)]
    return lines


def _wrong(answer: VariantAnswer, each: Loaded) -> list[str]:
    features = answer.matrix.profiles[each.profile].features
    scores = dict(each.scores)
    lines = [
        f"{backend.name} scores {scores.get(backend.name)}, by the rule {backend.score(features)}"
        for backend in answer.backends
        if scores.get(backend.name) != backend.score(features)
    ]
    best = max(scores, key=lambda name: scores[name], default="")
    if each.variant != best:
        lines.append(f"{each.variant} was loaded, {best} has the highest score")
    return lines


def _refusing(answer: VariantAnswer) -> list[str]:
    return [
        f"{each.variant} forced on {each.profile} was not refused cleanly: {each.said}"
        for each in answer.found.refusals
        if not each.clean
    ]


def _computing(answer: VariantAnswer) -> list[str]:
    wrong: Counter[str] = Counter()
    for (profile, variant), cells in answer.found.ran.items():
        for record in cells.values():
            if not record.as_expected and record.verdict not in UNDETERMINED:
                wrong[f"{variant} forced on {profile}: {record.verdict}, like {code(record.cell)}"] += 1
    return [f"{text} ({count})" for text, count in wrong.items()]


def _records(found: VariantSurvey) -> list[CellRecord]:
    return [record for cells in found.ran.values() for record in cells.values()]


def variants_json(answer: VariantAnswer) -> dict[str, Any]:
    found, features = answer.found, answer.matrix.profiles
    return {
        "schema": 1,
        "problems": list(answer.against),
        "unanswered": answer.silent,
        "declared": {
            system: {b.name: {"needs": sorted(b.needs), "score": b.worth, "at": b.place} for b in backends}
            for system, backends in answer.sets.items()
        },
        "loaded": {
            each.profile: {"variant": each.variant, "scores": dict(each.scores), "problem": each.problem}
            for each in found.loaded
        },
        "lacks": {
            each.profile: {b.name: list(b.lacks(features[each.profile].features)) for b in answer.backends}
            for each in found.loaded
        },
        "refused": [
            {"profile": each.profile, "variant": each.variant, "clean": each.clean, "said": each.said}
            for each in found.refusals
        ],
        "forced": [
            {"profile": profile, "variant": variant, "cells": {name: _cell(r) for name, r in cells.items()}}
            for (profile, variant), cells in found.ran.items()
        ],
        "bytes_differ": [
            {"type": kind, "path": path, "groups": [list(group) for group in groups], "where": places}
            for (kind, path, groups), places in byte_groups(found).items()
        ],
        "claims_differ": [
            {
                "type": kind,
                "path": path,
                "taken_by": list(groups[0]),
                "not_by": list(groups[1]),
                "profiles": places,
            }
            for (kind, path, groups), places in claim_groups(found).items()
        ],
    }


def _cell(record: CellRecord) -> dict[str, Any]:
    return {
        "verdict": str(record.verdict),
        "as_expected": record.as_expected,
        "digest": record.digest,
        "claimed": record.claimed,
        "ran": dict(record.ran),
    }
