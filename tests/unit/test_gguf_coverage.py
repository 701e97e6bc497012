# SPDX-License-Identifier: MIT
"""Coverage: what a token costs in each weight, and which path takes it by the claims of a (fake) library."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from gguf_files import F16, F32, IQ4_XS, LLAMA, Q4_0, Q8_0, Made, gguf_file, llama
from test_survey import hello

from tierlab.cells.load import load_matrix
from tierlab.gguf.model import open_model
from tierlab.gguf.work import Matmul, matmuls
from tierlab.judge.verdict import Judgement, Verdict
from tierlab.report.gguf_coverage_report import coverage_json, coverage_markdown
from tierlab.run.record import CellRecord
from tierlab.run.survey_coverage import NEITHER, UNKNOWN, coverage, weight

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tierlab.cells.model import Cell
    from tierlab.harness.messages import Hello
    from tierlab.run.survey import Survey

MATRIX = load_matrix(Path(__file__).parents[2] / "matrix.yaml")
TAKEN = {("kleidiai", "q4_0"), ("kleidiai", "q8_0"), ("repack", "q4_0")}


class FakeSurvey:
    """Takes the types of TAKEN if N is a multiple of 8; `order` is the library's; `silent` paths say
    nothing."""

    matrix = MATRIX

    def __init__(self, order: tuple[str, ...] = ("CPU_KLEIDIAI", "CPU_REPACK"), silent: str = "") -> None:
        self.order, self.silent = order, silent
        self.asked: list[str] = []
        self.greeted: list[str] = []

    def answers(self, cells: Iterable[Cell]) -> dict[str, CellRecord]:
        return {cell.id: self._record(cell) for cell in cells}

    def _record(self, cell: Cell) -> CellRecord:
        self.asked.append(cell.id)
        if cell.path == self.silent:
            return CellRecord.of(cell, Judgement(Verdict.UNTESTED, detail="no answer"))
        taken = (cell.path, cell.problem.weight_type) in TAKEN and cell.problem.shape.n % 8 == 0
        return CellRecord.of(cell, Judgement(Verdict.PASS), claimed=taken)

    def hello(self, profile: str) -> Hello:
        self.greeted.append(profile)
        return replace(hello(), buffer_types=self.order)


def work_of(tmp_path: Path, data: bytes) -> tuple[Matmul, ...]:
    path = tmp_path / "m.gguf"
    path.write_bytes(data)
    return matmuls(open_model(path))


def survey(fake: FakeSurvey) -> Survey:
    return cast("Survey", fake)


def test_work_of_a_dense_model(tmp_path: Path) -> None:
    found = {matmul.tensor.name: matmul for matmul in work_of(tmp_path, llama())}
    # Seven matrices and the tied embedding; no norm.
    assert len(found) == 8
    assert found["blk.0.attn_q.weight"].shape == "m512n32k64"
    assert found["blk.0.attn_q.weight"].macs == {"decode": 64 * 32, "prefill": 64 * 32 * 512}
    assert found["blk.0.attn_q.weight"].nbytes == {"decode": 32 * 36, "prefill": 32 * 36}
    # Only the last token of a prompt is answered.
    assert found["token_embd.weight"].macs == {"decode": 64 * 32, "prefill": 64 * 32}


def test_work_of_experts(tmp_path: Path) -> None:
    metadata = {**LLAMA, "llama.expert_used_count": ("u32", 2)}
    tensors = [
        Made("blk.0.ffn_up_exps.weight", Q4_0, (64, 32, 8)),
        Made("blk.0.ffn_gate_inp.weight", F32, (64, 8)),
        Made("blk.0.attn_k_b.weight", F16, (64, 32, 4)),
        Made("token_embd.weight", Q8_0, (64, 32)),
        Made("output.weight", Q8_0, (64, 32)),
    ]
    found = {matmul.tensor.name: matmul for matmul in work_of(tmp_path, gguf_file(metadata, tensors))}
    experts = found["blk.0.ffn_up_exps.weight"]
    assert experts.shape == "m512n32k64e8u2i0"
    assert experts.macs == {"decode": 2 * 64 * 32, "prefill": 2 * 64 * 32 * 512}
    assert experts.nbytes == {"decode": 2 * 32 * 36, "prefill": 8 * 32 * 36}
    assert found["blk.0.ffn_gate_inp.weight"].shape == "m512n8k64"
    assert found["blk.0.attn_k_b.weight"].shape == "m512n32k64b4x1w4x1"
    assert found["blk.0.attn_k_b.weight"].macs["decode"] == 4 * 64 * 32
    assert "token_embd.weight" not in found


@pytest.mark.parametrize(
    ("order", "path"),
    [(("CPU_KLEIDIAI", "CPU_REPACK"), "kleidiai"), (("CPU_REPACK", "CPU_KLEIDIAI"), "repack")],
)
def test_the_first_buffer_type_that_takes_a_weight_gets_it(
    tmp_path: Path, order: tuple[str, ...], path: str
) -> None:
    work = work_of(tmp_path, llama())
    fake = FakeSurvey(order)
    found = coverage(survey(fake), ["neoverse-n1"], work)
    placed = {matmul.tensor.name: found.placed["neoverse-n1", weight(matmul)].path for matmul in work}
    assert placed["blk.0.ffn_up.weight"] == path
    assert placed["token_embd.weight"] == "kleidiai"
    assert fake.greeted == ["neoverse-n1"]


def test_reasons_for_leaving_the_fast_paths(tmp_path: Path) -> None:
    tensors = [
        Made("blk.0.ffn_up.weight", IQ4_XS, (256, 32)),
        Made("blk.0.ffn_down.weight", Q8_0, (64, 31)),
        Made("blk.0.ffn_gate.weight", Q8_0, (64, 32)),
    ]
    work = work_of(tmp_path, gguf_file(LLAMA, tensors))
    found = coverage(survey(FakeSurvey()), ["neoverse-n1", "neoverse-n2"], work)
    placed = [found.placed["neoverse-n2", weight(matmul)] for matmul in work]
    assert [(each.path, each.reason) for each in placed] == [
        (NEITHER, "type"),
        (NEITHER, "shape"),
        ("kleidiai", ""),
    ]
    text = coverage_markdown(found, work, "a tree")
    assert "- A: neoverse-n1, neoverse-n2" in text
    assert "- A, no fast path takes the type: `blk.*.ffn_up.weight` (1 × iq4_xs, rows of 256)" in text
    assert "- A, a fast path takes the type, and not this shape: `blk.*.ffn_down.weight`" in text
    macs = [256 * 32, 64 * 31, 64 * 32]
    sums = coverage_json(found, work, "a tree")["profiles"]["neoverse-n1"]["paths"]
    assert sums["kleidiai"]["decode"] == {"weights": 1, "bytes": 32 * 68, "macs": macs[2]}
    assert sums[NEITHER]["decode"] == {"weights": 2, "bytes": 32 * 136 + 31 * 68, "macs": macs[0] + macs[1]}
    assert f"| {100 * macs[2] / sum(macs):.1f} % " in text


def test_silence_and_unknown_types_are_not_taken_for_an_answer(tmp_path: Path) -> None:
    work = work_of(tmp_path, llama())
    found = coverage(survey(FakeSurvey(silent="repack")), ["neoverse-n1"], work)
    assert found.unanswered == len({weight(matmul) for matmul in work})
    assert "no answer came" in coverage_markdown(found, work, "")
    strange = work_of(tmp_path, gguf_file(LLAMA, [Made("blk.0.ffn_up.weight", 28, (4, 8), bytes(256))]))
    found = coverage(survey(FakeSurvey()), ["neoverse-n1"], strange)
    assert found.placed["neoverse-n1", weight(strange[0])].path == UNKNOWN
    assert "matrix.yaml does not know the type" in coverage_markdown(found, strange, "")
