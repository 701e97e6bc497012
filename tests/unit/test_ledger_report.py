# SPDX-License-Identifier: MIT
"""Reports of a ledger: merged rows, broken rules with old and new, numbers, the comparison of two runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import jsonschema
import pytest
from ledger_sample import BROKEN, DOTPROD, I8MM, M4, N2, ROWS, decode, hybrid, ledger, row

from tierlab.dispatch.rules import load_rules
from tierlab.errors import ExitCode, UsageError
from tierlab.report.ledger_diff import (
    CALLS,
    FAMILY,
    KERNELS,
    ONE_SIDED,
    PATH,
    SAME,
    Pair,
    diff_json,
    diff_markdown,
)
from tierlab.report.ledger_docs import COMPARISON, RUN, generated, generated_diff, marks, write_docs
from tierlab.report.ledger_groups import merged, shapes_text, threads_text, usual_rows
from tierlab.report.ledger_json import ledger_json, schema
from tierlab.report.ledger_report import long_form, short_form
from tierlab.report.ledger_summary import dependences, exit_code, reach, rule_totals

if TYPE_CHECKING:
    from tierlab.run.ledger_rows import Row

RULES = load_rules()


def test_rows_that_agree_are_one_line() -> None:
    text = short_form(ledger(), RULES)
    assert "| neoverse-n2 | q4_0  | kleidiai | I8MM" in text
    assert "1: DOTPROD ≠; 128: I8MM =" in text
    assert "128 t1: SME2 =; 128 t2: SME2+I8MM ±" in text
    assert "6 rows on 2 profiles · predictions: 6 held, 0 broken (100 %) · exit 0" in text
    assert "Bytes: 1 of 3 products depend on the thread count: sme2-nosve q4_0 on kleidiai." in text
    assert "± hybrid" in text
    assert "Rules that this tree breaks" not in text


def test_a_broken_rule_is_told_with_old_and_new() -> None:
    rows = (*ROWS, row(threads=4, checks=(BROKEN,)), row(threads=8, checks=(BROKEN,)))
    text = short_form(ledger(rows), RULES)
    line = next(line for line in text.splitlines() if line.startswith("| kleidiai.prefill-i8mm"))
    assert [part.strip() for part in line.split("|")[1:5]] == ["kleidiai.prefill-i8mm", I8MM, DOTPROD, "2"]
    assert "6 held, 2 broken (75 %) · exit 1" in text


def test_what_is_not_known_is_told() -> None:
    silent = row(threads=4, checks=(), verdict="untested", detail="no answer")
    wrong = row(threads=8, verdict="fail", as_expected=False, detail="3 elements")
    lost = replace(N2, profile="a64fx", problem="the harness died")
    text = short_form(ledger((*ROWS, silent, wrong), profiles=(N2, M4, lost)), RULES)
    assert "- a64fx: the harness died" in text
    assert f"- no rule says which kernels run: `{silent.cell}`" in text
    assert f"- fail: `{wrong.cell}` 3 elements" in text


@pytest.mark.parametrize(
    ("rows", "problem", "code"),
    [
        (ROWS, "", ExitCode.AS_EXPECTED),
        ((), "", ExitCode.UNDETERMINED),
        ((*ROWS, row(checks=(BROKEN,))), "", ExitCode.UNEXPECTED),
        ((*ROWS, row(checks=())), "", ExitCode.UNDETERMINED),
        ((*ROWS, row(verdict="untested", as_expected=False)), "", ExitCode.UNDETERMINED),
        ((*ROWS, row(verdict="crash", as_expected=False)), "", ExitCode.UNEXPECTED),
        (ROWS, "no session", ExitCode.UNDETERMINED),
        ((*ROWS, row(checks=(BROKEN,))), "no session", ExitCode.UNEXPECTED),
    ],
)
def test_exit_codes(rows: tuple[Row, ...], problem: str, code: ExitCode) -> None:
    assert exit_code(rows, [replace(N2, problem=problem)]) == code


def test_reach_names_what_no_row_reached() -> None:
    found = {each.profile: each for each in reach(ROWS, {"neoverse-n2": N2, "sme2-nosve": M4})}
    assert found["neoverse-n2"].unreachable == ("SVE",), "compiled, in the CPU, and never run"
    assert found["sme2-nosve"].unreachable == ("DOTPROD",)
    assert found["sme2-nosve"].executed == ("SME2", "I8MM")
    unknown = (row(families=None, classes=None),)
    assert reach(unknown, {"neoverse-n2": N2}) == ()


def test_bytes_by_thread_count() -> None:
    found, products = dependences(ROWS)
    assert products == 3
    assert [(each.profile, each.columns) for each in found] == [("sme2-nosve", 128)]
    assert [(part.threads, part.families, part.nmse_given) for part in found[0].parts] == [
        ((1,), ("SME2",), 7e-8),
        ((2,), ("SME2", "I8MM"), 2e-5),
    ]
    again, _ = dependences([row(outputs=3, executions=5)])
    assert again[0].parts[0].outputs == 3, "one thread count whose bytes move counts too"
    assert dependences([row(output="")]) == ((), 0)


def test_numbers_are_in_the_long_form() -> None:
    text = long_form(ledger((*ROWS, hybrid(4, outputs=2))), RULES)
    assert "t1: SME2 7.0e-08; t2,4: SME2+I8MM 2.0e-05, other bytes at each execution" in text
    assert "ggml/src/k.cpp:7" in text
    assert "**no such text**" in text
    assert f"{I8MM} × 4" in text
    assert "/lab/build/libggml-cpu-armv8.6_2.so" in text
    assert "No model file takes part" not in text
    assert "no model file takes part" in text


def test_rule_totals_keep_rules_that_no_row_met() -> None:
    totals = {each.rule: each for each in rule_totals((row(checks=(BROKEN,)),), ["a"])}
    assert (totals["a"].rows, totals["kleidiai.prefill-i8mm"].broken) == (0, 1)


def test_json_keeps_to_its_schema() -> None:
    unknown = row(threads=4, families=None, classes=None, divergence="family not known", nmse=None)
    value = ledger_json(ledger((*ROWS, unknown)), RULES)
    jsonschema.validate(value, schema())
    assert value["exit_code"] == 0
    assert value["rows"][0]["calls"] == {DOTPROD: 4}
    profiles = [each["profile"] for each in value["reach"]]
    assert profiles == ["sme2-nosve"], "where a family is not known, nothing is called unreachable"
    value["rows"][0]["calls"] = {DOTPROD: 0}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(value, schema())


def test_texts_of_shapes_and_threads() -> None:
    shapes = [(1, 256), (128, 256), (128, 16)]
    assert usual_rows(shapes) == 256
    assert shapes_text(shapes, 256) == "1, 128, 128 (16 rows)"
    assert (threads_text((1, 2), (1, 2)), threads_text((1,), (1, 2))) == ("", "t1")


def test_merging_keeps_every_product() -> None:
    items = {
        ("p", kind, "own", (m, 1), t): (m > 1, t > 1) for kind in "ab" for m in (1, 2, 3) for t in (1, 2)
    }
    (group,) = merged(items)
    assert group.types == ("a", "b")
    assert sum(len(part.shapes) * len(part.threads) for part in group.parts) * 2 == len(items)


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({}, SAME),
        ({"calls": {I8MM: 9}}, CALLS),
        ({"calls": {I8MM + "2": 4}}, KERNELS),
        ({"families": ("DOTPROD",)}, FAMILY),
        ({"path": "repack", "families": ("DOTPROD",)}, PATH),
    ],
)
def test_differences_of_a_product(changes: dict[str, object], difference: str) -> None:
    assert Pair(row(), row(**changes)).difference == difference
    assert Pair(row(), None).difference == ONE_SIDED


def test_two_runs_in_one_table() -> None:
    old = ledger(
        (decode(path="repack", calls={"ggml_gemv_q4_0_4x8_q8_0": 1}), row()),
        "run0@sdist-0.3.16",
        tree="llama-cpp-python 0.3.16",
        build_notes=("KleidiAI is off",),
    )
    new = ledger((decode(), row(), hybrid(1)))
    text = diff_markdown(old, new)
    assert "# sdist-0.3.16 against llama-cpp-python 0.3.36" in text
    assert "3 products: 1 same, 1 other path, 1 in one run only." in text
    assert "- old, the build: KleidiAI is off" in text
    lines = [line for line in text.splitlines() if line.startswith("| neoverse-n2")]
    assert "repack: DOTPROD (gemv_q4_0_4x8_q8_0)" in lines[0]
    assert "other path" in lines[0]
    value = diff_json(old, new)
    assert [each["difference"] for each in value["products"]] == [PATH, SAME, ONE_SIDED]
    assert value["products"][2]["old"] is None


def test_tables_are_written_between_the_marks_of_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    (begin, end), (first, last) = marks(RUN), marks(COMPARISON)
    page.write_text(f"before\n{begin}\nold\n{end}\nbetween\n{first}\n{last}\nafter\n")
    write_docs(page, RUN, generated(ledger(), RULES))
    text = page.read_text()
    assert text.startswith(f"before\n{begin}\n\n`invoke ledger` on llama-cpp-python 0.3.36")
    assert text.endswith(f"{end}\nbetween\n{first}\n{last}\nafter\n")
    assert "old" not in text
    assert "| never.sve-beside-256" in text
    write_docs(page, COMPARISON, generated_diff(ledger(), ledger(name="run2@user")))
    assert f"{first}\n\n### llama-cpp-python 0.3.36 against user" in page.read_text()
    page.write_text("no marks")
    with pytest.raises(UsageError, match="has no part between"):
        write_docs(page, RUN, "")
    with pytest.raises(UsageError, match="written nowhere"):
        write_docs(tmp_path / "none.md", RUN, "")


def test_the_documentation_s_rules_are_those_of_the_file() -> None:
    """The page's tables are of a run; a rule that was changed since would make them lie."""
    page = (Path(__file__).parents[2] / "docs/ledger.md").read_text()
    begin, end = marks(RUN)
    part = page.partition(begin)[2].partition(end)[0]
    said = {
        cells[1].strip(): cells[2].strip()
        for line in part.partition("### Rules")[2].partition("### Bytes")[0].splitlines()
        if len(cells := line.split("|")) == 6 and "." in cells[1]
    }
    assert said == {rule.id: rule.says for rule in RULES}
    assert "0 broken (100 %)" in part
