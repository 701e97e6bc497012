# SPDX-License-Identifier: MIT
"""Rules of dispatch: each applies somewhere, each can hold, and each can be broken."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache
from typing import TYPE_CHECKING

import pytest
from ledger_grid import MATRIX, Point, fitting, points

from tierlab.cells.claims import expected_kernels
from tierlab.dispatch.conditions import condition
from tierlab.dispatch.facts import UNSET, chunks, whole_number
from tierlab.dispatch.predictions import BROKEN, HELD, UNTOLD, examine, slot_of
from tierlab.dispatch.rules import KERNELS, load_rules, predict
from tierlab.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from tierlab.dispatch.predictions import Check, Observation
    from tierlab.dispatch.rules import Decision

RULES = load_rules()
IDS = [rule.id for rule in RULES]


@cache
def first_points() -> dict[str, Point]:
    """Rule id → the first product for which the rule decides."""
    found: dict[str, Point] = {}
    for point in points():
        for each in predict(RULES, point.facts, point.names).decisions:
            found.setdefault(each.rule.id, point)
        if len(found) == len(RULES):
            break
    return found


def outcomes(tests: tuple[Check, ...]) -> dict[str, str]:
    return {test.rule: test.outcome for test in tests}


@pytest.mark.parametrize("rule", IDS)
def test_every_rule_decides_some_product_and_can_hold(rule: str) -> None:
    assert rule in first_points(), "no product of the grid is decided by it: a dead rule tests nothing"
    prediction, seen = fitting(RULES, first_points()[rule])
    assert set(outcomes(examine(prediction, seen)).values()) == {HELD}


@pytest.mark.parametrize("rule", IDS)
def test_every_rule_can_be_broken(rule: str) -> None:
    prediction, seen = fitting(RULES, first_points()[rule])
    decision = next(each for each in prediction.decisions if each.rule.id == rule)
    test = next(test for test in examine(prediction, altered(seen, decision)) if test.rule == rule)
    assert test.outcome == BROKEN
    assert test.predicted != test.observed


def altered(seen: Observation, decision: Decision) -> Observation:
    """The observation with just that changed of which the rule speaks."""
    group = decision.rule.group
    if group == "path":
        return replace(seen, path="other")
    if group == "cap":
        return replace(seen, cap=7)
    if group == "advertised":
        return replace(seen, advertised="NEON")
    if group == "slot":
        sme = decision.value != "sme"
        return replace(seen, kernels={f"kai_run_matmul_x_{'sme2_mopa' if sme else 'neon_i8mm'}": 1})
    if group == "never":
        return replace(seen, kernels={**seen.kernels, "kai_run_matmul_clamp_f32_q_16x8_sve_i8mm": 1})
    if group == "family":
        return replace(seen, ran=replace(seen.ran, families={"ggml_gemm_x": "portable"}))
    assert group.startswith(KERNELS)
    return replace(seen, kernels={"ggml_gemm_of_another_kind": 1})


def test_every_product_is_predicted() -> None:
    unpredicted = Counter(
        (point.cell.problem.weight_type, point.cell.path)
        for point in points()
        if not predict(RULES, point.facts, point.names).covered
    )
    assert not unpredicted


def test_the_rules_agree_with_those_by_which_cells_are_judged() -> None:
    """matrix.yaml says which kernels must run, too; neither file is made from the other."""
    compared = 0
    for point in points():
        if point.environment:
            continue
        decisions = predict(RULES, point.facts, point.names).decisions
        predicted = [p for each in decisions if each.rule.group.startswith(KERNELS) for p in each.kernels]
        for patterns in expected_kernels(MATRIX, point.cell):
            agree = any(
                fnmatchcase(ours, theirs) or fnmatchcase(theirs, ours)
                for ours in predicted
                for theirs in patterns
            )
            assert agree, f"{point.cell.id}: {predicted} and {patterns}"
            compared += 1
    assert compared > 5_000


def test_the_paths_agree_with_the_order_in_which_the_library_lists_them() -> None:
    for point in points():
        if point.environment or not point.facts.own:
            continue
        paths = [
            e.value for e in predict(RULES, point.facts, point.names).decisions if e.rule.group == "path"
        ]
        assert paths == [point.cell.path], point.cell.id


@pytest.mark.parametrize(
    ("environment", "threads", "columns", "rows", "slot"),
    [
        ({}, 1, 1, 256, "sme"),
        ({}, 2, 1, 256, "other"),
        ({}, 2, 127, 256, "other"),
        ({}, 2, 128, 256, "both"),
        ({}, 16, 128, 16, "other"),  # one row a thread
        ({}, 2, 128, 16, "sme"),  # one chunk
        ({"GGML_KLEIDIAI_SME": "2"}, 2, 1, 256, "sme"),
        ({"GGML_KLEIDIAI_SME": "4"}, 16, 128, 256, "sme"),  # four chunks for four threads
        ({"GGML_KLEIDIAI_SME": "2"}, 16, 128, 256, "both"),
        ({"GGML_KLEIDIAI_SME": "0"}, 1, 1, 256, "other"),
        ({"GGML_KLEIDIAI_SME": "many"}, 2, 1, 256, "other"),  # no number: ignored
        ({"GGML_TOTAL_THREADS": "1"}, 16, 1, 256, "sme"),
        ({"GGML_TOTAL_THREADS": "2"}, 16, 1, 256, "other"),
    ],
)
def test_cap_and_hybrid(
    environment: dict[str, str], threads: int, columns: int, rows: int, slot: str
) -> None:
    from ledger_grid import facts, names_of

    from tierlab.run.survey import product

    cell = product("sme2-nosve", "q4_0", f"m{columns}n{rows}k256", "kleidiai", threads)
    prediction = predict(RULES, facts(cell, True, environment), names_of(MATRIX, "q4_0"))
    assert prediction.facts.slot == slot


def test_what_the_program_does_not_say_is_neither_held_nor_broken() -> None:
    prediction, seen = fitting(RULES, first_points()["family.repack-256"])
    silent = replace(seen, cap=None, advertised="", ran=replace(seen.ran, classes=None))
    found = outcomes(examine(prediction, silent))
    assert found["cap.no-sme"] == UNTOLD
    assert found["family.repack-256"] == UNTOLD
    assert BROKEN not in found.values()


def test_no_kernel_breaks_what_predicts_kernels() -> None:
    prediction, seen = fitting(RULES, first_points()["default.vec-dot"])
    assert outcomes(examine(prediction, replace(seen, kernels={})))["default.vec-dot"] == BROKEN


def test_a_kernel_that_no_rule_predicts_breaks_the_rules_of_its_product() -> None:
    prediction, seen = fitting(RULES, first_points()["slot.hybrid"])
    more = replace(seen, kernels={**seen.kernels, "ggml_vec_dot_q4_0_q8_0": 1})
    broken = {name for name, outcome in outcomes(examine(prediction, more)).items() if outcome == BROKEN}
    assert {"kleidiai.q8_0-sme", "kleidiai.prefill-i8mm"} <= broken


def test_a_kernel_whose_instructions_are_not_those_of_its_name() -> None:
    prediction, seen = fitting(RULES, first_points()["kleidiai.prefill-i8mm"])
    name = next(iter(seen.kernels))
    liar = replace(seen, ran=replace(seen.ran, misnamed=((name, "DOTPROD"),)))
    test = examine(prediction, liar)[-1]
    assert (test.rule, test.outcome, test.observed) == ("name", BROKEN, f"{name}: DOTPROD")
    assert examine(prediction, seen)[-1].outcome == HELD


def test_slot_of_kernels() -> None:
    sme, neon = "kai_run_matmul_a_sme2_mopa", "kai_run_matmul_a_neon_i8mm"
    assert [slot_of(dict.fromkeys(names, 1)) for names in ([sme], [neon], [sme, neon], [])] == [
        *("sme", "other", "both"),
        "",
    ]
    assert slot_of({sme: 0, neon: 1}) == "other"


@pytest.mark.parametrize(
    ("rows", "threads", "bits", "pieces"),
    [
        (256, 1, 512, 1),
        (256, 2, 512, 4),
        (256, 16, 512, 4),
        (256, 2, 128, 8),
        (64, 8, 512, 1),
        (16, 2, 512, 1),
    ],
)
def test_chunks(rows: int, threads: int, bits: int, pieces: int) -> None:
    assert chunks(rows, threads, bits) == pieces


def test_numbers_in_variables() -> None:
    values = {None: UNSET, "": UNSET, "2": 2, "0": 0, "+3": 3, " 4": 4, "4 ": UNSET, "-1": UNSET, "x": UNSET}
    assert {text: whole_number(text) for text in values} == values
    assert whole_number(str(2**31)) == UNSET


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"colums": "== 1"}, "unknown in a condition: colums"),
        ({"columns": "about 128"}, "no comparison"),
        ({"columns": ">= cup"}, "no comparison"),
        ({"types": []}, "types takes words"),
        ({"any": [{"path": 3}]}, "path takes words"),
    ],
)
def test_wrong_conditions(entry: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        condition(entry)


GOOD = """\
rules:
  - id: a
    group: path
    says: b
    when: {}
    predict: {path: default}
    decided: [{file: f, function: g, text: h}]
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("group: path", "group: road", "group 'road' is none of"),
        ("{path: default}", "{cap: 1}", "predicts path"),
        ("{path: default}", "{}", "predicts path"),
        ("says: b", "say: b", "needs exactly the keys"),
        ("when: {}", "when: {columns: few}", "no comparison"),
        ("[{file: f, function: g, text: h}]", "[]", "no place upstream"),
        ("rules:", "rules: 3\nmore:", "no file of rules"),
        ("{path: default}", "[", "no file of rules"),
        ("[{file: f, function: g, text: h}]", "[{file: f}]", "no file of rules"),
    ],
)
def test_a_wrong_file_of_rules_is_one_message(tmp_path: Path, old: str, new: str, message: str) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(GOOD)
    assert [rule.id for rule in load_rules(file)] == ["a"]
    file.write_text(GOOD.replace(old, new))
    with pytest.raises(ConfigError, match=message):
        load_rules(file)


def test_two_rules_of_one_id(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(GOOD + GOOD.partition("\n")[2])
    with pytest.raises(ConfigError, match="'a' stands there twice"):
        load_rules(file)
    with pytest.raises(ConfigError, match="no file of rules"):
        load_rules(tmp_path / "none.yaml")
