# SPDX-License-Identifier: MIT
"""What a verdict is keyed by, and what it is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tierlab.cells.inputs import as_float32
from tierlab.cells.load import load_matrix
from tierlab.cells.model import LaneKey
from tierlab.cells.selection import Selection
from tierlab.errors import StoreError
from tierlab.run.keys import canonical, digest_of, lane_parts, rules_digest, source_digest
from tierlab.run.plan import Plan, read_plan, write_plan
from tierlab.run.requests import ROW_PADDING, padded_rows
from tierlab.toolchain.build import Build

MATRIX = load_matrix(Path(__file__).parents[2] / "matrix.yaml")
PROFILE = MATRIX.profiles["neoverse-n1"]
LANE = LaneKey("stock", "neoverse-n1", "ggml.mul_mat")


def build(name: str = "stock", files: dict[str, str] | None = None) -> Build:
    folder = Path("/cache/binaries/1")
    return Build(
        name=name,
        mode="variants",
        directory=folder,
        harness=folder / "tierlab-harness",
        backend_dir=folder,
        digest="d",
        tree_digest="t",
        flags=("-DX=1",),
        log=Path("/cache/log"),
        file_digests=files or {"a.so": "1"},
        notes=("n",),
    )


def plan(tmp_path: Path) -> Plan:
    selection = Selection(only=("a*", "b"), shard=(2, 3))
    return Plan(tmp_path, selection, 7, "rootfs", "image", {"stock": build()}, build("reference"))


def key(of: Plan, **changes: object) -> dict[str, str]:
    profile = changes.get("profile", PROFILE)
    files = changes.get("files", {"a.so": "1"})
    return lane_parts(of, profile, LANE, "rules", files)  # type: ignore[arg-type]


def test_plan_survives_the_disk(tmp_path: Path) -> None:
    made = replace(plan(tmp_path), environment={"GGML_KLEIDIAI_SME": "2"})
    assert read_plan(write_plan(made)) == made


def test_the_environment_of_the_processes_is_part_of_a_verdict_s_key(tmp_path: Path) -> None:
    plain = plan(tmp_path)
    keys = [key(replace(plain, environment=words)) for words in ({"A": "1"}, {"A": "2"}, {"B": "1"})]
    assert "environment" not in key(plain)
    assert len({each["environment"] for each in keys}) == 3


def test_damaged_plan_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text('{"run_dir": 1')
    with pytest.raises(StoreError, match="not a plan of this version"):
        read_plan(tmp_path / "plan.json")


def test_canonical_has_one_order() -> None:
    many = frozenset(f"feature{number}" for number in range(50))
    assert canonical({"x": many}) == {"x": sorted(many)}
    assert digest_of(PROFILE) == digest_of(replace(PROFILE, features=frozenset(sorted(PROFILE.features))))


def test_key_follows_what_decides(tmp_path: Path) -> None:
    made = plan(tmp_path)
    base = key(made)
    assert key(made, profile=replace(PROFILE, note="other text", products=("x",))) == base
    different = [
        key(made, profile=replace(PROFILE, cpu="max")),
        key(made, files={"a.so": "2"}),
        key(replace(made, seed=8)),
        key(replace(made, engine_identity="other")),
        key(replace(made, engine="native")),
        key(replace(made, reference=build("reference", {"h": "2"}))),
    ]
    assert all(other != base for other in different)
    assert key(replace(made, engine="docker")) == base


def test_rules_do_not_depend_on_presets_but_on_claims() -> None:
    base = rules_digest(MATRIX)
    assert rules_digest(replace(MATRIX, presets={}, expected=(), exclusions=())) == base
    assert rules_digest(replace(MATRIX, paths={})) != base


def test_sources_are_part_of_the_key() -> None:
    assert source_digest(("judge",)) != source_digest(("oracle",))
    assert len(source_digest(("run/requests.py",))) == 64


def test_padding_between_rows_is_nan() -> None:
    rows = np.arange(6, dtype=np.float32).reshape(1, 1, 2, 3)
    flat, stride = padded_rows(rows)
    assert stride == 12 + ROW_PADDING
    lines = flat.view(np.float32).reshape(2, -1)
    assert np.array_equal(lines[:, :3], rows[0, 0])
    assert np.isnan(lines[:, 3:]).all()


def test_activation_bits_become_their_values() -> None:
    values = np.array([1.5, -2.0, 0.0078125], np.float32)
    assert np.array_equal(as_float32("f32", values), values)
    assert np.array_equal(as_float32("f16", values.astype(np.float16).view(np.uint16)), values)
    bits = (values.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    assert np.array_equal(as_float32("bf16", bits), values)
