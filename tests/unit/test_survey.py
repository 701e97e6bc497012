# SPDX-License-Identifier: MIT
"""Surveys with a fake library: paths in its own order, kernels from receipts, claims, drift and silence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from tierlab.cells.claims import expected_claim
from tierlab.cells.load import load_matrix
from tierlab.dispatch.chips import gaps, load_chips
from tierlab.dispatch.sources import Deciders, Line
from tierlab.dispatch.variants import Backend
from tierlab.harness.messages import Hello
from tierlab.judge.verdict import Judgement, Verdict
from tierlab.report.chip_report import ChipAnswer, chip_json, chip_markdown
from tierlab.report.claims_report import claims_json, claims_markdown
from tierlab.report.tables import table, write_both
from tierlab.run.record import CellRecord
from tierlab.run.survey import Survey, claim, product
from tierlab.run.survey_chip import observation, paths_in_order, type_answers
from tierlab.run.survey_claims import claim_map

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tierlab.cells.model import Cell

MATRIX = load_matrix(Path(__file__).parents[2] / "matrix.yaml")


def hello(*features: str, buffers: tuple[str, ...] = ("CPU_KLEIDIAI", "CPU_REPACK")) -> Hello:
    return Hello(
        protocol=1, build="b", arch="aarch64", variant="libggml-cpu-armv8.2_2.so", hwcap=0, hwcap2=0,
        features=frozenset(features), vector_bits=0, streaming_bits=0, fa64=False, sme_version=0, kernels=9,
        scores=(("libggml-cpu-armv8.0_1.so", 1), ("libggml-cpu-armv8.2_2.so", 7)), buffer_types=buffers,
    )  # fmt: skip


class FakeSurvey:
    """Answers as the matrix's rules say, but for `lies` (claims turned round) and `silent` (untested)."""

    matrix = MATRIX

    def __init__(self, lies: Iterable[str] = (), silent: Iterable[str] = ()) -> None:
        self.lies, self.silent = set(lies), set(silent)
        self.asked: list[Cell] = []

    def answers(self, cells: Iterable[Cell]) -> dict[str, CellRecord]:
        return {cell.id: self._record(cell) for cell in cells}

    def _record(self, cell: Cell) -> CellRecord:
        self.asked.append(cell)
        if cell.id in self.silent:
            return CellRecord.of(cell, Judgement(Verdict.UNTESTED, detail="no answer"))
        claims = expected_claim(MATRIX, cell)
        if cell.problem.op == "claim":
            lies = cell.id in self.lies
            verdict = Verdict.DRIFT if lies else Verdict.PASS
            return CellRecord.of(
                cell, Judgement(verdict, detail="lie" if lies else ""), claimed=claims != lies
            )
        ran = {f"{cell.path}_ggml_vec_dot_x.constprop.0@f.c": cell.problem.shape.m, "quantize_row_q8_0": 3}
        return CellRecord.of(cell, Judgement(Verdict.PASS), ran=ran)


def as_survey(fake: FakeSurvey) -> Survey:
    return cast("Survey", fake)


def test_the_library_s_own_order_of_buffer_types_decides_the_path() -> None:
    assert paths_in_order(MATRIX, hello()) == ["kleidiai", "repack"]
    assert paths_in_order(MATRIX, hello(buffers=("CPU_REPACK", "CPU_OTHER"))) == ["repack"]


@pytest.mark.parametrize(
    ("profile", "kind", "path"),
    [
        ("neoverse-n2", "q4_0", "kleidiai"),
        ("neoverse-n2", "q4_k", "repack"),
        ("neoverse-n2", "iq4_xs", "default"),
        ("cortex-a53", "q4_0", "default"),
    ],
)
def test_a_type_s_path_is_the_first_that_claims_it(profile: str, kind: str, path: str) -> None:
    fake = FakeSurvey()
    answers = {item.kind: item for item in type_answers(as_survey(fake), profile, hello())}
    assert answers[kind].path == path
    assert [(seen.workload, seen.threads) for seen in answers[kind].observations] == [
        ("decode", 1),
        ("prefill", 1),
    ]
    assert sum(answers[kind].observations[1].kernels.values()) == 128
    products = {
        cell.path for cell in fake.asked if cell.problem.op == "mul_mat" and cell.problem.weight_type == kind
    }
    assert products == {path}, "only the path that a model's weights would take is executed"


def test_with_an_sme_unit_several_threads_are_asked_too() -> None:
    found = type_answers(as_survey(FakeSurvey()), "sme2-nosve", hello("sme"))
    assert {seen.threads for seen in found[0].observations} == {1, 4}


def test_an_observation_names_the_product_kernels_as_the_source_does() -> None:
    cell = product("neoverse-n1", "q4_0", "m1n64k256", "default")
    ran = {
        "ggml_vec_dot_q4_0_q8_0.lto_priv.0@quants.c": 64,
        "quantize_row_q8_0": 1,
        "ggml_gemm_a|ggml_gemm_b": 2,
    }
    seen = observation("decode", 1, CellRecord.of(cell, Judgement(Verdict.PASS), ran=ran))
    assert seen.kernels == {"ggml_vec_dot_q4_0_q8_0": 64, "ggml_gemm_a": 2}


