# SPDX-License-Identifier: MIT
"""Both engines give the same answers: one small matrix, run whole on each, compared cell by cell."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from absent import absent

from tierlab.cells.expand import expand
from tierlab.cells.load import load_matrix
from tierlab.cells.selection import Selection
from tierlab.cli.execute import execute
from tierlab.errors import EngineError
from tierlab.run.prepare import Wish, prepare
from tierlab.run.store import read_records, read_run_info
from tierlab.toolchain.docker_engine import DockerEngine

if TYPE_CHECKING:
    from tierlab.run.record import CellRecord

pytestmark = [pytest.mark.engine, pytest.mark.docker]

MATRIX = Path(__file__).parents[2] / "matrix.yaml"
PROFILES = ("neoverse-n1", "sme2-nosve", "sve2-384")
"""Advanced SIMD; SME without SVE; SVE of a length that is no power of two."""

SELECTION = Selection(
    preset="quick",
    profiles=PROFILES,
    only=(
        "ggml.mul_mat/q4_0/*",
        # Not on the default path at 384 bits: that known fault returns an uninitialised sum.
        "ggml.mul_mat/q6_k/*/repack/*",
        "ggml.mul_mat/q6_k/*/neoverse-n1",
        "ggml.mul_mat/f[13][26]/*",
        "ggml.mul_mat_id/q4_0/*",
        "ggml.quantize/*/none.gauss/*",
        "ggml.dequantize/iq4_xs/*",
        "ggml.claims/q?_0/*",
        # Known faults: a wrong product, an abort. (f32 at 384 bits reads beyond its buffer.)
        "ggml.mul_mat/q4_0/m5n24k64s/blocks.gauss/repack/t1/stock/neoverse-n1",
        "ggml.mul_mat/q4_0/m4n16k32b2x2w1x1/blocks.gauss/repack/t1/stock/neoverse-n1",
    ),
)
COMPARED = (
    "verdict",
    "expected",
    "detail",
    "digest",
    "ran",
    "claimed",
    "share",
    "max_abs",
    "nmse",
    "ulp",
    "resolution",
)


def answers(engine: str, reports: Path) -> dict[str, CellRecord]:
    """Cell → record of a fresh run on an engine."""
    wish = Wish(MATRIX, SELECTION, engine=engine, fresh=True, reports=reports)
    plan = prepare(wish, say=lambda _: None)
    assert not execute(plan, workers=2)
    assert read_run_info(plan.parent).engine == engine
    return read_records(plan.parent)


def figures(record: CellRecord) -> dict[str, str]:
    """What must be equal, as text: NaN equals NaN there."""
    return {name: repr(getattr(record, name)) for name in COMPARED}


def test_both_engines_give_the_same_answers(tmp_path: Path) -> None:
    try:
        DockerEngine().close()
    except EngineError as error:
        absent(f"no docker engine: {error}")
    asked = {cell.id: cell for cell in expand(load_matrix(MATRIX), SELECTION)}
    docker, rootfs = (answers(engine, tmp_path / engine) for engine in ("docker", "rootfs"))
    assert docker.keys() == rootfs.keys() == asked.keys()
    assert {cell.problem.suite for cell in asked.values()} == set(load_matrix(MATRIX).suites)
    assert {cell.path for cell in asked.values()} == {"default", "repack", "kleidiai"}
    assert {cell.profile for cell in asked.values()} == set(PROFILES)
    assert not any(record.cached or record.undetermined for record in (*docker.values(), *rootfs.values()))
    assert {str(record.verdict) for record in docker.values()} == {"pass", "fail", "guard", "crash"}
    assert all(record.as_expected for record in docker.values())
    different = {
        name: (figures(docker[name]), figures(rootfs[name]))
        for name in asked
        if figures(docker[name]) != figures(rootfs[name])
    }
    assert different == {}
