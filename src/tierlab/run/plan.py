# SPDX-License-Identifier: MIT
"""What a run is going to do, on disk: every worker process reads it and needs nothing else."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tierlab.cells.expand import lanes
from tierlab.cells.selection import Selection
from tierlab.errors import StoreError
from tierlab.run.appendlog import replace_file
from tierlab.toolchain.build import Build

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tierlab.cells.matrix import Matrix
    from tierlab.cells.model import Cell, LaneKey

PLAN = "plan.json"
MATRIX_COPY = "matrix.yaml"


@dataclass(frozen=True)
class Plan:
    """A prepared run: image and builds exist.

    `builds` are what is under test, by name; `unbuildable` those that do not compile, with the compiler's
    first error; `reference` is the native portable build; `canaries` are excluded cells that are tried all
    the same; `absent` are selected cells that a published tree does not have; `environment` is set for the
    processes under test, beside the lab's own. The matrix is the copy
    in the run's folder: editing the original disturbs no run under way.
    """

    run_dir: Path
    selection: Selection
    seed: int
    engine: str
    engine_identity: str
    builds: dict[str, Build]
    reference: Build
    fresh: bool = False
    unbuildable: dict[str, str] = field(default_factory=dict)
    canaries: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    absent: tuple[str, ...] = ()

    @property
    def matrix_file(self) -> Path:
        return self.run_dir / MATRIX_COPY


def plan_lanes(matrix: Matrix, plan: Plan) -> Iterator[tuple[LaneKey, tuple[Cell, ...]]]:
    """The plan's cells, lane by lane."""
    left_out = frozenset(plan.absent)
    for lane, cells in lanes(matrix, plan.selection):
        asked = tuple(cell for cell in cells if cell.id not in left_out) if left_out else cells
        if asked:
            yield lane, asked


def write_plan(plan: Plan) -> Path:
    """Write `plan.json` into the run's folder; returns its path. Raises StoreError."""
    path = plan.run_dir / PLAN
    value = {
        "run_dir": str(plan.run_dir),
        "selection": asdict(plan.selection),
        "seed": plan.seed,
        "engine": plan.engine,
        "engine_identity": plan.engine_identity,
        "builds": {name: _build_out(build) for name, build in plan.builds.items()},
        "reference": _build_out(plan.reference),
        "fresh": plan.fresh,
        "unbuildable": plan.unbuildable,
        "canaries": plan.canaries,
        "environment": plan.environment,
        "absent": plan.absent,
    }
    replace_file(path, [(json.dumps(value, indent=1) + "\n").encode()])
    return path


def read_plan(path: Path) -> Plan:
    """The plan in a file that `write_plan` wrote. Raises StoreError."""
    try:
        value = json.loads(path.read_text())
        selection: dict[str, Any] = {
            key: tuple(item) if isinstance(item, list) else item for key, item in value["selection"].items()
        }
        return Plan(
            run_dir=Path(value["run_dir"]),
            selection=Selection(**selection),
            seed=value["seed"],
            engine=value["engine"],
            engine_identity=value["engine_identity"],
            builds={name: _build_in(build) for name, build in value["builds"].items()},
            reference=_build_in(value["reference"]),
            fresh=value["fresh"],
            unbuildable=value["unbuildable"],
            canaries=tuple(value["canaries"]),
            environment=value["environment"],
            absent=tuple(value["absent"]),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        msg = f"{path} is not a plan of this version of tierlab ({error}); nothing was run. Start a new run"
        raise StoreError(msg) from error


_PATHS = ("directory", "harness", "backend_dir", "log")


def _build_out(build: Build) -> dict[str, Any]:
    value = {item.name: getattr(build, item.name) for item in fields(build)}
    value.update({name: str(value[name]) for name in _PATHS})
    value["file_digests"] = dict(build.file_digests)
    return value


def _build_in(value: dict[str, Any]) -> Build:
    made: dict[str, Any] = {name: Path(item) if name in _PATHS else item for name, item in value.items()}
    made.update({name: tuple(item) for name, item in made.items() if isinstance(item, list)})
    return Build(**made)
