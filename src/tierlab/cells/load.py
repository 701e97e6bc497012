# SPDX-License-Identifier: MIT
"""The door: `matrix.yaml` → checked once → a frozen `Matrix`. Behind it nothing is checked again."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tierlab.cells.claims import loaded_variant
from tierlab.cells.hardware import load_profiles, load_variants
from tierlab.cells.matrix import (
    Budgets,
    CodeType,
    Exclusion,
    Expectation,
    Kernels,
    Matrix,
    PathInfo,
    Rule,
    Suite,
    Timeouts,
    Variant,
)
from tierlab.cells.plan import load_presets
from tierlab.cells.positions import Document, Keys, nearest, read
from tierlab.cells.selectors import axis_values, load_selector
from tierlab.cells.structure import check_structure
from tierlab.cells.weight_types import load_types
from tierlab.cells.worth import check_budgets

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tierlab.cells.matrix import WeightType
    from tierlab.cells.model import Profile

Data = dict[str, Any]


def load_matrix(path: Path) -> Matrix:
    """Reads and checks the matrix file.

    Raises ConfigError (exit 3) with file:line:column, the bad word and the nearest good one.
    """
    document = read(path)
    check_structure(document)
    data: Data = document.data
    profiles = load_profiles(document)
    variants = load_variants(document)
    codes = {
        name: CodeType(name, entry.get("symbol", name), entry["block"], entry["bytes"])
        for name, entry in data["codes"].items()
    }
    types = load_types(document, codes)
    suites = {name: Suite(name, entry["op"]) for name, entry in data["suites"].items()}
    paths = {name: _path(document, name, entry, types) for name, entry in data["paths"].items()}
    if "default" not in paths:
        raise document.error(("paths",), "paths lacks 'default', the plain way that every type has; add it.")
    check_budgets(document)
    matrix = Matrix(
        path=path,
        digest=hashlib.sha256(path.read_bytes()).hexdigest(),
        builds=data["builds"],
        profiles=profiles,
        variants=variants,
        codes=codes,
        types=types,
        suites=suites,
        paths=paths,
        presets=load_presets(document, profiles, codes, types, suites, paths),
        budgets=_budgets(data["budgets"]),
        timeouts=Timeouts(float(data["timeouts"]["cell_seconds"]), float(data["timeouts"]["start_seconds"])),
        variant_of=_variants_of(document, profiles, variants),
    )
    return _with_selectors(document, matrix)


def _budgets(entry: Data) -> Budgets:
    return Budgets(
        lam=float(entry["lambda"]),
        elements_per_run=float(entry["elements_per_run"]),
        runs_per_year=float(entry["runs_per_year"]),
        false_alarms_per_year=float(entry["false_alarms_per_year"]),
    )


def _variants_of(
    document: Document, profiles: Mapping[str, Profile], variants: tuple[Variant, ...]
) -> dict[str, Variant]:
    found: dict[str, Variant] = {}
    for index, (name, profile) in enumerate(profiles.items()):
        variant = loaded_variant(variants, profile)
        if variant is None:
            msg = f"profile {name!r} meets the needs of no variant; no backend would load. "
            raise document.error(("profiles", index, "features"), msg + "Add a variant without needs.")
        found[name] = variant
    return found


def _path(document: Document, name: str, entry: Data, types: Mapping[str, WeightType]) -> PathInfo:
    where: Keys = ("paths", name)
    rules = tuple(
        _rule(document, (*where, "rules", index), rule, types) for index, rule in enumerate(entry["rules"])
    )
    return PathInfo(
        name=name,
        buffer=entry.get("buffer", ""),
        weight_planes=entry.get("weight_planes", "any"),
        activations=frozenset(entry.get("activations", ())),
        gemm_from=entry["gemm_from"],
        gemm_step=entry.get("gemm_step", 1),
        row_at_a_time=frozenset(entry.get("row_at_a_time", ())),
        rules=rules,
    )


def _rule(document: Document, where: Keys, entry: Data, types: Mapping[str, WeightType]) -> Rule:
    for index, word in enumerate(entry["types"]):
        if word not in types:
            msg = f"unknown type {word!r} in a rule; {nearest(word, types)}"
            raise document.error((*where, "types", index), msg)
    kernels = Kernels(tuple(entry["kernels"]["gemv"]), tuple(entry["kernels"].get("gemm", ())))
    _check_patterns(document, where, kernels)
    return Rule(
        types=frozenset(entry["types"]),
        kernels=kernels,
        layout=entry.get("layout", ""),
        ops=frozenset(entry.get("ops", ("mul_mat", "mul_mat_id"))),
        activations=frozenset(entry.get("activations", ())),
        variant=frozenset(entry.get("variant", ())),
        cpu=frozenset(entry.get("cpu", ())),
        vector_bits=entry.get("vector_bits"),
        vector_bits_from=entry.get("vector_bits_from", 0),
        streaming_bits_from=entry.get("streaming_bits_from", 0),
        n_multiple=entry.get("n_multiple", 1),
        m=_range(document, (*where, "m"), entry.get("m")),
        threads=_range(document, (*where, "threads"), entry.get("threads")),
        planes_3=entry.get("planes_3", True),
        from_patch=entry.get("from_patch", 0),
    )


def _check_patterns(document: Document, where: Keys, kernels: Kernels) -> None:
    names = {"type": "", "codes": "", "layout": ""}
    for key, patterns in (("gemv", kernels.gemv), ("gemm", kernels.gemm)):
        for index, pattern in enumerate(patterns):
            try:
                pattern.format_map(names)
            except (KeyError, ValueError, IndexError) as problem:
                msg = f"pattern {pattern!r} has a placeholder other than {{type}}, {{codes}}, {{layout}}; "
                raise document.error((*where, "kernels", key, index), msg + "correct it.") from problem


def _range(document: Document, where: Keys, value: list[int] | None) -> tuple[int, int] | None:
    if value is None:
        return None
    low, high = value
    if low > high:
        raise document.error(where, f"the range [{low}, {high}] is empty; write the smaller number first.")
    return low, high


def _with_selectors(document: Document, matrix: Matrix) -> Matrix:
    """Selectors name axis values of the finished matrix, so they are read last."""

    def each(section: str) -> list[tuple[Keys, Data]]:
        return [((section, index), entry) for index, entry in enumerate(document.data.get(section, ()))]

    values = axis_values(matrix)
    return replace(
        matrix,
        exclusions=tuple(
            Exclusion(load_selector(document, where, entry, values), entry["reason"])
            for where, entry in each("exclusions")
        ),
        expected=tuple(
            Expectation(
                load_selector(document, where, entry, values),
                entry["verdict"],
                entry["evidence"],
                entry.get("undefined_bytes", False),
            )
            for where, entry in each("expected")
        ),
        thread_dependent=tuple(
            Exclusion(load_selector(document, where, entry, values), entry["reason"])
            for where, entry in each("thread_dependent")
        ),
    )
