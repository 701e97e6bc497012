# SPDX-License-Identifier: MIT
"""Records: what is written is what is read, and nothing else is accepted."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from tierlab.cells.model import Cell, Problem, Shape
from tierlab.errors import StoreError
from tierlab.judge.verdict import Judgement, Verdict
from tierlab.run.record import BuildInfo, CellRecord, Exclusion, ProfileInfo, RunInfo

CELL = Cell(
    Problem("ggml.mul_mat", "mul_mat", "iq4_xs", "f32", Shape(5, 64, 512), "blocks", "gauss"),
    path="repack",
    threads=4,
    build="stock",
    profile="neoverse-n2",
)
RECORD = CellRecord.of(
    CELL,
    Judgement(Verdict.FAIL, share=3.25, max_abs=1e-3, nmse=2e-9, detail="row 3 column 7"),
    expected=Verdict.FAIL,
    digest="ab" * 32,
    ran={"ggml_gemm_iq4_xs_8x8_q8_K": 12},
    claimed=True,
    wall_ms=2.5,
    kernel_ms=1.25,
    reason="known upstream",
)
INFO = RunInfo(
    run_id="20260115-030000-abc123",
    seed=7,
    asked=12,
    started="2026-01-15T03:00:00+00:00",
    builds=(BuildInfo("stock", "sha256:9a", flags=("-O2",)),),
    profiles=(ProfileInfo("a64fx", "qemu-11.1", "a64fx", ("asimd", "sve"), 512, hello={"variant": "x.so"}),),
    exclusions=(Exclusion("*/a64fx", "no DOTPROD", 3),),
    emulators={"qemu-11.1": "11.1.3"},
    shard=(1, 4),
)


def test_a_record_takes_its_axes_from_the_cell() -> None:
    assert RECORD.cell == "ggml.mul_mat/iq4_xs/m5n64k512/blocks.gauss/repack/t4/stock/neoverse-n2"
    axes = (RECORD.suite, RECORD.type, RECORD.shape, RECORD.inputs, RECORD.path, RECORD.build, RECORD.profile)
    assert axes == ("ggml.mul_mat", "iq4_xs", "m5n64k512", "blocks.gauss", "repack", "stock", "neoverse-n2")
    assert (RECORD.threads, RECORD.lane) == (4, CELL.lane.id)


def test_the_type_axis_names_an_activation_type_other_than_f32() -> None:
    cell = replace(CELL, problem=replace(CELL.problem, weight_type="f16", activation_type="f16"))
    assert CellRecord.of(cell, Judgement(Verdict.PASS)).type == "f16.f16"


def test_a_line_reads_back_equal() -> None:
    whole = replace(RECORD, ulp=4.0, resolution=3e-6)  # no NaN, which equals nothing
    line = whole.to_line()
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert CellRecord.from_line(line) == whole


@pytest.mark.parametrize(
    ("value", "written"), [(math.nan, None), (math.inf, "inf"), (-math.inf, "-inf"), (0.5, 0.5)]
)
def test_figures_that_json_lacks(value: float, written: object) -> None:
    line = replace(RECORD, share=value).to_line()
    assert json.loads(line)["share"] == written
    back = CellRecord.from_line(line).share
    assert back == value or (math.isnan(back) and math.isnan(value))


@pytest.mark.parametrize(
    "detail", ["two\nlines", "tab\t", '"quoted"', "\x00\x1b[31m", "\udc80 not utf-8", "ß∑"]
)
def test_any_text_survives(detail: str) -> None:
    line = replace(RECORD, detail=detail).to_line()
    assert line.count(b"\n") == 1
    assert CellRecord.from_line(line).detail == detail


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"verdict": "great"}, "verdict"),
        ({"verdict": ["pass"]}, "verdict"),
        ({"expected": None}, "expected"),
        ({"threads": "4"}, "threads"),
        ({"threads": True}, "threads"),
        ({"share": "0.5"}, "share"),
        ({"share": True}, "share"),
        ({"ran": ["x"]}, "ran"),
        ({"ran": {"x": 1.5}}, "ran"),
        ({"claimed": 2}, "claimed"),
        ({"cached": 0}, "cached"),
        ({"cell": 5}, "cell"),
        ({"extra": 1}, "extra"),
    ],
)
def test_a_wrong_field_is_named(change: dict[str, object], word: str) -> None:
    with pytest.raises(StoreError, match=rf"results:7: .*{word}"):
        CellRecord.from_json(RECORD.to_json() | change, "results:7")


def test_a_missing_field_is_named() -> None:
    value = RECORD.to_json()
    del value["digest"]
    with pytest.raises(StoreError, match=r"missing or unknown: digest"):
        CellRecord.from_json(value)


def test_a_declaration_can_be_replaced() -> None:
    again = RECORD.expecting(Verdict.PASS)
    assert (again.expected, again.reason, again.as_expected) == (Verdict.PASS, "", False)
    assert (RECORD.as_expected, again.digest) == (True, RECORD.digest)


def test_run_info_reads_back_equal() -> None:
    assert RunInfo.from_json(json.loads(json.dumps(INFO.to_json()))) == INFO


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 99}, r"schema 99, this tierlab reads 1"),
        ({"seed": "7"}, r"run\.json\.seed: expected int, found '7'"),
        ({"dirty": 1}, r"run\.json\.dirty: expected bool"),
        ({"builds": {}}, r"run\.json\.builds: expected a list"),
        ({"builds": [{"name": "stock"}]}, r"run\.json\.builds\[0\]: the key 'digest' is missing"),
        ({"exclusions": [[]]}, r"run\.json\.exclusions\[0\]: expected an object"),
        ({"hostt": {}}, r"unknown key 'hostt'"),
        ({"shard": [1, "4"]}, r"run\.json\.shard\[1\]: expected int"),
        ({"emulators": {"q": 1}}, r"run\.json\.emulators\.q: expected str"),
    ],
)
def test_damaged_run_info_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(StoreError, match=message):
        RunInfo.from_json(INFO.to_json() | change)


def test_run_info_must_be_an_object() -> None:
    with pytest.raises(StoreError, match="schema None"):
        RunInfo.from_json([])
