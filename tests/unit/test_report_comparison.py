# SPDX-License-Identifier: MIT
"""Builds held against each other: what is a change, what a control that moved, and the exit code."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest
from rich.console import Console
from test_store import info

from tierlab.cells.load import load_matrix
from tierlab.errors import ConfigError, ExitCode, UsageError
from tierlab.judge.verdict import Verdict
from tierlab.report import text
from tierlab.report.comparison import Change
from tierlab.report.html import page
from tierlab.report.json_report import report, schema
from tierlab.report.junit import junit_lines
from tierlab.report.markdown import markdown
from tierlab.report.model import Summary, aggregate
from tierlab.report.terminal import print_summary
from tierlab.run.record import CellRecord, RunInfo
from tierlab.run.steps import Step, check_touches, each_patch, steps_of
from tierlab.toolchain.diff import Patch

ROOT = Path(__file__).parents[2]
SERIES = (
    Patch("1.patch", b"", ("iq4_xs",)),
    Patch("2.patch", b"", ()),
    Patch("3.patch", b"", ("iq4_xs", "q8_k")),
)
STEP = Step("stock", "patched", ("1.patch",), ("iq4_xs",))


def answer(build: str, types: str = "q4_0", profile: str = "neoverse-n1", **more: object) -> CellRecord:
    """An answer of one cell; the digest is that of nothing in particular."""
    path = str(more.pop("path", "default"))
    suite = str(more.pop("suite", "ggml.mul_mat"))
    cell = f"{suite}/{types}/m5n64k512/blocks.gauss/{path}/t1/{build}/{profile}"
    made = CellRecord(
        cell=cell,
        verdict=Verdict.PASS,
        profile=profile,
        suite=suite,
        build=build,
        path=path,
        threads=1,
        type=types,
        shape="m5n64k512",
        inputs="blocks.gauss",
        digest="d0",
        ran={"kernel": 1},
        share=0.1,
    )
    return replace(made, **more)  # type: ignore[arg-type]


def both(types: str = "q4_0", profile: str = "neoverse-n1", **after: object) -> list[CellRecord]:
    return [answer("stock", types, profile), answer("patched", types, profile, **after)]


def of(*records: CellRecord, steps: tuple[Step, ...] = (STEP,)) -> Summary:
    return aggregate(info(comparisons=steps), list(records))


# Which builds ------------------------------------------------------------------------------------------


def test_two_builds_are_one_step() -> None:
    assert steps_of(["stock", "patched", "stock"], SERIES) == (
        Step("stock", "patched", ("1.patch", "2.patch", "3.patch"), ("iq4_xs", "q8_k")),
    )


def test_patch_by_patch_each_step_is_one_patch_and_the_whole_comes_last() -> None:
    names = each_patch(SERIES)
    assert names == ("stock", "patched-1", "patched-2", "patched")
    found = [(step.before, step.after, step.patches, step.touches) for step in steps_of(names, SERIES)]
    assert found == [
        ("stock", "patched-1", ("1.patch",), ("iq4_xs",)),
        ("patched-1", "patched-2", ("2.patch",), ()),
        ("patched-2", "patched", ("3.patch",), ("iq4_xs", "q8_k")),
        ("stock", "patched", ("1.patch", "2.patch", "3.patch"), ("iq4_xs", "q8_k")),
    ]


def test_one_patch_is_stock_and_patched() -> None:
    assert each_patch(SERIES[:1]) == ("stock", "patched")


@pytest.mark.parametrize(
    ("before", "after", "declared"),
    [
        ("stock", "user", False),
        ("stock", "sdist-0.3.17", False),
        ("stock", "patched:assertions", False),
        ("stock:assertions", "patched-2:assertions", True),
        ("patched-1", "patched-2", True),
    ],
)
def test_what_is_declared(before: str, after: str, declared: bool) -> None:
    """Only of patches of the series, with all else equal."""
    (step,) = steps_of([before, after], SERIES)
    assert step.declared is declared


def test_one_build_cannot_be_compared() -> None:
    with pytest.raises(UsageError, match=r"stock is the only one selected.*--build stock,patched"):
        steps_of(["stock"], SERIES)
    with pytest.raises(UsageError, match="the patch series is empty"):
        each_patch(())


def test_a_patch_that_may_change_an_unknown_type_is_refused() -> None:
    matrix = load_matrix(ROOT / "matrix.yaml")
    check_touches(SERIES, matrix)
    with pytest.raises(ConfigError, match=r"4\.patch may change 'iq4_sx', which is no type.*'iq4_xs'"):
        check_touches((*SERIES, Patch("4.patch", b"", ("iq4_sx",))), matrix)


# What changed ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("after", "changes"),
    [
        ({}, ()),
        ({"wall_ms": 9.0, "cached": True, "share": 0.5}, ()),
        ({"digest": "d1"}, (Change.BYTES,)),
        ({"ran": {"kernel": 2}}, (Change.RECEIPT,)),
        ({"ran": {"other": 1}, "digest": "d1"}, (Change.BYTES, Change.RECEIPT)),
        ({"claimed": True}, (Change.CLAIM,)),
        ({"verdict": Verdict.GUARD, "digest": ""}, (Change.VERDICT, Change.BYTES)),
    ],
)
def test_changes(after: dict[str, object], changes: tuple[Change, ...]) -> None:
    found = of(*both("iq4_xs", **after)).comparisons[0]
    assert [group.changes for group in found.changed] == [changes] * bool(changes)
    assert found.pairs == 1
    assert found.moved_cells == 0, "the type may change"


def test_like_changes_are_one_group() -> None:
    changed = {"digest": "d1"}
    found = of(
        *both("iq4_xs", "neoverse-n1", **changed),
        *both("iq4_xs", "neoverse-n2", **changed),
        *both("iq4_xs", "a64fx", verdict=Verdict.FAIL, **changed),
        *both("iq4_xs", "cortex-a53"),
    ).comparisons[0]
    assert [(len(group.pairs), group.profiles) for group in found.changed] == [
        (1, ("a64fx",)),
        (2, ("neoverse-n1", "neoverse-n2")),
    ]
    assert found.pairs == 4
    assert found.changed_cells == 3


def test_cells_of_one_build_only() -> None:
    found = of(*both(), answer("patched", "iq4_xs", path="repack")).comparisons[0]
    assert [(group.where, len(group.records)) for group in found.only_after] == [
        ("ggml.mul_mat iq4_xs repack", 1)
    ]
    assert found.only_before == []
    assert found.moved_cells == 0


def test_threads_and_profiles_are_kept_apart() -> None:
    other = answer("patched", profile="neoverse-n2", digest="d1")
    found = of(answer("stock"), other).comparisons[0]
    assert (found.pairs, found.changed_cells) == (0, 0)


# Controls ----------------------------------------------------------------------------------------------


def test_controls_that_stay_end_well() -> None:
    summary = of(*both("q4_0"), *both("q4_k"), *both("iq4_xs", digest="d1"))
    found = summary.comparisons[0]
    assert dict(found.controls) == {"q4_0": 1, "q4_k": 1}
    assert summary.moved == 0
    assert summary.exit_code is ExitCode.AS_EXPECTED


@pytest.mark.parametrize(
    "after", [{"digest": "d1"}, {"claimed": True}, {"verdict": Verdict.FAIL, "expected": Verdict.FAIL}]
)
def test_a_control_that_moves_is_exit_1(after: dict[str, object]) -> None:
    """Even where every cell, taken alone, is as expected."""
    summary = of(*both("q4_0", **after), *both("q4_k"))
    assert summary.total.outcomes["unexpected"] == 0
    assert summary.moved == 1
    assert summary.exit_code is ExitCode.UNEXPECTED
    assert text.headline(summary) == "1 control moved"


def test_another_kernel_with_the_same_bytes_is_told_and_no_fault() -> None:
    summary = of(*both("q4_0", ran={"other": 1}))
    assert summary.comparisons[0].changed_cells == 1
    assert summary.moved == 0


def test_a_control_that_one_build_alone_has_is_exit_1() -> None:
    summary = of(*both("q4_0"), answer("stock", "q4_k", path="repack"))
    assert [group.where for group in summary.comparisons[0].stray] == ["ggml.mul_mat q4_k repack"]
    assert summary.exit_code is ExitCode.UNEXPECTED


def test_mixed_types_count_by_their_weights() -> None:
    assert of(*both("iq4_xs.f16", digest="d1")).moved == 0
    assert of(*both("f16.iq4_xs", digest="d1")).moved == 1


def test_without_an_answer_nothing_is_said_of_a_control() -> None:
    summary = of(*both("q4_0", verdict=Verdict.UNTESTED, digest=""), *both("q4_k"))
    found = summary.comparisons[0]
    assert (found.pairs, found.open_pairs, dict(found.controls)) == (1, 1, {"q4_k": 1})
    assert summary.exit_code is ExitCode.UNDETERMINED


def test_nothing_compared_is_exit_2() -> None:
    summary = of(answer("stock", "iq4_xs"))
    assert summary.exit_code is ExitCode.UNDETERMINED
    assert text.headline(summary) == "Every cell as expected, but nothing was compared"


def test_controls_without_bytes_are_counted() -> None:
    claims = [
        answer(build, "q4_0", suite="ggml.claims", digest="", claimed=True) for build in ("stock", "patched")
    ]
    found = of(*claims, *both("q4_k")).comparisons[0]
    assert (found.controls.total(), found.without_bytes) == (2, 1)


def test_a_users_tree_has_no_controls() -> None:
    records = [answer("stock"), answer("user", digest="d1")]
    summary = of(*records, steps=(Step("stock", "user", declared=False),))
    assert summary.comparisons[0].changed_cells == 1
    assert summary.moved == 0


def test_a_control_that_moves_with_one_patch_counts_once() -> None:
    steps = (
        Step("stock", "patched-1", ("1.patch",), ("iq4_xs",)),
        Step("patched-1", "patched", ("2.patch",), ()),
        Step("stock", "patched", ("1.patch", "2.patch"), ("iq4_xs",)),
    )
    records = [answer("stock"), answer("patched-1", digest="d1"), answer("patched", digest="d1")]
    summary = of(*records, steps=steps)
    assert [found.moved_cells for found in summary.comparisons] == [1, 0, 1]
    assert summary.moved == 1


# Reports -----------------------------------------------------------------------------------------------

RED = (
    *both("q4_0", digest="d1"),
    *both("iq4_xs", digest="d2", ran={"gemm": 4}),
    answer("patched", "iq4_xs", path="repack"),
    answer("patched", "q4_k", path="repack"),
)
AGAIN = (
    "invoke matrix --only 'ggml.mul_mat/q4_0/m5n64k512/blocks.gauss/default/t1/stock/neoverse-n1' --only "
    "'ggml.mul_mat/q4_0/m5n64k512/blocks.gauss/default/t1/patched/neoverse-n1' --compare --seed 1"
)


def test_the_terminal_names_what_moved_and_how_to_see_it_again() -> None:
    console = Console(file=io.StringIO(), width=100, force_terminal=False)
    print_summary(of(*RED), console)
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert "stock → patched" in lines
    assert "  patch 1.patch: may change iq4_xs." in lines
    assert "  2 cells in both, 2 changed; 2 in patched only." in lines
    assert "  Controls: 1 cell of 1 type, 2 moved." in lines
    assert "  control moved (bytes): ggml.mul_mat q4_0 default, 1 cell on neoverse-n1" in lines
    assert "  control in patched only: ggml.mul_mat q4_k repack, 1 cell" in lines
    assert f"  {AGAIN}" in lines
    assert lines[-1].startswith("2 controls moved")


def test_every_report_holds_the_comparison() -> None:
    summary = of(*RED)
    for made in (markdown(summary), page(summary).replace("&#x27;", "'")):
        assert "stock → patched" in made
        assert AGAIN in made
        assert "control moved (bytes)" in made.replace("\\", "")
        assert "bytes, receipt" in made


def test_the_page_and_summary_without_a_comparison_do_not_speak_of_one() -> None:
    summary = of(*both(), steps=())
    assert "→" not in markdown(summary)
    assert "held against each other" not in page(summary)


def test_json_keeps_to_its_schema_and_holds_every_changed_cell() -> None:
    value = report(of(*RED))
    jsonschema.validate(value, schema())
    (found,) = value["comparisons"]
    assert found["controls"]["moved_cells"] == 2
    assert found["controls"]["types"] == {"q4_0": 1}
    (moved,) = found["controls"]["moved"]
    assert moved["cells"][0]["before"]["digest"] == "d0"
    assert moved["cells"][0]["after"]["digest"] == "d1"
    assert {tuple(group["changes"]) for group in found["changed"]} == {("bytes",), ("bytes", "receipt")}
    assert sum(len(group["cells"]) for group in found["only_after"]) == 2


@pytest.mark.parametrize(
    ("records", "failures", "errors"),
    [(RED, 1, 0), (both("q4_0"), 0, 0), ([answer("stock", "iq4_xs")], 0, 1)],
)
def test_junit_has_a_case_for_the_controls(records: list[CellRecord], failures: int, errors: int) -> None:
    root = ElementTree.fromstring("".join(junit_lines(of(*records))).encode())
    (case,) = root.findall("./testsuite[@name='controls stock → patched']/testcase")
    assert [len(case.findall("failure")), len(case.findall("error"))] == [failures, errors]
    assert root.get("tests") == str(len(records) + 1)
    assert [root.get("failures"), root.get("errors")] == [str(failures), str(errors)]


def test_steps_survive_run_json() -> None:
    about = of(*RED).info
    assert RunInfo.from_json(about.to_json()).comparisons == (STEP,)
