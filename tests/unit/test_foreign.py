# SPDX-License-Identifier: MIT
"""Cells that a published tree of another time does not have: left out with a reason, never in silence."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tierlab.cells.cell_id import parse_cell_id
from tierlab.cells.claims import expected_kernels
from tierlab.cells.expand import expand
from tierlab.cells.load import load_matrix
from tierlab.cells.selection import Selection
from tierlab.harness.messages import Answer, Hello, TypeInfo
from tierlab.run import foreign
from tierlab.run.foreign import Known, absent, counted, reason
from tierlab.run.judging import TreeFacts
from tierlab.run.plan import Plan, plan_lanes
from tierlab.toolchain.tree_facts import f16_sums

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tierlab.cells.model import Cell
    from tierlab.harness.messages import Request

ROOT = Path(__file__).parents[2]
MATRIX = load_matrix(ROOT / "matrix.yaml")
KNOWN = Known(
    types={
        "q4_0": (32, 18, "q8_0", 1),
        "q8_0": (32, 34, "q8_0", 1),
        "q4_1": (32, 20, "q8_0", 1),
        "f16": (1, 2, "f16", 1),
        "q8_k": (256, 292, "", 0),
    },
    buffers=("CPU_REPACK",),
    claims={"repack q4_0.f32 m5n64k512": True, "repack q8_0.f32 m5n64k512": False},
)


def build(sums: str = "wide") -> Any:
    return SimpleNamespace(f16_sums=sums, binaries="b", directory=Path("/nowhere"))


def cell(text: str, build_name: str = "sdist-0.3.16", profile: str = "neoverse-n2") -> Cell:
    return parse_cell_id(MATRIX, f"{text}/{build_name}/{profile}")


@pytest.mark.parametrize(
    ("text", "sums", "why"),
    [
        ("ggml.mul_mat/q4_0/m5n64k512/blocks.gauss/default/t1", "wide", ""),
        (
            "ggml.mul_mat/q1_0/m5n64k512/blocks.gauss/default/t1",
            "wide",
            "type q1_0 does not exist in this tree",
        ),
        (
            "ggml.dequantize/q1_0/m1n8k512/blocks.none/default/t1",
            "wide",
            "type q1_0 does not exist in this tree",
        ),
        ("ggml.mul_mat/q4_1/m5n64k512/blocks.gauss/default/t1", "wide", "has another block or other codes"),
        ("ggml.quantize/q8_0/m5n1k512/none.gauss/default/t1", "wide", ""),
        ("ggml.quantize/q8_k/m5n1k512/none.gauss/default/t1", "wide", "does not quantise to q8_k"),
        ("ggml.mul_mat/f16/m5n64k512/blocks.gauss/default/t1", "wide", ""),
        ("ggml.mul_mat/f16/m5n64k512/blocks.gauss/default/t1", "neon", ""),
        ("ggml.mul_mat/f16/m5n64k512/blocks.gauss/default/t1", "sve", "no budget is derived for F16 sums"),
        ("ggml.mul_mat/q4_0/m5n64k512/blocks.gauss/repack/t1", "wide", ""),
        ("ggml.mul_mat/q8_0/m5n64k512/blocks.gauss/repack/t1", "wide", "path repack takes other types"),
        (
            "ggml.mul_mat/q4_0/m5n64k512/blocks.gauss/kleidiai/t1",
            "wide",
            "path kleidiai does not exist in this",
        ),
        ("ggml.claims/q8_0/m5n64k512/none.none/repack/t1", "wide", "path repack takes other types"),
        ("ggml.claims/q8_0/m5n64k512/none.none/kleidiai/t1", "wide", "path kleidiai does not exist in this"),
    ],
)
def test_reasons(text: str, sums: str, why: str) -> None:
    found = reason(MATRIX, cell(text), KNOWN, build(sums))
    assert (why in found) if why else found == ""


def test_a_claim_that_both_deny_stays() -> None:
    denied = cell("ggml.claims/q4_0/m5n61k512/none.none/repack/t1")
    assert reason(MATRIX, denied, KNOWN, build()) == ""


def test_where_sve_is_not_compiled_in_sums_in_sve_registers_are_none() -> None:
    text = "ggml.mul_mat/f16/m5n64k512/blocks.gauss/default/t1"
    assert reason(MATRIX, cell(text, "sdist-0.3.17:armv8.2-a+fp16"), KNOWN, build("sve")) == ""


class FakeSession:
    """Answers claims from a table and counts them."""

    def __init__(self, takes: set[str]) -> None:
        self.takes, self.asked, self.starts = takes, 0, 0
        self._last: Request | None = None

    def start(self) -> Hello:
        self.starts += 1
        types = tuple(
            TypeInfo(name, at, block, size, codes or None, bool(quantises))
            for at, (name, (block, size, codes, quantises)) in enumerate(KNOWN.types.items())
        )
        return Hello(
            1,
            "b",
            "aarch64",
            "v",
            0,
            0,
            frozenset(),
            128,
            0,
            False,
            0,
            9,
            buffer_types=("CPU_REPACK",),
            types=types,
        )

    def submit(self, request: Request) -> None:
        self._last = request
        self.asked += 1

    def receive(self, _: float) -> Answer:
        assert self._last is not None
        return Answer(0, "ok", claimed=self._last.weight_type in self.takes)


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeSession:
    made = FakeSession({"q4_0"})

    @contextmanager
    def opened(*_: object) -> Iterator[FakeSession]:
        yield made

    monkeypatch.setenv("TIERLAB_CACHE", str(tmp_path))
    monkeypatch.setattr(foreign, "Session", opened)
    monkeypatch.setattr(foreign, "SessionFolder", lambda: opened())
    monkeypatch.setattr(FakeSession, "mount", None, raising=False)
    monkeypatch.setattr(foreign, "harness_command", lambda *_: None)
    monkeypatch.setattr(foreign, "Mount", lambda *_: None)
    return made


def test_only_published_trees_are_asked_and_only_once(session: FakeSession) -> None:
    @contextmanager
    def sandbox(*_: object) -> Iterator[None]:
        yield

    engine: Any = SimpleNamespace(emulated=True, sandbox=sandbox)
    selection = Selection(preset="quick", builds=("stock", "sdist-0.3.16"), profiles=("neoverse-n2",))
    cells = list(expand(MATRIX, selection))
    builds = {"stock": build(), "sdist-0.3.16": build()}
    found = absent(engine, MATRIX, builds, cells)
    assert session.starts == 1
    asked = session.asked
    assert {text.split("/")[-2] for text in found} == {"sdist-0.3.16"}
    whys = {item.reason: item.count for item in counted(found)}
    assert sum(whys.values()) == len(found)
    assert whys["type iq2_s does not exist in this tree"] > 0
    left = [cell for cell in cells if cell.build == "sdist-0.3.16" and cell.id not in found]
    assert {cell.problem.weight_type for cell in left} <= {"q4_0", "q8_0", "f16"}
    products = [cell for cell in left if cell.problem.op == "mul_mat"]
    assert {cell.problem.weight_type for cell in products if cell.path == "repack"} == {"q4_0"}
    assert absent(engine, MATRIX, builds, cells) == found
    assert (session.starts, session.asked) == (1, asked)


def test_the_lanes_of_a_plan_hold_no_absent_cell(tmp_path: Path) -> None:
    selection = Selection(
        preset="quick", builds=("sdist-0.3.16",), profiles=("neoverse-n2",), types=("q4_0",)
    )
    cells = list(expand(MATRIX, selection))
    plan = Plan(tmp_path, selection, 1, "rootfs", "", {}, build(), absent=tuple(c.id for c in cells[1:]))
    assert [cell for _, lane in plan_lanes(MATRIX, plan) for cell in lane] == cells[:1]
    whole = replace(plan, absent=())
    assert [cell for _, lane in plan_lanes(MATRIX, whole) for cell in lane] == cells


def test_a_rule_whose_kernels_a_tree_lacks_gives_way_to_the_next() -> None:
    f16 = cell("ggml.mul_mat/f16/m5n64k512/blocks.gauss/default/t1", profile="sme2-nosve")
    (first,) = expected_kernels(MATRIX, f16)
    assert first[0].startswith("kai_run_matmul")
    older = TreeFacts(symbols=frozenset({"ggml_vec_dot_f16", "ggml_vec_dot_q4_0_q8_0"}))
    assert expected_kernels(MATRIX, f16, older.exist) == (("ggml_vec_dot_f16",),)
    neither = TreeFacts(symbols=frozenset({"ggml_vec_dot_q4_0_q8_0"}))
    assert expected_kernels(MATRIX, f16, neither.exist) == (first,), "what cannot be met is not met"
    assert expected_kernels(MATRIX, f16, TreeFacts().exist) == (first,)


@pytest.mark.parametrize(
    ("body", "sums"),
    [
        ("ggml_sve_f16_fma_widened(a);", "wide"),
        ("#if defined(__ARM_FEATURE_SVE)\n x();\n#endif", "sve"),
        ("GGML_F16_VEC sum;", "neon"),
    ],
)
def test_how_f16_sums_are_made(tmp_path: Path, body: str, sums: str) -> None:
    path = tmp_path / "src/ggml-cpu/vec.cpp"
    path.parent.mkdir(parents=True)
    path.write_text(
        f"void ggml_vec_dot_f16(int n) {{\n    {body}\n}}\nvoid other() {{\n    fma_widened();\n}}\n"
    )
    assert f16_sums(tmp_path) == sums


def test_how_f16_sums_are_made_where_the_file_is_not(tmp_path: Path) -> None:
    assert f16_sums(tmp_path) == "wide"
    (tmp_path / "src/ggml-cpu").mkdir(parents=True)
    assert f16_sums(tmp_path) == "neon"


def test_what_was_asked_is_kept_as_plain_text(tmp_path: Path) -> None:
    path = tmp_path / "known.json"
    foreign._write(path, KNOWN)
    assert foreign._read(path) == KNOWN
    path.write_text(json.dumps({"types": []}))
    assert foreign._read(path) is None
