# SPDX-License-Identifier: MIT
"""Content keys: what a cached verdict, input or expectation depends on."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import tierlab

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tierlab.cells.matrix import Matrix
    from tierlab.cells.model import LaneKey, Profile
    from tierlab.run.plan import Plan

INPUT_SOURCES = ("cells",)
ORACLE_SOURCES = ("cells", "oracle")
AGREEMENT_SOURCES = ("cells", "oracle", "judge")
JUDGE_SOURCES = ("cells", "oracle", "judge", "run/judging.py", "run/requests.py")


@cache
def source_digest(packages: tuple[str, ...]) -> str:
    """sha256 over the source and data files of the lab's own packages.

    So a changed oracle or judge never meets verdicts of its older self; nobody has to remember a version.
    """
    root = Path(tierlab.__file__).parent
    digest = hashlib.sha256(np.__version__.encode())
    for package in packages:
        place = root / package
        for path in sorted(place.rglob("*")) if place.is_dir() else [place]:
            if path.suffix in (".py", ".yaml"):
                digest.update(str(path.relative_to(root)).encode() + b"\0")
                digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()


def canonical(value: Any) -> Any:
    """Plain JSON values in one order: a frozenset's own order changes from process to process."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: canonical(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, (frozenset, set)):
        return sorted((canonical(item) for item in value), key=str)
    if isinstance(value, (tuple, list)):
        return [canonical(item) for item in value]
    if hasattr(value, "items"):
        return {str(key): canonical(item) for key, item in value.items()}
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def digest_of(value: Any) -> str:
    """sha256 of the canonical JSON text of a value."""
    text = json.dumps(canonical(value), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def rules_digest(matrix: Matrix) -> str:
    """What of `matrix.yaml` a verdict depends on: types, paths with their claims, variants, budgets.

    Not the shapes, presets or expected verdicts: a line added there costs no verdict.
    """
    return digest_of([matrix.types, matrix.codes, matrix.paths, matrix.variants, matrix.budgets])


def lane_parts(
    plan: Plan, profile: Profile, lane: LaneKey, rules: str, files: Mapping[str, str]
) -> dict[str, str]:
    """The key of a lane's verdicts. `files` are the binaries that took part, by name, as digests."""
    # What a profile stands for is text for people; it decides nothing.
    promised = {key: value for key, value in canonical(profile).items() if key not in ("products", "note")}
    return {
        **({"environment": digest_of(plan.environment)} if plan.environment else {}),
        "suite": lane.suite,
        "build": lane.build,
        "profile": digest_of(promised),
        "toolchain": plan.engine_identity,
        # The engines enter the same files; only native execution has no emulator.
        "native": str(plan.engine == "native"),
        "binaries": digest_of(files),
        "reference": plan.reference.binaries,
        "rules": rules,
        "judge": source_digest(JUDGE_SOURCES),
        "seed": str(plan.seed),
    }
