# SPDX-License-Identifier: MIT
"""Variants: views of a build with one backend, clean refusals, and what the report holds against a tree."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from tierlab.cells.load import load_matrix
from tierlab.cells.matrix import Variant
from tierlab.dispatch.variants import Backend
from tierlab.errors import SourceError
from tierlab.judge.verdict import Judgement, Verdict
from tierlab.report.variants_report import (
    VariantAnswer,
    byte_groups,
    claim_groups,
    variants_json,
    variants_markdown,
)
from tierlab.run.keys import rules_digest
from tierlab.run.record import CellRecord
from tierlab.run.survey import claim, forced, product
from tierlab.run.survey_android import as_variants, swapped
from tierlab.run.survey_variants import Loaded, Refusal, VariantSurvey, cells_of, is_clean, view
from tierlab.toolchain.build import Build

if TYPE_CHECKING:
    from tierlab.cells.matrix import Matrix
    from tierlab.run.workbench import Workbench

MATRIX = load_matrix(Path(__file__).parents[2] / "matrix.yaml")
LINUX = tuple(Backend(item.name, item.needs, f"f:{at}") for at, item in enumerate(MATRIX.variants))
SETS = {"linux": LINUX, "android": LINUX[:3], "apple": ()}
REFUSED = (
    "the harness closed the connection without a hello (return code 2): "
    "ggml found no CPU backend that this CPU can run in /x"
)


def loaded(profile: str) -> Loaded:
    features = MATRIX.profiles[profile].features
    return Loaded(profile, MATRIX.variant_of[profile].name, tuple((b.name, b.score(features)) for b in LINUX))


def record(profile: str, digest: str, kind: str = "q4_0", verdict: Verdict = Verdict.PASS) -> CellRecord:
    cell = product(profile, kind, "m5n16k256", "default")
    return CellRecord.of(cell, Judgement(verdict), digest=digest)


def claimed(profile: str, taken: bool) -> CellRecord:
    return CellRecord.of(
        claim(profile, "q4_0", "m512n64k256", "repack"), Judgement(Verdict.PASS), claimed=taken
    )


def found(**changes: object) -> VariantSurvey:
    n1, a53 = "neoverse-n1", "cortex-a53"
    ran = {
        (n1, "armv8.0_1"): [record(n1, "old"), claimed(n1, False)],
        (n1, "armv8.2_1"): [record(n1, "new"), claimed(n1, True)],
        (n1, "armv8.2_2"): [record(n1, "new"), claimed(n1, True)],
        (a53, "armv8.0_1"): [record(a53, "old"), claimed(a53, False)],
    }
    good = VariantSurvey(
        (loaded(n1), loaded(a53)),
        (Refusal(a53, "armv8.2_1", True, REFUSED), Refusal(a53, "armv8.2_2", True, REFUSED)),
        {key: {each.cell: each for each in records} for key, records in ran.items()},
    )
    return replace(good, **changes)  # type: ignore[arg-type]


def answer(
    survey: VariantSurvey | None = None, sets: dict[str, tuple[Backend, ...]] | None = None
) -> VariantAnswer:
    return VariantAnswer(survey or found(), sets or SETS, MATRIX)


def test_all_well() -> None:
    text = variants_markdown(answer())
    assert answer().against == ()
    assert (
        "4 forced pairs of profile and variant computed 8 cells as expected, 2 were refused in words" in text
    )
    assert "| neoverse-n1 | 1         | 3         | [7]" in text
    assert "armv8.2_1: dotprod; armv8.2_2: dotprod, fp16; armv8.2_3: dotprod, fp16, sve" in text
    assert "armv8.0_1 ≠ armv8.2_1, armv8.2_2" in text
    value = variants_json(answer())
    assert value["problems"] == []
    assert value["lacks"]["cortex-a53"]["armv8.2_2"] == ["dotprod", "fp16"]
    assert value["claims_differ"][0]["not_by"] == ["armv8.0_1"]


@pytest.mark.parametrize(
    ("survey", "message"),
    [
        (found(loaded=(Loaded("cortex-a53", problem="SIGILL"),)), "cortex-a53 loads no variant: SIGILL"),
        (
            found(loaded=(replace(loaded("neoverse-n1"), variant="armv8.0_1"),)),
            "armv8.2_2 has the highest score",
        ),
        (
            found(loaded=(replace(loaded("cortex-a53"), scores=(("armv8.0_1", 9),)),)),
            "armv8.0_1 scores 9, by the rule 1",
        ),
        (
            found(refusals=(Refusal("cortex-a53", "armv8.2_1", False, "return code 132"),)),
            "armv8.2_1 forced on cortex-a53 was not refused cleanly: return code 132",
        ),
        (
            found(ran={("cortex-a53", "armv8.0_1"): {"c": record("cortex-a53", "", verdict=Verdict.FAIL)}}),
            "armv8.0_1 forced on cortex-a53: fail",
        ),
    ],
)
def test_what_is_amiss_is_said(survey: VariantSurvey, message: str) -> None:
    assert any(message in text for text in answer(survey).against)
    assert message in variants_markdown(answer(survey))


def test_a_tree_that_declares_others_than_the_matrix_is_told() -> None:
    changed = (*LINUX[:-1], Backend("armv9.9_1", frozenset({"sme"})))
    texts = answer(sets={**SETS, "linux": changed}).against
    assert "armv9.9_1: the tree declares sme, matrix.yaml no such variant" in texts
    assert any(text.startswith("armv9.2_2: the tree declares no such variant") for text in texts)


def test_a_cell_without_an_answer_counts_as_silent() -> None:
    silent = record("cortex-a53", "", verdict=Verdict.UNTESTED)
    one = answer(found(ran={("cortex-a53", "armv8.0_1"): {silent.cell: silent}}))
    assert (one.silent, one.against) == (1, ())


def test_profiles_with_fewer_variants_share_the_row_of_the_same_split() -> None:
    ran = {
        ("neoverse-n2", name): {"c": record("neoverse-n2", digest)}
        for name, digest in (("armv8.0_1", "a"), ("armv8.2_1", "b"), ("armv8.2_3", "c"), ("armv8.6_1", "c"))
    }
    ran |= {
        ("neoverse-n1", name): {"d": record("neoverse-n1", d)}
        for name, d in (("armv8.0_1", "x"), ("armv8.2_1", "y"))
    }
    ran |= {
        ("sve2-128", name): {"e": record("sve2-128", d)}
        for name, d in (("armv8.2_3", "x"), ("armv8.6_1", "y"))
    }
    rows = byte_groups(found(ran=ran))
    assert {key[2]: places for key, places in rows.items()} == {
        (("armv8.0_1",), ("armv8.2_1",), ("armv8.2_3", "armv8.6_1")): [
            "neoverse-n2 m5n16k256",
            "neoverse-n1 m5n16k256",
        ],
        (("armv8.2_3",), ("armv8.6_1",)): ["sve2-128 m5n16k256"],
    }
    assert claim_groups(found(ran=ran)) == {}


@pytest.mark.parametrize(
    ("message", "clean"),
    [
        (REFUSED, True),
        (REFUSED.replace("code 2", "code 132"), False),
        ("the harness died before it connected (return code 132): …", False),
        ("the harness said no hello within 30 s (return code None): It said: nothing", False),
    ],
)
def test_a_refusal_is_clean_only_in_words_and_without_a_signal(message: str, clean: bool) -> None:
    assert is_clean(message) is clean


def build_in(folder: Path) -> Build:
    names = ("libggml-cpu-a.so", "libggml-cpu-b.so", "libggml-base.so.0", "tierlab-harness")
    folder.mkdir()
    for name in names:
        (folder / name).write_text(name)
    (folder / "libggml-base.so").symlink_to("libggml-base.so.0")
    return Build(
        "b",
        "m",
        folder,
        folder / "tierlab-harness",
        folder,
        "d",
        "t",
        (),
        folder / "log",
        dict.fromkeys(names, "1"),
    )


def test_a_view_has_one_backend_and_the_keys_of_the_lane_that_loads_it(tmp_path: Path) -> None:
    build = build_in(tmp_path / "build")
    (tmp_path / "view").mkdir()
    alone = view(build, "libggml-cpu-b.so", str(tmp_path / "view"))
    assert sorted(path.name for path in alone.directory.iterdir()) == [
        "libggml-base.so", "libggml-base.so.0", "libggml-cpu-b.so", "tierlab-harness",
    ]  # fmt: skip
    assert (alone.directory / "libggml-base.so").is_symlink()
    assert alone.harness.samefile(build.harness)
    assert alone.variants == ("libggml-cpu-b.so",)
    assert alone.lane_digest("libggml-cpu-b.so") == build.lane_digest("libggml-cpu-b.so")
    assert alone.binaries != build.binaries


def test_the_rules_follow_the_forced_variant() -> None:
    class Bench:
        matrix = MATRIX

        def judge_by(self, matrix: Matrix) -> None:
            self.matrix = matrix

    bench = Bench()
    before = {cell.path for cell in cells_of(bench.matrix, "neoverse-n2") if cell.problem.op == "mul_mat"}
    forced(cast("Workbench", bench), {"neoverse-n2": MATRIX.variants[0]})
    after = {cell.path for cell in cells_of(bench.matrix, "neoverse-n2") if cell.problem.op == "mul_mat"}
    assert before == {"default", "repack", "kleidiai"}
    assert after == {"default", "kleidiai"}, "KleidiAI asks the CPU, repack what the variant was compiled for"
    assert MATRIX.variant_of["neoverse-n2"].name == "armv8.6_2"
    assert rules_digest(bench.matrix) == rules_digest(MATRIX), "verdicts of known variants are shared"
    forced(cast("Workbench", bench), {"neoverse-n2": Variant("android_armv9.0_1", frozenset({"sve2"}))})
    assert rules_digest(bench.matrix) != rules_digest(MATRIX), "a variant of another set has keys of its own"


def test_the_android_set_on_linux_by_swapping_two_questions() -> None:
    text = (
        'if (CMAKE_SYSTEM_NAME MATCHES "Linux")\nelseif (GGML_SYSTEM_ARCH STREQUAL "ARM")\n'
        'if (CMAKE_SYSTEM_NAME MATCHES "Linux")\nl\nelseif (CMAKE_SYSTEM_NAME MATCHES "Android")\na\n'
    )
    assert swapped(text) == (
        'if (CMAKE_SYSTEM_NAME MATCHES "Linux")\nelseif (GGML_SYSTEM_ARCH STREQUAL "ARM")\n'
        'if (CMAKE_SYSTEM_NAME MATCHES "Nobody")\nl\nelseif (CMAKE_SYSTEM_NAME MATCHES "Linux")\na\n'
    )
    for other in ("", text.replace("Android", "Other"), text.replace('STREQUAL "ARM"', "ARM")):
        with pytest.raises(SourceError, match="does not ask for Linux and then for Android"):
            swapped(other)


def test_what_is_compiled_in_counts_for_the_rules_not_what_is_declared() -> None:
    v9 = Backend("android_armv9.0_1", frozenset({"dotprod", "sve2"}))
    assert as_variants([v9])[0].needs == {"dotprod", "sve2", "sve"}
    assert v9.score({"dotprod", "sve2"}) == 35


def test_the_android_page_stands_beside_the_linux_page() -> None:
    other = VariantAnswer(found(), {**SETS, "android": LINUX}, MATRIX, "android")
    text = variants_markdown(answer(), other)
    assert text.count("# Backend variants\n") == text.count("# The Android set, compiled for Linux\n") == 1
    assert "--android does" not in text
    assert "--android does" in variants_markdown(answer())
