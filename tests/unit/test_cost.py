# SPDX-License-Identifier: MIT
"""What a static model is asked, how its answer is read, and what is said of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from a64_samples import DOT, program

from tierlab.cells.load import load_matrix
from tierlab.dispatch.a64_walk import walk
from tierlab.dispatch.block_loop import BlockLoop, Work, block_loop
from tierlab.dispatch.cost_model import LONG, SHORT, Cycles, ModelError, command, cycles, program_text
from tierlab.dispatch.cost_plan import Call, CostPlan, Ratio, call_of, load_plan
from tierlab.errors import ConfigError
from tierlab.report.cost_report import STATIC, cost_json, cost_markdown, unmet
from tierlab.run.survey_cost import Cost, CostSurvey, followed

if TYPE_CHECKING:
    from tierlab.cells.matrix import Matrix

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    return load_matrix(ROOT / "matrix.yaml")


@pytest.fixture(scope="module")
def plan() -> CostPlan:
    return load_plan()


# What llvm-mca is given and says -----------------------------------------------------------------------


def test_a_region_holds_no_address() -> None:
    code = "adrp x0, 0x9000 <table>\nldr q1, [x0, #16]\nb.ne @end\nend:\nbl 0x8000 <f@plt>\nret"
    text = program_text({"one": program(f=code).by_name["f"].code})
    assert text.splitlines() == [
        "# LLVM-MCA-BEGIN one",
        "\tadrp\tx0, #0",
        "\tldr\tq1, [x0, #16]",
        "\tb.ne\t#8",
        "\tbl\t#8",
        "\tret",
        "# LLVM-MCA-END one",
    ]


def test_the_command_names_core_and_iterations() -> None:
    words = command("llvm-mca-19", "neoverse-n2", 6, "/lab/x.s")
    assert {"-mcpu=neoverse-n2", "-iterations=6", "-json"} <= set(words)
    assert (words[0], words[-1]) == ("llvm-mca-19", "/lab/x.s")


def answer(iterations: int, total: int, name: str = "one") -> str:
    summary = {
        "Iterations": iterations,
        "Instructions": 30 * iterations,
        "TotalCycles": total,
        "TotaluOps": 40 * iterations,
        "BlockRThroughput": 7.5,
    }
    value = {"CodeRegions": [{"Name": name, "SummaryView": summary}]}
    return f"warning: found a return\n{json.dumps(value, indent=1)}\n"


def test_filling_and_draining_do_not_count() -> None:
    found = cycles(answer(SHORT, 13 + 9 * SHORT), answer(LONG, 13 + 9 * LONG))
    assert found == {"one": Cycles(cycles=9.0, bound=7.5, instructions=30, uops=40.0)}


@pytest.mark.parametrize(
    ("short", "long", "message"),
    [
        ("error: invalid cpu", "", "cannot be read.*invalid cpu"),
        (answer(SHORT, 1), answer(LONG, 2, "other"), "answers for one, then for other"),
        (answer(SHORT, 1), answer(SHORT, 1), "not of the form"),
        ('{\n"CodeRegions": [{}]}', answer(LONG, 1), "cannot be read"),
    ],
)
def test_an_odd_answer_is_refused(short: str, long: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        cycles(short, long)


# What is asked for -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "kind", "kernel", "symbol"),
    [
        ("neoverse-n1", "q4_k", "gemm", "ggml_gemm_q4_K_8x4_q8_K"),
        ("neoverse-n2", "q4_k", "gemm", "ggml_gemm_q4_K_8x8_q8_K"),
        ("neoverse-v1", "q4_0", "gemv", "ggml_gemv_q4_0_8x8_q8_0"),
        ("neoverse-v2", "q4_0", "gemv", "ggml_gemv_q4_0_4x8_q8_0"),
        ("neoverse-v1", "iq4_nl", "dot", "ggml_vec_dot_iq4_nl_q8_0"),
        ("neoverse-n1", "iq4_xs", "dot", "ggml_vec_dot_iq4_xs_q8_K"),
        ("neoverse-n1", "iq4_xs", "gemm", None),
    ],
)
def test_kernels_come_from_the_rules_of_the_matrix(
    matrix: Matrix, plan: CostPlan, model: str, kind: str, kernel: str, symbol: str | None
) -> None:
    call = call_of(plan, matrix, "stock", model, kind, kernel)
    assert (call.symbol if call else None) == symbol


def test_calls_say_what_is_due(matrix: Matrix, plan: CostPlan) -> None:
    gemm = call_of(plan, matrix, "stock", "neoverse-n2", "q4_0", "gemm")
    dot = call_of(plan, matrix, "stock", "neoverse-n2", "q4_k", "dot")
    assert gemm is not None
    assert dot is not None
    assert gemm.work == Work(block=32, blocks=40, rows=16, columns=16)
    assert (gemm.arguments[0], gemm.arguments[-2:]) == (1280, (16, 16))
    assert dot.work.products == 1280
    assert dot.expected == ("ggml_vec_dot_q4_K_q8_K",)
    assert (len(dot.arguments), dot.arguments[-1]) == (8, 1), "one row at a time"


def test_another_kernel_on_the_way_than_receipts_demand_is_refused() -> None:
    call = Call("k", (160, 1 << 40, 0, 2 << 40, 0, 3 << 40, 0, 1), Work(32, 5, 1, 1), ("k",))
    assert isinstance(followed(program(k=DOT), call, 128, {}), BlockLoop)
    other = followed(program(k=DOT), replace(call, expected=("k_i8mm", "k_sve")), 128, {})
    assert other == "the way leads through k, and k_i8mm or k_sve is what runs there"
    assert followed(program(k="ret"), call, 128, {}).startswith("k does 0 multiply-accumulates")  # type: ignore[union-attr]


def test_every_name_of_the_plan_is_known(matrix: Matrix, plan: CostPlan) -> None:
    assert set(plan.models.values()) <= set(matrix.profiles)
    assert set(plan.types) <= set(matrix.types)
    assert plan.base in plan.types
    for entry in (*plan.expected, *plan.measured):
        assert entry.model in plan.models
        for side in (entry.kernel, entry.of):
            kind, kernel = side.split()
            assert kind in plan.types
            assert kernel in plan.kernels


def test_a_damaged_plan_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cost.yaml").write_text("models: {}\n")
    with pytest.raises(ConfigError, match=r"cost\.yaml cannot be used.*nothing was modelled"):
        load_plan(tmp_path / "cost.yaml")


# What is said ------------------------------------------------------------------------------------------


def loop() -> BlockLoop:
    found = walk(program(k=DOT), "k", (160, 1 << 40, 0, 2 << 40, 0, 3 << 40, 0, 1), 128)
    return block_loop(found, "k", Work(32, 5, 1, 1), 128)


def survey(**more: Any) -> CostSurvey:
    """IQ4_XS GEMM at 16 cycles an iteration of 32 products, Q4_K at 24; its GEMV at 8, its dot at 6."""
    figures = {("iq4_xs", "gemm"): 16, ("q4_k", "gemm"): 24, ("iq4_xs", "gemv"): 8, ("iq4_xs", "dot"): 6}
    found = {
        ("neoverse-n2", *place): Cost(f"k_{place[0]}", loop(), Cycles(float(number), 4.0, 28, 30.0))
        for place, number in figures.items()
    }
    made = CostSurvey(("neoverse-n2",), ("iq4_xs", "q4_k"), {"neoverse-n2": "libggml-cpu-x.so"}, found)
    made.absent = {("neoverse-n2", "q4_k", "gemv"), ("neoverse-n2", "q4_k", "dot")}
    return replace(made, **more)


def test_ratios_are_of_speed() -> None:
    made = survey()
    assert made.found["neoverse-n2", "iq4_xs", "gemm"].per_product == 0.5
    assert made.ratio("neoverse-n2", ("iq4_xs", "gemm"), ("q4_k", "gemm")) == 1.5
    assert made.ratio("neoverse-n2", ("iq4_xs", "gemv"), ("iq4_xs", "dot")) == 0.75
    assert made.ratio("neoverse-n2", ("iq4_xs", "gemv"), ("q4_k", "gemv")) is None


def test_an_expected_ratio_that_is_not_reached_is_told(plan: CostPlan) -> None:
    (missed,) = unmet(survey(), plan)
    assert (missed.kernel, missed.of, missed.ratio) == ("iq4_xs gemv", "iq4_xs dot", 1.0)
    reachable = replace(plan, expected=(Ratio("neoverse-n2", "iq4_xs gemm", "q4_k gemm", 1.5),))
    assert unmet(survey(), reachable) == []


def test_the_page_calls_itself_a_model_and_sets_the_measurement_beside_it(plan: CostPlan) -> None:
    text = cost_markdown(survey(), plan, "a tree")
    assert f"**{STATIC}.**" in text
    lines = text.splitlines()
    gemm = next(line for line in lines if "iq4_xs gemm" in line)
    assert "1.50 ×" in gemm
    assert "1.24 ×" in gemm
    assert "published measurement" in gemm
    assert "reached" in gemm
    gemv = next(line for line in lines if "iq4_xs gemv" in line)
    assert "**not reached**" in gemv
    assert "neoverse-n1" not in text
    assert "Not modelled" not in text


def test_what_was_not_modelled_is_told_with_its_reason(plan: CostPlan) -> None:
    place = ("neoverse-n2", "q4_0", "gemm")
    text = cost_markdown(survey(failed={place: "there is no function g"}), plan, "a tree")
    assert "## Not modelled" in text
    assert "- neoverse-n2 q4_0 gemm: there is no function g" in text


def test_json_holds_the_same_figures(plan: CostPlan) -> None:
    value = json.loads(json.dumps(cost_json(survey(), plan, "a tree")))
    assert value["kind"] == STATIC
    entry = next(one for one in value["costs"] if (one["type"], one["kernel"]) == ("iq4_xs", "gemm"))
    assert entry["cycles_per_product"] == 0.5
    assert entry["beside_base"] == 1.5
    assert entry["inner"][0]["runs"] == 4
    assert value["measured"][0]["modelled"] == 1.5
    assert value["absent"] == [["neoverse-n2", "q4_k", "dot"], ["neoverse-n2", "q4_k", "gemv"]]
