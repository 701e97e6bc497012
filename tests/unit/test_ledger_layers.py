# SPDX-License-Identifier: MIT
"""Three layers, each read from its own evidence, and the names of their differences."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tierlab.dispatch import divergence as div
from tierlab.dispatch.advertised import NONE, advertised, table_line
from tierlab.dispatch.compiled import Compiled, compiled, reads_length
from tierlab.dispatch.divergence import Layers, able, divergence, not_compiled, unreachable
from tierlab.dispatch.executed_families import ran
from tierlab.dispatch.products import family_of_name, product_kernels, strongest
from tierlab.dispatch.rule_places import find_places
from tierlab.dispatch.rules import Place, Rule
from tierlab.errors import BuildError

if TYPE_CHECKING:
    from pathlib import Path

SAID = """\
load_backend: loaded CPU backend from /lab/build/libggml-cpu-armv8.2_2.so
kleidiai: SME detected; SMCU count unavailable, using conservative SME thread cap=1
kleidiai: primary q4 kernel feature SME2
kleidiai: primary q8 kernel feature I8MM
kleidiai: no compatible f32 kernels found for CPU features mask 3
kleidiai: SME enabled (runtime SME detected, conservative thread cap=1)
something else
"""
BANNER = (("NEON", "1"), ("DOTPROD", "1"), ("SVE_CNT", "16"), ("MATMUL_INT8", "1"), ("KLEIDIAI", "1"))
NAMES = {"type": "q4_0", "codes": "q8_0"}


def test_announcements_are_read_from_the_log() -> None:
    said = advertised(SAID, BANNER)
    assert said.loaded == "/lab/build/libggml-cpu-armv8.2_2.so"
    assert dict(said.primary) == {"q4": "SME2", "q8": "I8MM", "f32": NONE}
    assert (said.cap, len(said.lines)) == (1, 6)
    assert said.built == {"neon", "dotprod", "i8mm", "kleidiai"}
    assert said.families == ("I8MM", "DOTPROD", "NEON")
    assert said.choice("kleidiai", "q4_0") == "SME2"
    assert said.choice("repack", "q4_0") == "", "nothing is announced for repack"
    assert said.choice("kleidiai", "f16") == ""
    assert table_line(said, "kleidiai", "q8_0") == "kleidiai: primary q8 kernel feature I8MM"
    assert table_line(said, "default", "q8_0") == ""


@pytest.mark.parametrize(
    ("line", "cap"),
    [
        ("kleidiai: SME enabled (GGML_KLEIDIAI_SME=4 debug override)", 4),
        ("kleidiai: SME enabled (runtime-detected SME thread cap=2)", 2),
        ("kleidiai: SME disabled", 0),
        ("nothing of the kind", None),
    ],
)
def test_the_cap_that_is_told(line: str, cap: int | None) -> None:
    assert advertised(line, ()).cap == cap


def test_an_older_log_names_one_feature_for_all_tables() -> None:
    said = advertised("kleidiai: using kernel with CPU feature DOTPROD\n", ())
    assert said.choice("kleidiai", "q4_0") == "DOTPROD"
    assert table_line(said, "kleidiai", "q4_0") == "kleidiai: using kernel with CPU feature DOTPROD"


@pytest.mark.parametrize(
    ("choice", "banner", "executed", "name"),
    [
        ("I8MM", (), ("I8MM",), div.AGREE),
        ("I8MM", (), ("DOTPROD",), div.OTHER),
        ("SME2", (), ("SME2", "I8MM"), div.HYBRID),
        ("", ("I8MM", "DOTPROD"), ("I8MM", "DOTPROD"), div.SILENT),
        ("", ("DOTPROD",), ("NEON",), div.SILENT),
        ("", ("DOTPROD",), ("SME2",), div.UNADVERTISED),
        ("I8MM", ("I8MM",), (), div.NOTHING),
        ("I8MM", ("I8MM",), None, div.UNKNOWN),
    ],
)
def test_divergence(
    choice: str, banner: tuple[str, ...], executed: tuple[str, ...] | None, name: str
) -> None:
    assert divergence(Layers(choice, banner, executed)) == name
    assert name in div.CLASSES


def test_reach() -> None:
    can = able({"asimd", "dotprod", "i8mm", "sve", "fp16"})
    assert can == ("SVE", "I8MM", "DOTPROD", "NEON")
    assert unreachable(("SME2", "SVE", "I8MM", "DOTPROD"), can, ("I8MM", "DOTPROD")) == ("SVE",)
    assert not_compiled(("DOTPROD",), can) == ("SVE", "I8MM")
    assert not_compiled(("SME2",), able({"sme", "sme2"})) == (), "a kernel of SME2 uses the unit"


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("kai_run_matmul_clamp_f32_qsi8d32p4x8_qsi4c32p4x8_16x4_neon_i8mm", "I8MM"),
        ("kai_run_matmul_clamp_f32_qsi8d32p1x8_qsi4c32p4x8_1x4x32_neon_dotprod", "DOTPROD"),
        ("kai_run_matmul_clamp_f32_qsi8d32p4x8_qsi4c32p8x8_16x8_sve_i8mm", "SVE"),
        ("kai_run_matmul_clamp_f32_f32_f32p2vlx1b_1x16vl_sme2_mla", "SME2"),
        ("kai_run_matmul_clamp_f32_f32p2vlx1_f32p2vlx1b_2vlx2vl_sme_mopa", "SME"),
        ("kai_run_matmul_clamp_f32_f32_f32p_8x8_neon_mla", "NEON"),
        ("ggml_gemm_q4_0_4x8_q8_0", ""),
        ("ggml_vec_dot_q4_0_q8_0_generic", "portable"),
    ],
)
def test_family_of_a_name(name: str, family: str) -> None:
    assert family_of_name(name) == family


def test_product_kernels_are_named_as_in_the_source() -> None:
    counted = {"ggml_vec_dot_q4_0_q8_0.lto_priv.0@quants.c": 64, "quantize_row_q8_0": 1, "kai_run_lhs_x": 2}
    assert product_kernels(counted) == {"ggml_vec_dot_q4_0_q8_0": 64}


def test_families_executed_come_from_instructions_where_these_are_known() -> None:
    run, code = "kai_run_matmul_a_16x4_neon_i8mm", "kai_kernel_matmul_a_16x4_neon_i8mm"
    seen = ran([run], {run: (), code: ("neon", "i8mm")})
    assert (seen.families, seen.classes, seen.misnamed) == ({run: "I8MM"}, ("neon", "i8mm"), ())
    lying = ran([run], {run: (), code: ("neon", "dotprod")})
    assert lying.misnamed == ((run, "DOTPROD"),)
    gemm = ran(["ggml_gemm_x", "ggml_gemv_x"], {"ggml_gemm_x": ("i8mm",), "ggml_gemv_x": ("neon", "dotprod")})
    assert gemm.together == ("I8MM", "DOTPROD")


def test_a_kernel_that_hands_its_work_over_is_not_what_ran() -> None:
    names = ["ggml_vec_dot_x", "ggml_vec_dot_x_generic"]
    assert ran(names, {names[0]: (), names[1]: ("neon",)}).together == ("portable",)


def test_without_a_record_only_names_tell() -> None:
    assert ran(["kai_run_matmul_a_1x4_neon_dotprod"], None).together == ("DOTPROD",)
    unknown = ran(["ggml_gemm_x"], None)
    assert (unknown.together, unknown.classes, unknown.known) == (None, None, False)


def test_strongest() -> None:
    assert [strongest(classes) for classes in (["neon", "sve2"], ["neon", "bf16"], [])] == [
        *("SVE", "NEON"),
        "portable",
    ]


def test_candidates_of_a_type_on_a_path() -> None:
    file = Compiled(
        "f.so",
        {
            "kai_run_matmul_clamp_f32_qsi8d32p4x8_qsi4c32p4x8_16x4_neon_i8mm": {},
            "kai_run_matmul_clamp_f32_qai8dxp4x8_qsi8cxp4x8_16x4_neon_i8mm": {},
            "ggml_gemm_q4_0_4x8_q8_0": {"neon": 5, "i8mm": 4},
            "ggml_gemm_q4_0_8x8_q8_0": {"neon": 0},
            "ggml_gemv_q4_0_4x8_q8_0": {"neon": 5, "dotprod": 4},
            "ggml_gemm_q4_0_4x8_q8_0_generic": {"neon": 5},
            "ggml_gemm_q4_K_8x8_q8_K": {"sve": 3, "i8mm": 1},
        },
    )
    assert file.families("kleidiai", "q4_0", NAMES) == ("I8MM",)
    assert file.families("repack", "q4_0", NAMES) == ("I8MM", "DOTPROD")
    assert file.families("repack", "q4_k", {"type": "q4_K", "codes": "q8_K"}) == ("SVE", "I8MM")
    assert file.families("default", "q4_0", NAMES) == ()


def test_asking_for_the_vector_length_is_no_sve_kernel() -> None:
    rdvl, addvl, cntb, cntw, fmla = 0x04BF5020, 0x04205020, 0x0420E3E0, 0x04A0E3E0, 0x65A00000
    assert reads_length(np.array([rdvl, addvl, cntb, cntw, fmla], np.uint32)).tolist() == [True] * 4 + [False]


def test_a_file_without_kernels_is_refused(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("no ELF file")
    with pytest.raises(BuildError, match="cannot be read"):
        compiled(text)


def test_places_are_found_by_text(tmp_path: Path) -> None:
    (tmp_path / "a.cpp").write_text(
        "int f(int);\nint g() { return f(1); }\nint f(\n  int x) {\n  // if (y)\n  if (x  >\n 128) {}\n}\n"
    )

    def found(file: str, function: str, text: str) -> str:
        rule = Rule("r", "path", "", None, {}, (Place(file, function, text),))  # type: ignore[arg-type]
        (hit,) = find_places(tmp_path, [rule])["r"]
        return hit.line.place if hit.line else hit.missing

    assert found("a.cpp", "int f(", "if(x>") == "ggml/a.cpp:6"
    assert found("a.cpp", "int g()", "f(1)") == "ggml/a.cpp:2"
    assert found("a.cpp", "int f(", "z") == "'int f(' in ggml/a.cpp holds no 'z'"
    assert found("a.cpp", "int h(", "z") == "ggml/a.cpp defines no 'int h('"
    assert found("b.cpp", "int h(", "z") == "the tree has no ggml/b.cpp"
