# SPDX-License-Identifier: MIT
"""Selections: what they hold, in which order, and what a wrong one says."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tierlab.cells.cell_id import parse_cell_id
from tierlab.cells.expand import excluded, expand, lanes, shard_of
from tierlab.cells.load import load_matrix
from tierlab.cells.matrix import Exclusion, Expectation, Selector
from tierlab.cells.selection import Selection
from tierlab.errors import ExitCode, SelectionError, UsageError

if TYPE_CHECKING:
    from tierlab.cells.matrix import Matrix

ROOT = Path(__file__).parents[2]
EXACT = "ggml.mul_mat/iq4_xs/m5n64k512/blocks.gauss/default/t1/stock/neoverse-n2"


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    return load_matrix(ROOT / "matrix.yaml")


def ids(matrix: Matrix, selection: Selection) -> list[str]:
    return [cell.id for cell in expand(matrix, selection)]


def test_order_is_the_same_every_time_and_grouped(matrix: Matrix) -> None:
    cells = list(expand(matrix, Selection(preset="quick", builds=("user", "stock"))))
    assert cells == list(expand(matrix, Selection(preset="quick", builds=("stock", "user"))))
    keys = [key for key, _ in groupby(cells, key=lambda cell: cell.lane)]
    assert len(keys) == len(set(keys)) == 2 * 7 * 5
    builds, profiles, suites = list(matrix.builds), list(matrix.profiles), list(matrix.suites)
    places = [(builds.index(k.build), profiles.index(k.profile), suites.index(k.suite)) for k in keys]
    assert places == sorted(places)
    for _, group in groupby(cells, key=lambda cell: cell.lane):
        lane = list(group)
        problems = [key for key, _ in groupby(lane, key=lambda cell: cell.problem)]
        assert len(problems) == len(set(problems)), "the cells of a problem stand together"
        for _, same in groupby(lane, key=lambda cell: cell.problem):
            ways = [(list(matrix.paths).index(cell.path), cell.threads) for cell in same]
            assert ways == sorted(ways)


def test_expansion_is_lazy(matrix: Matrix) -> None:
    assert [cell.profile for cell in islice(expand(matrix, Selection(preset="full")), 3)] == [
        "cortex-a53"
    ] * 3


def test_lanes_hold_the_same_cells(matrix: Matrix) -> None:
    selection = Selection(preset="quick", profiles=("a64fx",))
    grouped = list(lanes(matrix, selection))
    assert [cell for _, cells in grouped for cell in cells] == list(expand(matrix, selection))
    assert all(cell.lane == key for key, cells in grouped for cell in cells)


def test_globs_and_axes_narrow(matrix: Matrix) -> None:
    by_glob = ids(matrix, Selection(only=("ggml.mul_mat/iq4_*/*",), profiles=("neoverse-n*",)))
    assert {text.split("/")[1] for text in by_glob} == {"iq4_nl", "iq4_xs"}
    assert {text.split("/")[-1] for text in by_glob} == {"neoverse-n1", "neoverse-n2"}
    by_axis = ids(matrix, Selection(types=("iq4_*",), suites=("ggml.mul_mat",), profiles=("neoverse-n*",)))
    assert by_glob == by_axis
    several = ids(matrix, Selection(only=("*/q4_0/*/a64fx", "*/q8_0/*/a64fx"), paths=("default",)))
    assert {text.split("/")[1] for text in several} == {"q4_0", "q8_0"}


def test_quantize_suite_is_selected_by_code_type(matrix: Matrix) -> None:
    cells = list(expand(matrix, Selection(types=("q8_k",), profiles=("a64fx",))))
    assert {cell.problem.suite for cell in cells} == {"ggml.quantize"}


def test_builds_replace_the_presets(matrix: Matrix) -> None:
    cells = list(expand(matrix, Selection(preset="quick", builds=("user",))))
    assert {cell.build for cell in cells} == {"user"}


def test_an_exact_id_needs_no_preset(matrix: Matrix) -> None:
    assert EXACT not in ids(matrix, Selection())
    (cell,) = expand(matrix, Selection(only=(EXACT,)))
    assert cell.id == EXACT
    assert parse_cell_id(matrix, EXACT) == cell


def test_exact_ids_and_globs_together(matrix: Matrix) -> None:
    glob = "ggml.mul_mat/iq4_xs/m5n61*/*/neoverse-n2"
    both = ids(matrix, Selection(only=(EXACT, glob)))
    assert set(both) == {EXACT, *ids(matrix, Selection(only=(glob,)))}


def test_every_id_reads_back(matrix: Matrix) -> None:
    for cell in expand(matrix, Selection(preset="quick")):
        assert parse_cell_id(matrix, cell.id) == cell
    for cell in islice(expand(matrix, Selection()), 0, None, 97):
        assert parse_cell_id(matrix, cell.id) == cell


def test_shards_part_the_cells_by_problem(matrix: Matrix) -> None:
    whole = ids(matrix, Selection())
    parts = [list(expand(matrix, Selection(shard=(index, 4)))) for index in (1, 2, 3, 4)]
    assert Counter(cell.id for part in parts for cell in part) == Counter(whole)
    problems = [{cell.problem for cell in part} for part in parts]
    assert sum(len(part) for part in problems) == len(set().union(*problems))
    assert all(len(part) > len(whole) / 6 for part in parts)


def test_shard_of_a_problem_never_changes(matrix: Matrix) -> None:
    assert shard_of(parse_cell_id(matrix, EXACT).problem, 7) == 3


def with_exclusion(matrix: Matrix, **axes: frozenset[str]) -> Matrix:
    return replace(matrix, exclusions=(Exclusion(Selector(axes), "for the test"),))


def test_exclusions_are_counted_not_hidden(matrix: Matrix) -> None:
    narrowed = with_exclusion(matrix, types=frozenset({"q4_0"}), paths=frozenset({"repack"}))
    selection = Selection(preset="quick")
    left, out = ids(narrowed, selection), list(excluded(narrowed, selection))
    assert len(left) + len(out) == len(ids(matrix, selection))
    assert {(cell.problem.weight_type, cell.path) for cell, _ in out} == {("q4_0", "repack")}
    assert {item.reason for _, item in out} == {"for the test"}
    assert list(excluded(matrix, Selection(types=("tq1_0",), profiles=("a64fx",)))) == []


def test_an_excluded_cell_named_by_its_id_is_run(matrix: Matrix) -> None:
    narrowed = with_exclusion(matrix, types=frozenset({"iq4_xs"}))
    assert ids(narrowed, Selection(only=(EXACT,))) == [EXACT]


def test_all_excluded(matrix: Matrix) -> None:
    narrowed = with_exclusion(matrix, types=frozenset({"iq4_xs"}))
    with pytest.raises(SelectionError, match=r"all \d+ selected cells are excluded in") as caught:
        expand(narrowed, Selection(types=("iq4_xs",)))
    assert caught.value.exit_code == ExitCode.UNDETERMINED


def test_selectors_by_feature_variant_and_threads(matrix: Matrix) -> None:
    cell = parse_cell_id(matrix, EXACT)
    chosen = {
        "features": Selector({}, frozenset({"sve2"})),
        "variant": Selector({"variants": frozenset({"armv8.6_2"})}),
        "threads": Selector({"threads": frozenset({1, 2})}),
    }
    assert all(matrix.selects(selector, cell) for selector in chosen.values())
    other = parse_cell_id(matrix, EXACT.replace("neoverse-n2", "a64fx").replace("/t1/", "/t4/"))
    assert not any(matrix.selects(selector, other) for selector in chosen.values())


def test_expectations(matrix: Matrix) -> None:
    known = Expectation(Selector({"types": frozenset({"iq4_xs"})}), "fail", "seen")
    changed = replace(matrix, expected=(known,))
    assert changed.expectation_of(parse_cell_id(matrix, EXACT)) is known
    assert changed.expectation_of(parse_cell_id(matrix, EXACT.replace("iq4_xs", "q4_k"))) is None


def test_thread_dependence_is_declared(matrix: Matrix) -> None:
    two_rows = "ggml.mul_mat/q4_0/m5n64k512/blocks.gauss/default/t4/stock/{}"
    assert "I8MM" in str(matrix.thread_dependence_of(parse_cell_id(matrix, two_rows.format("neoverse-n2"))))
    assert matrix.thread_dependence_of(parse_cell_id(matrix, two_rows.format("neoverse-n1"))) is None


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        (Selection(preset="quik"), "unknown preset 'quik'; nothing was run; did you mean 'quick'?"),
        (
            Selection(profiles=("neoverse-n3",)),
            "unknown profile 'neoverse-n3'; nothing was run; did you mean 'neoverse-n",
        ),
        (Selection(types=("iq4_xl",)), "unknown type 'iq4_xl'; nothing was run; did you mean 'iq4_xs'?"),
        (Selection(types=("z*",)), "unknown type 'z*'; nothing was run; known: "),
        (Selection(paths=("repac",)), "unknown path 'repac'; nothing was run; did you mean 'repack'?"),
        (Selection(builds=("stok",)), "unknown build 'stok'; nothing was run; did you mean 'stock'?"),
        (
            Selection(suites=("ggml.mulmat",)),
            "unknown suite 'ggml.mulmat'; nothing was run; did you mean 'ggml.mul_mat'?",
        ),
        (Selection(shard=(3, 2)), "shard 3/2 does not exist; nothing was run. Use 1/2 … 2/2."),
        (Selection(shard=(0, 2)), "shard 0/2 does not exist"),
        (Selection(only=("ggml.mulmat/*",)), "no cell has 'ggml.mulmat' there; did you mean 'ggml.mul_mat'?"),
        (Selection(only=("ggml.mul_mat/iq4x*/*",)), "no cell has 'iq4x*' there; did you mean 'iq4_"),
        (Selection(only=("ggml.mul_mat/q4_?",)), "did you mean 'ggml.mul_mat/q4_?/*'?"),
        (
            Selection(only=("ggml.mul_mat/iq4_xs",)),
            "is neither a pattern nor a cell id; nothing was run. An id reads suite/",
        ),
        (Selection(only=("*mul_mat/q2_k/*/repack/*",)), "matches no cell of preset 'default'"),
        (
            Selection(only=(EXACT.replace("iq4_xs", "iq4_xx"),)),
            "unknown type 'iq4_xx'; did you mean 'iq4_xs'?",
        ),
        (Selection(only=(EXACT.replace("k512", "k500"),)), "K=500 is no multiple of iq4_xs's block of 256"),
        (Selection(only=(EXACT.replace("k512", "K2"),)), "an id gives K in elements (k512), not in blocks"),
        (Selection(only=(EXACT.replace("m5", "x5"),)), "shape 'x5n64k512' is not of the form"),
        (Selection(only=(EXACT.replace("/t1/", "/1/"),)), "'1' is no thread count; write t1, t2, …"),
        (
            Selection(only=(EXACT.replace("/default/", "/repack/"),)),
            "path repack does not take it on neoverse-n2",
        ),
        (Selection(only=(EXACT.replace("iq4_xs/", "iq4_xs.f16/"),)), "iq4_xs takes no f16 activations"),
        (Selection(only=(EXACT.replace("m5n64k512", "m5n64k512e4u1i0"),)), "does not fit mul_mat"),
        (Selection(only=(EXACT.replace(".gauss", ".gaus"),)), "unknown distribution of activations 'gaus'"),
    ],
)
def test_wrong_use(matrix: Matrix, selection: Selection, message: str) -> None:
    """A word that names nothing is exit 3, at the call and not at the first cell."""
    with pytest.raises(UsageError) as caught:
        expand(matrix, selection)
    assert message in str(caught.value)
    assert caught.value.exit_code == ExitCode.WRONG_USE


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        (
            Selection(types=("iq4_xs",), paths=("repack",), suites=("ggml.mul_mat",)),
            "fits all of: type iq4_xs; path repack; suite ggml.mul_mat. Nothing was run.",
        ),
        (Selection(only=("*/q4_0/*",), types=("q8_0",)), "fits all of: pattern */q4_0/*; type q8_0."),
        (
            Selection(preset="quick", profiles=("sve2-2048",)),
            "profile sve2-2048 is not part of preset 'quick'",
        ),
    ],
)
def test_nothing_selected(matrix: Matrix, selection: Selection, message: str) -> None:
    """Known words whose intersection is empty are exit 2."""
    with pytest.raises(SelectionError) as caught:
        expand(matrix, selection)
    assert message in str(caught.value)
    assert caught.value.exit_code == ExitCode.UNDETERMINED


def test_a_pattern_is_checked_against_all_shards(matrix: Matrix) -> None:
    """What lies in another shard exists: the shard is empty (2), the pattern is not wrong (3)."""
    quick = list(expand(matrix, Selection(preset="quick")))
    cell = next(cell for cell in quick if shard_of(cell.problem, 50) != 1)
    pattern = cell.id.replace("ggml", "g?ml")
    with pytest.raises(SelectionError):
        expand(matrix, Selection(preset="quick", only=(pattern,), shard=(1, 50)))
