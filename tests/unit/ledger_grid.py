# SPDX-License-Identifier: MIT
"""Facts of the products that the rules of dispatch are asked about; observations that fit predictions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import product as crossed
from pathlib import Path
from typing import TYPE_CHECKING

from tierlab.cells.claims import rule_of
from tierlab.cells.load import load_matrix
from tierlab.dispatch.executed_families import Ran
from tierlab.dispatch.facts import facts_of
from tierlab.dispatch.predictions import Observation
from tierlab.dispatch.products import family_of_name
from tierlab.dispatch.rules import KERNELS, predict
from tierlab.run.survey import product
from tierlab.run.survey_ledger import names_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tierlab.cells.model import Cell
    from tierlab.dispatch.conditions import Facts
    from tierlab.dispatch.rules import Prediction, Rule

MATRIX = load_matrix(Path(__file__).parents[2] / "matrix.yaml")

ENVIRONMENTS: tuple[Mapping[str, str], ...] = (
    {},
    {"GGML_KLEIDIAI_SME": "0"},
    {"GGML_KLEIDIAI_SME": "4"},
    {"GGML_TOTAL_THREADS": "1"},
)
THREADS, COLUMNS, ROWS = (1, 2, 16), (1, 2, 127, 128), (16, 256)
SETTABLE = ("q4_0", "q8_0", "f32", "f16")
"""Types whose kernels follow the environment, on a CPU with SME."""


@dataclass(frozen=True)
class Point:
    """One product: its cell, the facts, and what fills patterns."""

    cell: Cell
    facts: Facts
    names: Mapping[str, str]
    environment: Mapping[str, str]


@cache
def points() -> tuple[Point, ...]:
    """Every product that the matrix's rules allow, on the path that takes it first and on others."""
    axes = crossed(MATRIX.profiles, MATRIX.types, MATRIX.paths, ROWS, COLUMNS, THREADS)
    return tuple(each for values in axes for each in _points(*values))


def _points(profile: str, kind: str, path: str, rows: int, columns: int, threads: int) -> Iterator[Point]:
    cell = product(profile, kind, f"m{columns}n{rows}k256", path, threads)
    if rule_of(MATRIX, cell) is None:
        return
    own = path == _first(profile, kind, rows)
    moved = kind in SETTABLE and "sme" in MATRIX.profiles[profile].features
    for environment in ENVIRONMENTS if moved else ENVIRONMENTS[:1]:
        yield Point(cell, facts(cell, own, environment), names_of(MATRIX, kind), environment)


@cache
def _first(profile: str, kind: str, rows: int) -> str:
    """The path that takes the weight first, asked with 512 columns as a program does."""
    shape = f"m512n{rows}k256"
    asked = {path: product(profile, kind, shape, path) for path in ("kleidiai", "repack", "default")}
    return next(path for path, cell in asked.items() if rule_of(MATRIX, cell) is not None)


def facts(cell: Cell, own: bool, environment: Mapping[str, str]) -> Facts:
    """The facts as a session on the profile would give them."""
    profile, shape = MATRIX.profiles[cell.profile], cell.problem.shape
    return facts_of(
        kind=cell.problem.weight_type,
        path=cell.path,
        own=own,
        columns=shape.m,
        rows=shape.n,
        threads=cell.threads,
        cpu=profile.features,
        built={"neon", "kleidiai", "repack", *MATRIX.variant_of[cell.profile].needs},
        vector_bits=profile.vector_bits or 0,
        streaming_bits=profile.streaming_bits or 0,
        environment=environment,
    )


def fitting(rules: Sequence[Rule], point: Point) -> tuple[Prediction, Observation]:
    """A prediction, and an observation in which all of it comes true."""
    prediction = predict(rules, point.facts, point.names)
    values = {each.rule.group: each.value for each in prediction.decisions}
    kernels = {
        pattern.replace("*", "x"): 3
        for each in prediction.decisions
        if each.rule.group.startswith(KERNELS)
        for pattern in each.kernels
    }
    wanted = values.get("family", "").split("+") if values.get("family") else []
    families = {name: family_of_name(name) or (wanted or ["NEON"])[0] for name in kernels}
    for at, name in enumerate(kernels):
        if wanted and not family_of_name(name):
            families[name] = wanted[at % len(wanted)]
    seen = Observation(
        path=values.get("path", point.facts.path),
        kernels=kernels,
        advertised=values.get("advertised", ""),
        cap=int(values["cap"]),
        ran=Ran(families, ("neon",)),
    )
    return prediction, seen
