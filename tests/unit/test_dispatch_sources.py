# SPDX-License-Identifier: MIT
"""The lines that decide are found by text; a tree without them is told apart, never passed over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tierlab.dispatch.sources import KLEIDIAI_FILE, REPACK_FILE, deciders
from tierlab.dispatch.variants import CMAKE_FILE, backend_of, declared_sets, loaded, sum_of
from tierlab.errors import SourceError

if TYPE_CHECKING:
    from pathlib import Path

REPACK = """// ggml_repack_get_optimal_repack_type( in a comment
static const traits * ggml_repack_get_optimal_repack_type(const struct ggml_tensor * cur) {
    static const traits<block_q4_0, GGML_TYPE_Q8_0> q4_0_4x4_q8_0;
    if (cur->type == GGML_TYPE_Q4_0) {
        if (ggml_cpu_has_avx2()) {
            if (cur->ne[1] % 8 == 0) { return &q4_0_8x8_q8_0; }
        }
        if (ggml_cpu_has_neon() && ggml_cpu_has_dotprod()) {
            return &q4_0_4x4_q8_0;
        }
    } else if (cur->type == GGML_TYPE_Q4_K) {
        return nullptr;
    }
    return nullptr;
}
    bool supports_op(const struct ggml_tensor * op) override {
        if (op->op == GGML_OP_MUL_MAT && ggml_n_dims(op->src[0]) == 2) {
            return true;
        }
        return false;
    }
"""
KLEIDIAI = """
    bool supports_op(const struct ggml_tensor * op) override {
        if (op->src[0]->type == GGML_TYPE_Q4_0) {
            return op->src[1]->type == GGML_TYPE_F32;
        }
        return false;
    }
"""
CMAKE = """
        if (CMAKE_SYSTEM_NAME MATCHES "Linux")
            ggml_add_cpu_backend_variant(armv8.0_1)
            ggml_add_cpu_backend_variant(armv8.2_1    DOTPROD)
            ggml_add_cpu_backend_variant(armv8.6_1    DOTPROD FP16_VECTOR_ARITHMETIC SVE MATMUL_INT8)
        elseif (CMAKE_SYSTEM_NAME MATCHES "Android")
            ggml_add_cpu_backend_variant(android_armv8.6_1  DOTPROD FP16_VECTOR_ARITHMETIC MATMUL_INT8)
        elseif (APPLE)
            ggml_add_cpu_backend_variant(apple_m4 DOTPROD MATMUL_INT8 NOSVE SME)
        endif()
        ggml_add_cpu_backend_variant(haswell SSE42 AVX)
"""
SYMBOLS = {"q4_0": "q4_0", "q4_k": "q4_K", "q8_0": "q8_0", "f32": "f32"}


@pytest.fixture
def ggml(tmp_path: Path) -> Path:
    for name, text in ((REPACK_FILE, REPACK), (KLEIDIAI_FILE, KLEIDIAI), (CMAKE_FILE, CMAKE)):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_the_deciding_lines(ggml: Path) -> None:
    found = deciders(ggml, SYMBOLS)
    repack, kleidiai = found["repack"], found["kleidiai"]
    assert [line.place for line in repack.functions] == [
        "ggml/src/ggml-cpu/repack.cpp:2",
        "ggml/src/ggml-cpu/repack.cpp:16",
    ]
    assert [line.number for line in repack.branches["q4_0"]] == [4, 8, 9], "no line of another architecture"
    assert [line.number for line in repack.branches["q4_k"]] == [11]
    assert repack.branches["q8_0"] == (), "a mention as the type of codes is no branch"
    assert [line.number for line in repack.conditions] == [17]
    assert [line.number for line in kleidiai.branches["q4_0"]] == [3]
    assert kleidiai.branches["f32"] == (), "the type of the activations is no type of weights"
    assert [line.number for line in kleidiai.conditions] == [4]


def test_a_tree_without_the_function_is_refused(ggml: Path) -> None:
    (ggml / REPACK_FILE).write_text("int main() {}\n")
    with pytest.raises(SourceError, match="no definition with 'ggml_repack_get_optimal_repack_type"):
        deciders(ggml, SYMBOLS)
    (ggml / REPACK_FILE).unlink()
    with pytest.raises(SourceError, match="No such file"):
        deciders(ggml, SYMBOLS)


def test_declared_sets_and_the_rule_of_the_score(ggml: Path) -> None:
    sets = declared_sets(ggml)
    assert {system: [item.name for item in found] for system, found in sets.items()} == {
        "linux": ["armv8.0_1", "armv8.2_1", "armv8.6_1"],
        "android": ["android_armv8.6_1"],
        "apple": ["apple_m4"],
    }
    last = sets["linux"][-1]
    assert (last.worth, sum_of(last)) == (31, "1 + 2 dotprod + 4 fp16 + 8 sve + 16 i8mm")
    assert last.place == "ggml/src/CMakeLists.txt:5"
    no_sve = {"asimd", "dotprod", "fp16", "i8mm"}
    assert last.lacks(no_sve) == ("sve",)
    assert last.score(no_sve) == 0
    best = loaded(sets["linux"], no_sve)
    assert best is not None
    assert best.name == "armv8.2_1"
    assert loaded(sets["android"], {"asimd"}) is None


def test_a_feature_without_a_known_score_is_told(ggml: Path) -> None:
    (ggml / CMAKE_FILE).write_text("ggml_add_cpu_backend_variant(armv9.9_1 DOTPROD FP8)\n")
    with pytest.raises(SourceError, match=r"armv9\.9_1 needs FP8"):
        declared_sets(ggml)
    (ggml / CMAKE_FILE).write_text("nothing\n")
    with pytest.raises(SourceError, match="no Arm CPU variant"):
        declared_sets(ggml)


def test_names() -> None:
    assert backend_of("libggml-cpu-armv8.2_1.so") == "armv8.2_1"
