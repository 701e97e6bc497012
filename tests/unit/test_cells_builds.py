# SPDX-License-Identifier: MIT
"""Names of builds: numbered patches, published packages, ways of building; their cells and rules."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tierlab.cells import builds
from tierlab.cells.cell_id import parse_cell_id
from tierlab.cells.claims import expected_claim, rule_of
from tierlab.cells.expand import excluded, expand
from tierlab.cells.load import load_matrix
from tierlab.cells.matrix import Expectation, Selector
from tierlab.cells.selection import Selection
from tierlab.errors import UsageError
from tierlab.run.prepare import tree_of
from tierlab.toolchain import sources
from tierlab.toolchain.diff import Patch

if TYPE_CHECKING:
    from tierlab.cells.matrix import Matrix
    from tierlab.cells.model import Cell

ROOT = Path(__file__).parents[2]
PLACE = "ggml.mul_mat/q4_0/m5n64k512/blocks.gauss/{path}/t1/{build}/neoverse-n2"


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    return load_matrix(ROOT / "matrix.yaml")


def since(matrix: Matrix, patch: int) -> Matrix:
    """The rules of path repack hold only from that patch on."""
    path = matrix.paths["repack"]
    rules = tuple(replace(rule, from_patch=patch) for rule in path.rules)
    return replace(matrix, paths={**matrix.paths, "repack": replace(path, rules=rules)})


@pytest.mark.parametrize(
    ("name", "length", "patches", "family"),
    [
        ("stock", None, 0, "stock"),
        ("user", None, 0, "user"),
        ("patched", None, float("inf"), "patched"),
        ("patched-1", 1, 1, "patched"),
        ("patched-12", 12, 12, "patched"),
        ("patched-0", None, 0, "patched-0"),
        ("patched-01", None, 0, "patched-01"),
        ("patched-", None, 0, "patched-"),
        ("patched-2:assertions", 2, 2, "patched"),
        ("stock:armv8-a", None, 0, "stock"),
        ("sdist-0.3.16", None, 0, "sdist"),
        ("sdist-0.3.16:armv8-a:llamafile", None, 0, "sdist"),
        ("sdist-0.3.x", None, 0, "sdist-0.3.x"),
    ],
)
def test_names(name: str, length: int | None, patches: float, family: str) -> None:
    assert builds.prefix_length(name) == length
    assert builds.patches_in(name) == patches
    assert builds.family(name) == family


def test_a_numbered_build_has_the_cells_of_every_build(matrix: Matrix) -> None:
    wanted = Selection(preset="quick", builds=("patched-2", "stock", "patched-10"), types=("q4_0",))
    found = [cell.build for cell in expand(matrix, wanted)]
    assert list(dict.fromkeys(found)) == ["stock", "patched-2", "patched-10"]
    assert len({found.count(name) for name in set(found)}) == 1


def test_a_numbered_build_can_be_named_by_id(matrix: Matrix) -> None:
    named = PLACE.format(path="default", build="patched-3")
    assert parse_cell_id(matrix, named).id == named
    both = (PLACE.format(path="default", build="patched-10"), named)
    assert [cell.build for cell in expand(matrix, Selection(only=both))] == ["patched-3", "patched-10"]


KNOWN = ("stock", "patched", "user", "sdist")


@pytest.mark.parametrize(
    ("wish", "names"),
    [
        (builds.BuildWish(), ("stock",)),
        (builds.BuildWish(user=True), ("user",)),
        (builds.BuildWish(sdists=("0.3.16", "0.3.17")), ("sdist-0.3.16", "sdist-0.3.17")),
        (builds.BuildWish(("stock",), sdists=("0.3.16",)), ("stock", "sdist-0.3.16")),
        (builds.BuildWish(("user",), user=True), ("user",)),
        (builds.BuildWish(options=("llamafile", "armv8-a")), ("stock:armv8-a:llamafile",)),
        (
            builds.BuildWish(("stock:no-openmp", "stock"), options=("assertions",)),
            ("stock:assertions:no-openmp", "stock:assertions"),
        ),
    ],
)
def test_what_is_wished_for_has_one_spelling(wish: builds.BuildWish, names: tuple[str, ...]) -> None:
    assert wish.builds(KNOWN, ("stock",)) == names


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        (builds.BuildWish(("user",)), "Add --llama-cpp PATH"),
        (builds.BuildWish(("stock",), user=True), "not among stock"),
        (builds.BuildWish(("sdist",)), "needs a version"),
        (builds.BuildWish(sdists=("newest",)), "'newest' is no version"),
        (builds.BuildWish(("stok",)), "did you mean 'stock'"),
        (builds.BuildWish(("stock:asserts",)), "did you mean 'assertions'"),
        (builds.BuildWish(("stock:armv8-a",), options=("armv9-a",)), "two architectures"),
        (builds.BuildWish(options=("armv8.22-a",)), r"did you mean 'armv8\.2-a'"),
    ],
)
def test_a_wish_without_sense_is_refused(wish: builds.BuildWish, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        wish.builds(KNOWN, ("stock",))


def test_older_packages_come_first(matrix: Matrix) -> None:
    names = ("sdist-0.3.16", "sdist-0.3.9:armv8-a", "stock", "sdist-0.3.9")
    wanted = Selection(preset="quick", builds=names, types=("q4_0",), profiles=("cortex-a53",))
    found = dict.fromkeys(cell.build for cell in expand(matrix, wanted))
    assert list(found) == ["stock", "sdist-0.3.9", "sdist-0.3.9:armv8-a", "sdist-0.3.16"]


def test_a_package_can_be_named_by_id_in_any_spelling(matrix: Matrix) -> None:
    named = PLACE.format(path="default", build="sdist-0.3.16:llamafile:armv8.2-a+dotprod")
    assert parse_cell_id(matrix, named).build == "sdist-0.3.16:armv8.2-a+dotprod:llamafile"


def test_code_for_one_architecture_decides_by_what_it_was_compiled_for(matrix: Matrix) -> None:
    def cell(build: str) -> Cell:
        place = f"ggml.claims/q4_0/m1n8k32/none.none/repack/t1/{build}/neoverse-n2"
        return parse_cell_id(matrix, place)

    plain, dotprod, i8mm = (cell(f"stock:{march}") for march in ("armv8-a", "armv8.4-a", "armv8.6-a"))
    assert rule_of(matrix, plain) is None
    assert [rule.layout for rule in (rule_of(matrix, dotprod), rule_of(matrix, i8mm)) if rule] == [
        "4x4",
        "4x8",
    ]
    assert matrix.variant(plain).name == "armv8.0_1"
    assert matrix.variant(dotprod).name == "armv8.2_1"
    assert matrix.variant(cell("stock")).name == "armv8.6_2"


def test_cpus_that_cannot_run_an_architecture_are_left_out_and_counted(matrix: Matrix) -> None:
    wanted = Selection(preset="quick", builds=("stock:armv8.2-a+sve",), types=("q4_0",))
    assert {cell.profile for cell in expand(matrix, wanted)} == {
        "neoverse-v1",
        "neoverse-n2",
        "a64fx",
        "sve2-384",
    }
    left_out = list(excluded(matrix, wanted))
    assert {cell.profile for cell, _ in left_out} == {"cortex-a53", "neoverse-n1", "sme2-nosve"}
    assert {item.selector.line for _, item in left_out} == {0}
    assert {item.reason.partition(" needs ")[2] for _, item in left_out} == {
        *("fp16, sve, which these CPUs lack", "sve, which these CPUs lack")
    }
    with pytest.raises(UsageError, match="neoverse-n1 lacks sve"):
        parse_cell_id(matrix, f"ggml.claims/q4_0/m1n8k32/none.none/repack/t1/{wanted.builds[0]}/neoverse-n1")


@pytest.mark.parametrize("name", ["patched-0", "patched-x", "stock-1"])
def test_a_name_without_sense_is_refused(matrix: Matrix, name: str) -> None:
    with pytest.raises(UsageError, match=f"unknown build '{name}'"):
        next(iter(expand(matrix, Selection(builds=(name,)))))
    with pytest.raises(UsageError, match=f"unknown build '{name}'"):
        parse_cell_id(matrix, PLACE.format(path="default", build=name))


def test_declared_verdicts_of_patched_hold_for_its_first_patches(matrix: Matrix) -> None:
    known = replace(
        matrix, expected=(Expectation(Selector({"builds": frozenset({"patched"})}), "fail", "seen"),)
    )
    cells = {
        name: parse_cell_id(matrix, PLACE.format(path="default", build=name))
        for name in ("stock", "patched", "patched-2")
    }
    assert {name for name, cell in cells.items() if known.expectation_of(cell)} == {"patched", "patched-2"}


@pytest.mark.parametrize(
    ("build", "holds"),
    [("stock", False), ("user", False), ("patched-1", False), ("patched-2", True), ("patched", True)],
)
def test_a_rule_may_begin_with_a_patch(matrix: Matrix, build: str, holds: bool) -> None:
    place = f"ggml.claims/q4_0/m1n8k32/none.none/repack/t1/{build}/neoverse-n2"
    cell = parse_cell_id(matrix, place)
    assert rule_of(matrix, cell) is not None
    assert expected_claim(since(matrix, 2), cell) is holds


def test_cells_of_a_later_patch_do_not_exist_before_it(matrix: Matrix) -> None:
    later = since(matrix, 2)
    wanted = Selection(preset="quick", builds=("stock", "patched-1", "patched-2"), paths=("repack",))
    cells = [cell for cell in expand(later, wanted) if cell.problem.suite == "ggml.mul_mat"]
    assert {cell.build for cell in cells} == {"patched-2"}
    with pytest.raises(UsageError, match=r"path repack does not take it on neoverse-n2 in build patched-1"):
        parse_cell_id(later, PLACE.format(path="repack", build="patched-1"))


def test_a_build_of_more_patches_than_there_are_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    series = (Patch("a.patch", b"A"), Patch("b.patch", b"B"))
    monkeypatch.setattr("tierlab.run.prepare.load_patches", lambda: series)
    asked: list[object] = []

    def patched(patches: object, say: object) -> sources.Tree:
        asked.append(patches)
        return sources.Tree("patched", ROOT, ROOT, "", "")

    monkeypatch.setattr("tierlab.run.prepare.patched_tree", patched)
    assert tree_of("patched-1", None, print).name == "patched-1"
    assert tree_of("patched", None, print).name == "patched"
    assert asked == [series[:1], series]
    with pytest.raises(UsageError, match="asks for 3 patches and the series has 2"):
        tree_of("patched-3", None, print)
