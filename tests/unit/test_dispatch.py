# SPDX-License-Identifier: MIT
"""Receipts: names, patterns and counts, without an engine."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from pathlib import Path

import pytest

from tierlab.dispatch import (
    KERNEL_PATTERNS,
    Receipt,
    check_counters,
    is_kernel,
    kernel_symbols,
    plain_names,
    ran_expected,
    uncountable,
)
from tierlab.errors import BuildError, HarnessError

HARNESS = Path(__file__).resolve().parents[2] / "kernels" / "harness"

STT_NOTYPE, STT_OBJECT, STT_FUNC = 0, 1, 2


def write_elf(path: Path, symbols: list[tuple[str, int, int]], *, table: bytes = b".symtab") -> Path:
    """A minimal AArch64 ELF file: sections null, .text, .data, a symbol table, .strtab, .shstrtab.

    `symbols` are (name, type, section index). `table` is the symbol table's name.
    """
    strings = b"\0" + b"".join(name.encode() + b"\0" for name, _, _ in symbols)
    rows, at = [bytes(24)], 1
    for name, kind, section in symbols:
        rows.append(struct.pack("<IBBHQQ", at, 1 << 4 | kind, 0, section, 0x1000, 4))
        at += len(name) + 1
    names = b"\0.text\0.data\0" + table + b"\0.strtab\0.shstrtab\0"
    bodies = [b"", b"\xc0\x03\x5f\xd6", bytes(4), b"".join(rows), strings, names]
    kinds = [(0, 0, 0), (1, 6, 0), (1, 3, 0), (2, 0, 4), (3, 0, 0), (3, 0, 0)]
    offsets, offset = [], 64
    for body in bodies:
        offsets.append(offset)
        offset += len(body)
    headers = b""
    for index, (body, (kind, flags, link)) in enumerate(zip(bodies, kinds, strict=True)):
        label = [b"", b".text", b".data", table, b".strtab", b".shstrtab"][index]
        name_at = names.index(b"\0" + label + b"\0") + 1 if label else 0
        entry = 24 if kind == 2 else 0
        headers += struct.pack(
            "<IIQQQQIIQQ", name_at, kind, flags, 0x1000, offsets[index], len(body), link, 0, 1, entry
        )
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    header = ident + struct.pack("<HHIQQQIHHHHHH", 3, 183, 1, 0, 0, offset, 0, 64, 56, 0, 64, 6, 5)
    path.write_bytes(header + b"".join(bodies) + headers)
    return path


def test_the_harness_counts_the_same_patterns() -> None:
    text = (HARNESS / "counters_patterns.inc").read_text()
    assert tuple(re.findall(r'^"(.*)",$', text, re.MULTILINE)) == KERNEL_PATTERNS


@pytest.mark.parametrize(
    "name",
    [
        "kai_run_matmul_clamp_f32_qsi8d32p4x8_qsi4c32p4x8_16x4_neon_i8mm",
        "kai_kernel_lhs_pack_f32p2vlx1_f32_sme",
        "ggml_gemm_q4_0_4x8_q8_0",
        "ggml_gemv_q4_K_8x8_q8_K_generic",
        "ggml_vec_dot_iq4_xs_q8_K",
        "ggml_quantize_mat_q8_0_4x4",
        "quantize_row_q8_K",
        "ggml_vec_dot_f16.constprop.0",
    ],
)
def test_kernels_are_recognised(name: str) -> None:
    assert is_kernel(name)


@pytest.mark.parametrize(
    "name",
    [
        "kai_get_lhs_packed_size_lhs_pack_f32p2vlx1_f32_sme",
        "ggml_compute_forward_mul_mat",
        "xggml_vec_dot_f32",
        "ggml_vec_dot",
        "ggml_gemm_q4_0_4x8_q8_0.cold",
        "ggml_vec_dot_f32.resolver",
        "KAI_RUN_X",
    ],
)
def test_other_functions_are_not(name: str) -> None:
    assert not is_kernel(name)


def test_symbols_of_a_file_are_its_kernel_functions_only(tmp_path: Path) -> None:
    path = write_elf(
        tmp_path / "lib.so",
        [
            ("kai_run_function", STT_FUNC, 1),
            ("kai_run_untyped", STT_NOTYPE, 1),
            ("kai_run_table", STT_OBJECT, 2),
            ("kai_run_data_label", STT_NOTYPE, 2),
            ("kai_run_imported", STT_FUNC, 0),
            ("$x.kai_run_mark", STT_NOTYPE, 1),
            ("helper", STT_FUNC, 1),
        ],
    )
    assert kernel_symbols(path) == {"kai_run_function", "kai_run_untyped"}
    assert kernel_symbols(path, ["help*"]) == {"helper"}


def test_a_stripped_file_is_read_by_what_it_exports(tmp_path: Path) -> None:
    path = write_elf(tmp_path / "lib.so", [("ggml_vec_dot_f32", STT_FUNC, 1)], table=b".dynsym")
    assert kernel_symbols(path) == {"ggml_vec_dot_f32"}


def test_no_kernel_symbol_is_an_error_and_not_an_empty_set(tmp_path: Path) -> None:
    path = write_elf(tmp_path / "lib.so", [("helper", STT_FUNC, 1)])
    with pytest.raises(BuildError, match="names no kernel function"):
        kernel_symbols(path)


def test_a_file_without_symbol_table_is_an_error(tmp_path: Path) -> None:
    path = write_elf(tmp_path / "lib.so", [("kai_run_x", STT_FUNC, 1)], table=b".other")
    with pytest.raises(BuildError, match="names no kernel function"):
        kernel_symbols(path)


@pytest.mark.parametrize("content", [b"", b"not an ELF file", b"\x7fELF\x02\x01\x01" + bytes(9)])
def test_a_file_that_is_no_elf_is_an_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "lib.so"
    path.write_bytes(content)
    with pytest.raises(BuildError, match="cannot be read"):
        kernel_symbols(path)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="cannot be read"):
        kernel_symbols(tmp_path / "none.so")


def test_plain_names() -> None:
    assert plain_names("f") == ("f",)
    assert plain_names("f.constprop.0@a.c|g") == ("f", "g")


@pytest.mark.parametrize(
    ("counted", "name"),
    [
        ("_ZL4gemmiPfmPKvS1_ii", "gemm"),
        ("_ZL4gemmiPf.constprop.0@a.cpp", "gemm"),
        ("_ZL9gemm_tileILi2EEviPf", "gemm_tile"),
        ("_ZL9gemm", "_ZL9gemm"),  # shorter than it says: no mangled name
        ("_ZL04gemm", "_ZL04gemm"),
        ("_ZN4ggml4gemmEi", "_ZN4ggml4gemmEi"),  # in a namespace
    ],
)
def test_static_functions_of_cpp_have_their_names_back(counted: str, name: str) -> None:
    assert plain_names(counted) == (name,)
    assert ran_expected([name], {counted: 3}) == 3


def test_expected_calls_are_summed_over_matching_names() -> None:
    ran = {
        "ggml_gemm_q4_0_4x8_q8_0": 7,
        "ggml_gemv_q4_0_4x8_q8_0.constprop.0": 2,
        "other|ggml_gemm_q4_K_8x8_q8_K": 1,
        "quantize_row_q8_0": 100,
    }
    assert ran_expected(["ggml_gemm_*", "ggml_gemv_*"], ran) == 10
    assert ran_expected(["ggml_gemm_q4_K_8x8_q8_K"], ran) == 1
    assert ran_expected(iter(["ggml_gem?_q4_0_4x8_q8_0"]), ran) == 9


def test_expected_kernel_that_never_ran_is_zero() -> None:
    assert ran_expected(["ggml_gemm_q4_0_8x8_q8_0"], {"ggml_gemm_q4_0_4x8_q8_0": 7}) == 0
    assert ran_expected(["ggml_gemm"], {"ggml_gemm_q4_0_4x8_q8_0": 7}) == 0
    assert ran_expected([], {"ggml_gemm_q4_0_4x8_q8_0": 7}) == 0


def test_a_generic_twin_is_not_the_kernel() -> None:
    assert ran_expected(["ggml_gemm_q4_0_4x8_q8_0"], {"ggml_gemm_q4_0_4x8_q8_0_generic": 7}) == 0


def test_patterns_without_a_countable_symbol_are_named() -> None:
    symbols = {"ggml_vec_dot_f32", "kai_run_a.part.0"}
    assert uncountable(["ggml_vec_dot_*", "kai_run_a", "kai_run_b"], symbols) == ("kai_run_b",)


def test_receipt_from_the_wire() -> None:
    receipt = Receipt.parse(223, ["ggml_vec_dot_q4_0_q8_0 320", "quantize_row_q8_0 5"])
    assert receipt.counting
    assert dict(receipt.ran) == {"ggml_vec_dot_q4_0_q8_0": 320, "quantize_row_q8_0": 5}
    assert receipt.calls(["ggml_vec_dot_*"]) == 320
    assert receipt.calls(["kai_run_*"]) == 0


def test_receipt_without_counters_says_nothing() -> None:
    receipt = Receipt.parse(0, [])
    assert not receipt.counting


@pytest.mark.parametrize("line", ["", "name", "name ", " 3", "name x", "name -1", "name 0", "name 1.5"])
def test_a_malformed_count_is_an_error(line: str) -> None:
    with pytest.raises(HarnessError, match="no symbol with a count"):
        Receipt.parse(5, [line])


def test_a_symbol_counted_twice_is_an_error() -> None:
    with pytest.raises(HarnessError, match="no symbol with a count"):
        Receipt.parse(5, ["a 1", "a 2"])


def test_counts_without_counters_are_an_error() -> None:
    with pytest.raises(HarnessError, match="no proof"):
        Receipt.parse(0, ["a 1"])
    with pytest.raises(HarnessError, match="no proof"):
        Receipt(-1)


@dataclass
class Said:
    arch: str
    kernels: int
    counters_error: str = ""


@pytest.mark.parametrize("said", [Said("aarch64", 223), Said("x86_64", 0)])
def test_a_session_that_counts_or_cannot_count_by_nature_is_fine(said: Said) -> None:
    check_counters(said)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (Said("aarch64", -1, "lib.so names no kernel function"), "names no kernel function"),
        (Said("aarch64", 0), "built without counters"),
    ],
)
def test_an_arm_session_that_cannot_count_ends(said: Said, why: str) -> None:
    with pytest.raises(HarnessError, match=why) as caught:
        check_counters(said)
    assert caught.value.exit_code == 2
