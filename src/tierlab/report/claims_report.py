# SPDX-License-Identifier: MIT
"""`invoke claims`: who takes what, and the source lines that decide it, as Markdown and JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tierlab.report.tables import code, table
from tierlab.run.survey_claims import QUESTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tierlab.dispatch.sources import Deciders, Line
    from tierlab.run.survey_claims import ClaimMap

SHORT = {"kleidiai": "K", "repack": "R"}


def claims_markdown(found: ClaimMap, deciders: Mapping[str, Deciders], origin: str) -> str:
    """One table a question, then drift, then what decides. `origin` says which tree was asked."""
    parts = [
        "# Claims of the fast paths",
        f"Asked of the built library ({origin}): K is KleidiAI, R is repack, K+R both, – neither, ? no "
        "answer. A claim is about a weight in the path's own buffer type; on the default path KleidiAI may "
        "still take F16 (with SME2).",
    ]
    for question, shape in QUESTIONS.items():
        parts += [f"## {question} ({shape})", _map(found, question)]
    parts += ["## Against the rules of matrix.yaml", _drift(found)]
    for path, lines in deciders.items():
        parts += [f"## What decides: {path}", _decided(found, path, lines)]
    return "\n\n".join(parts) + "\n"


def _map(found: ClaimMap, question: str) -> str:
    """Profiles that answer alike for every type share a column."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for profile in found.profiles:
        column = tuple(_short(found.word(question, kind, profile)) for kind in found.kinds)
        groups.setdefault(column, []).append(profile)
    letters = [chr(ord("A") + at) for at in range(len(groups))]
    legend = [
        f"- {letter}: {', '.join(names)}" for letter, names in zip(letters, groups.values(), strict=True)
    ]
    rows = [[kind, *(column[at] for column in groups)] for at, kind in enumerate(found.kinds)]
    return "\n".join([*legend, "", table(["type", *letters], rows)])


def _short(word: str) -> str:
    return "+".join(SHORT.get(part, part) for part in word.split("+"))


def _drift(found: ClaimMap) -> str:
    lines = [f"- {code(record.cell)}: {record.verdict}, {record.detail}" for record in found.drift]
    if found.unanswered:
        lines.append(f"- {found.unanswered} questions without an answer")
    return "\n".join(lines) or f"All {found.asked} answers are as the rules say."


def _decided(found: ClaimMap, path: str, lines: Deciders) -> str:
    begins = "\n".join(f"- {line.place} {code(line.text)}" for line in lines.functions)
    common = "\n".join(f"- {line.place} {code(line.text)}" for line in lines.conditions)
    taken = {kind for (_, kind, _), paths in found.takes.items() if paths and path in paths}
    rows = []
    for kind in found.kinds:
        branch = lines.branches.get(kind, ())
        if branch or kind in taken:
            rows.append([kind, "yes" if kind in taken else "no", _branch(branch)])
    named = table(["type", "taken somewhere", "lines"], rows)
    silent = [kind for kind in found.kinds if not lines.branches.get(kind) and kind not in taken]
    none = f"No line names: {', '.join(silent)}." if silent else ""
    return "\n\n".join(part for part in (begins, "Of any type:", common, named, none) if part)


def _branch(lines: tuple[Line, ...]) -> str:
    if not lines:
        return "claimed without a line that names the type"
    first = f"{lines[0].place} {code(lines[0].text)}"
    return "; ".join([first, *(f":{line.number} {code(line.text)}" for line in lines[1:])])


def claims_json(found: ClaimMap, deciders: Mapping[str, Deciders], origin: str) -> dict[str, Any]:
    return {
        "schema": 1,
        "tree": origin,
        "questions": dict(QUESTIONS),
        "claims": {
            question: {
                kind: {
                    profile: None if (paths := found.takes[question, kind, profile]) is None else list(paths)
                    for profile in found.profiles
                }
                for kind in found.kinds
            }
            for question in QUESTIONS
        },
        "drift": [{"cell": r.cell, "verdict": str(r.verdict), "detail": r.detail} for r in found.drift],
        "unanswered": found.unanswered,
        "deciders": {
            path: {
                "functions": [_line(line) for line in lines.functions],
                "conditions": [_line(line) for line in lines.conditions],
                "branches": {kind: [_line(line) for line in named] for kind, named in lines.branches.items()},
            }
            for path, lines in deciders.items()
        },
    }


def _line(line: Line) -> dict[str, Any]:
    return {"at": line.place, "text": line.text}