def test_the_claim_map_says_who_takes_what() -> None:
    found = claim_map(as_survey(FakeSurvey()), ["cortex-a53", "neoverse-n2"], ["q4_0", "q4_k", "f32"])
    words = {
        (kind, profile): found.word("MUL_MAT", kind, profile)
        for kind in found.kinds
        for profile in found.profiles
    }
    assert words == {
        ("q4_0", "cortex-a53"): "–",
        ("q4_0", "neoverse-n2"): "kleidiai+repack",
        ("q4_k", "cortex-a53"): "–",
        ("q4_k", "neoverse-n2"): "repack",
        ("f32", "cortex-a53"): "–",
        ("f32", "neoverse-n2"): "–",
    }
    assert found.word("MUL_MAT_ID", "q4_0", "neoverse-n2") == "repack", "KleidiAI takes no MUL_MAT_ID"
    assert found.word("MUL_MAT, N = 61", "q4_0", "neoverse-n2") == "kleidiai"
    assert (found.drift, found.unanswered, found.asked) == ((), 0, 36)


def test_a_claim_against_the_rules_is_drift_and_a_silence_is_no_claim() -> None:
    lie = claim("neoverse-n2", "iq4_xs", "m512n64k256", "repack").id
    silent = claim("neoverse-n2", "q4_0", "m512n64k256e4u2i1", "repack").id
    found = claim_map(as_survey(FakeSurvey([lie], [silent])), ["neoverse-n2"], ["q4_0", "iq4_xs"])
    assert [record.cell for record in found.drift] == [lie]
    assert found.word("MUL_MAT", "iq4_xs", "neoverse-n2") == "repack"
    assert found.word("MUL_MAT_ID", "q4_0", "neoverse-n2") == "?"
    lines = Deciders(
        (Line("a.cpp", 3, "bool f() {"),), (), {"q4_0": (Line("a.cpp", 4, "if (x || y)"),), "iq4_xs": ()}
    )
    text = claims_markdown(found, {"repack": lines}, "a tree")
    assert "drift, lie" in text
    assert "1 questions without an answer" in text
    assert "ggml/a.cpp:4 `if (x \\|\\| y)`" in text
    assert "claimed without a line that names the type" in text
    value = claims_json(found, {"repack": lines}, "a tree")
    assert value["claims"]["MUL_MAT"]["q4_0"]["neoverse-n2"] == ["kleidiai", "repack"]
    assert value["claims"]["MUL_MAT_ID"]["q4_0"]["neoverse-n2"] is None


def chip_answer(name: str, profile: str) -> ChipAnswer:
    chip = load_chips()[name]
    said = hello("asimd", "dotprod", "fp16", "sve2p1")
    linux = (Backend("armv8.0_1", frozenset()), Backend("armv8.6_1", frozenset({"dotprod", "i8mm"}), "f:7"))
    sets = {"linux": linux, "android": linux, "apple": linux}
    types = type_answers(as_survey(FakeSurvey()), profile, said)
    return ChipAnswer(chip, MATRIX.profiles[profile], said, gaps(chip, said.features, 0, 0), sets, types)


def test_the_chip_s_page_tells_variant_gaps_and_kernels() -> None:
    answer = chip_answer("snapdragon-8-elite", "i8mm-nosve")
    text = chip_markdown(answer)
    assert "variant loaded on it: `armv8.2_2`, score 7" in text
    assert "**other variant**: ggml's rule picks `armv8.6_1`" in text
    assert "a package for android carries another set" in text
    assert "in silicon, not in the model: bf16, fcma, fhm, i8mm, rdm" in text
    assert "in the model, not in silicon as the sources tell it: sve2p1" in text
    assert "**kernels are chosen by bf16, i8mm**" in text
    assert "kleidiai_ggml_vec_dot_x × 128" in text
    value = chip_json(answer)
    assert value["types"]["q4_0"]["path"] == "kleidiai"
    assert (value["variant"], value["variant_by_rule"]) == ("armv8.2_2", "armv8.6_1")


def test_a_failing_cell_shows_in_the_chip_s_table() -> None:
    answer = chip_answer("rpi5", "cortex-a76")
    seen = replace(answer.types[0].observations[0], verdict="fail", expected=False, kernels={})
    first = replace(answer.types[0], observations=(seen, answer.types[0].observations[1]))
    text = chip_markdown(replace(answer, types=[first, *answer.types[1:]]))
    assert "no kernel counted (fail, unexpected)" in text


def test_tables_are_padded_and_both_files_written(tmp_path: Path) -> None:
    assert table(["a", "bcd"], [["x|y", "1"]]) == "| a    | bcd |\n| ---- | --- |\n| x\\|y | 1   |"
    markdown, value = write_both(tmp_path, "n", "text\n", {"k": 1})
    assert (markdown.read_text(), value.read_text()) == ("text\n", '{\n "k": 1\n}\n')
