# SPDX-License-Identifier: MIT
"""Broken matrix files: each kind ends at the door with place, bad word and advice."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tierlab.cells.load import load_matrix
from tierlab.errors import ConfigError, ExitCode

if TYPE_CHECKING:
    from pathlib import Path

SMALL = """\
version: 1
builds: {stock: the pinned tree}
profiles:
  - {name: plain, emulator: qemu-11.1, cpu: cortex-a53, features: [asimd]}
  - {name: wide, emulator: qemu-11.1, cpu: "max,sme=off", features: [asimd, dotprod, sve], vector_bits: 256}
variants:
  - {name: armv8.0_1, needs: []}
  - {name: armv8.2_1, needs: [dotprod]}
codes:
  q8_0: {block: 32, bytes: 34}
types:
  q4_0:
    family: legacy
    block: 32
    bytes: 18
    codes: q8_0
    quantizer: gguf
    fields:
      - {name: d, at: 0, bytes: 2, kind: f16, exponent: [-4, -2]}
      - {name: qs, at: 2, bytes: 16, kind: bits}
suites:
  ggml.mul_mat: {op: mul_mat}
  ggml.dequantize: {op: dequantize}
paths:
  default:
    gemm_from: 1
    rules: [{types: [q4_0], kernels: {gemv: ["ggml_vec_dot_{type}_{codes}"]}}]
  repack:
    gemm_from: 4
    rules: [{types: [q4_0], variant: [dotprod], ops: [mul_mat], kernels: {gemv: ["ggml_gemv_{type}*"]}}]
shapes:
  core: [m1n8K1, m5n8K2]
  experts: [m2n8K1e4u2i1]
presets:
  default:
    builds: [stock]
    profiles: ["*"]
    plan:
      - {suite: ggml.mul_mat, types: [q4_0], shapes: [core], paths: [default, repack]}
budgets: {lambda: 8.0, elements_per_run: 1.0e+6, runs_per_year: 365, false_alarms_per_year: 1.0e-3}
timeouts: {cell_seconds: 20, start_seconds: 30}
exclusions:
  - {types: [q4_0], profiles: [wide], reason: a reason}
"""

BROKEN = [
    pytest.param(
        "builds: {",
        "biulds: {",
        "biulds: {stock: the pinned tre",
        "unknown key 'biulds' in the file; did you mean 'builds'?",
        id="unknown-key",
    ),
    pytest.param(
        "cpu: cortex-a53",
        "cpus: cortex-a53",
        "cpus: cortex-a53, features: [a",
        "unknown key 'cpus' in profiles.0; did you mean 'cpu'?",
        id="unknown-and-missing-key",
    ),
    pytest.param(
        "block: 32\n    bytes: 18",
        "block: many\n    bytes: 18",
        "many",
        "types.q4_0.block must be a whole number, not 'many'; correct the value.",
        id="wrong-type",
    ),
    pytest.param(
        "profiles:\n  -",
        "profiles:\n  - [plain]\n  -",
        "[plain]",
        "profiles.0 must be a mapping, not a list; correct the value.",
        id="list-for-mapping",
    ),
    pytest.param(
        "emulator: qemu-11.1, cpu: cortex-a53",
        "emulator: qemu-11, cpu: cortex-a53",
        "qemu-11, cpu: cortex-a53, feat",
        "unknown value 'qemu-11' for profiles.0.emulator; did you mean 'qemu-11.1'?",
        id="unknown-emulator",
    ),
    pytest.param(
        "features: [asimd]}",
        "features: [asimd, dotprot]}",
        "dotprot]}",
        "unknown value 'dotprot' for profiles.0.features.1; did you mean 'dotprod'?",
        id="unknown-feature",
    ),
    pytest.param(
        "features: [asimd]}",
        "features: [asimd, asimd]}",
        "asimd]}",
        "duplicate 'asimd' in profiles.0.features; it would count once. Remove it.",
        id="duplicate-in-list",
    ),
    pytest.param(
        "version: 1\n",
        "version: 1\nversion: 1\n",
        "version: 1",
        "duplicate key 'version' (first on line 1); one of them would be lost. Remove or rename one.",
        id="duplicate-key",
    ),
    pytest.param(
        "name: wide",
        "name: plain",
        "plain, emulator: qemu-11.1, cp",
        "duplicate profile 'plain'; its cells would carry one id twice. Rename or remove one.",
        id="twin",
    ),
    pytest.param(
        'cpu: "max,sme=off", features: [asimd, dotprod, sve], vector_bits: 256',
        "cpu: cortex-a53, features: [asimd]",
        "cortex-a53, features: [asimd]}",
        "profile 'wide' is the same machine as 'plain'; it would test nothing new. Remove one.",
        id="same-machine",
    ),
    pytest.param(
        "sve], vector_bits: 256}",
        "sve]}",
        "[asimd, dotprod, sve]}",
        "impossible combination: sve without vector_bits in profile 'wide'; state the length or drop sve.",
        id="sve-without-length",
    ),
    pytest.param(
        "features: [asimd]}",
        "features: [asimd, sve2]}",
        "sve2]}",
        "impossible combination: sve2 without sve in profile 'plain'; add sve.",
        id="sve2-without-sve",
    ),
    pytest.param(
        "vector_bits: 256",
        "vector_bits: 200",
        "200}",
        "vector_bits 200 is no length that exists; use a multiple of 128 up to 2048.",
        id="length-200",
    ),
    pytest.param(
        "emulator: qemu-11.1, cpu: cortex-a53, features: [asimd]",
        "emulator: qemu-10.0, cpu: x, features: [asimd, sme, sme2], streaming_bits: 512",
        "qemu-10.0, cpu: x, features: [",
        "impossible combination: qemu-10.0 has no SME2; use qemu-11.1 or drop sme2.",
        id="sme2-on-old-emulator",
    ),
    pytest.param(
        "[{types: [q4_0], kernels",
        "[{types: [q4_1], kernels",
        'q4_1], kernels: {gemv: ["ggml_',
        "unknown type 'q4_1' in a rule; did you mean 'q4_0'?",
        id="unknown-type-in-rule",
    ),
    pytest.param(
        "types: [q4_0], shapes: [core]",
        "types: [q4_k], shapes: [core]",
        "q4_k], shapes: [core], paths: ",
        "unknown type 'q4_k'; did you mean 'q4_0'?",
        id="unknown-type-in-plan",
    ),
    pytest.param(
        "suite: ggml.mul_mat, types",
        "suite: ggml.mulmat, types",
        "ggml.mulmat, types: [q4_0], sh",
        "unknown suite 'ggml.mulmat'; did you mean 'ggml.mul_mat'?",
        id="unknown-suite",
    ),
    pytest.param(
        "shapes: [core]",
        "shapes: [cor]",
        "cor], paths: [default, repack]",
        "unknown shape 'cor'; did you mean 'core'?",
        id="unknown-shapes",
    ),
    pytest.param(
        "paths: [default, repack]}",
        "paths: [default, repak]}",
        "repak]}",
        "unknown path 'repak'; did you mean 'repack'?",
        id="unknown-path",
    ),
    pytest.param(
        'profiles: ["*"]',
        "profiles: [plan]",
        "plan]",
        "unknown profile 'plan'; did you mean 'plain'?",
        id="unknown-profile",
    ),
    pytest.param(
        "builds: [stock]",
        "builds: [stok]",
        "stok]",
        "unknown build 'stok'; did you mean 'stock'?",
        id="unknown-build",
    ),
    pytest.param(
        "m1n8K1, m5n8K2",
        "m1n8K1, m5k8n2",
        "m5k8n2]",
        "shape 'm5k8n2' is not of the form m5n64k512, m5n64K2, …b4x1w2x1, …e8u2i3, …s; correct it.",
        id="shape-form",
    ),
    pytest.param(
        "m1n8K1, m5n8K2",
        "m1n8K1, m5n8k33",
        "m5n8k33]",
        "shape 'm5n8k33' has K=33, type 'q4_0' blocks of 32; choose a multiple, or count K in blocks (K2).",
        id="k-no-multiple",
    ),
    pytest.param(
        "m1n8K1, m5n8K2",
        "m1n8K1b3x1w2x1",
        "m1n8K1b3x1w2x1]",
        "shape 'm1n8K1b3x1w2x1' has weight planes that do not divide the activation planes; correct it.",
        id="broadcast",
    ),
    pytest.param(
        "shapes: [core]",
        "shapes: [experts]",
        "m2n8K1e4u2i1]",
        "mul_mat takes no experts, shape 'm2n8K1e4u2i1'; choose another list of shapes.",
        id="experts-in-mul-mat",
    ),
    pytest.param(
        "u2i1]",
        "u4i1]",
        "m2n8K1e4u4i1]",
        "shape 'm2n8K1e4u4i1' must have an expert and use at most those that are not idle",
        id="too-many-experts",
    ),
    pytest.param(
        "suite: ggml.mul_mat, types: [q4_0], shapes: [core]",
        "suite: ggml.mul_mat, types: [q4_0], activation_types: [f16], shapes: [core]",
        "f16], shapes: [core], paths: [",
        "impossible combination: q4_0 weights with f16 activations; q4_0 takes f32.",
        id="activation-type",
    ),
    pytest.param(
        "shapes: [core], paths: [default, repack]}",
        "shapes: [core], activations: [none]}",
        "[none]}",
        "impossible combination: mul_mat needs activations, not none; correct the row.",
        id="no-activations",
    ),
    pytest.param(
        "suite: ggml.mul_mat, types: [q4_0], shapes: [core], paths: [default, repack]",
        "suite: ggml.dequantize, types: [q4_0], shapes: [core], threads: [2]",
        "[2]}",
        "impossible combination: dequantize has no threads; drop the key.",
        id="threads-of-dequantize",
    ),
    pytest.param(
        "at: 2, bytes: 16",
        "at: 3, bytes: 16",
        "3, bytes: 16, kind: bits}",
        "field 'qs' at byte 3 leaves a hole before it (expected 2); correct the layout.",
        id="hole-in-block",
    ),
    pytest.param(
        "bytes: 18",
        "bytes: 20",
        "20",
        "the fields fill 18 bytes, a block has 20; correct bytes or the fields.",
        id="block-size",
    ),
    pytest.param(
        "kind: f16, exponent: [-4, -2]",
        "kind: f16, exponent: [-40, -2]",
        "[-40, -2]}",
        "f16 scales have binades -14 … 12 (larger ones are added), not [-40, -2]; choose among them.",
        id="binades",
    ),
    pytest.param(
        "codes: q8_0\n",
        "codes: q8_1\n",
        "q8_1",
        "unknown code type 'q8_1' of type 'q4_0'; did you mean 'q8_0'?",
        id="unknown-codes",
    ),
    pytest.param(
        "lambda: 8.0",
        "lambda: 5.0",
        "5.0, elements_per_run: 1.0e+6,",
        "lambda 5 allows 2.7e+03 false alarms a year, more than the 0.001 promised; use 7.39 or more.",
        id="lambda",
    ),
    pytest.param(
        "- {types: [q4_0], profiles: [wide], reason: a reason}",
        "- {types: [q9*], reason: a reason}",
        "q9*], reason: a reason}",
        "'q9*' matches no value of types; known: q4_0, q8_0.",
        id="exclusion-of-nothing",
    ),
    pytest.param(
        "- {types: [q4_0], profiles: [wide], reason: a reason}",
        "- {reason: a reason}",
        "{reason: a reason}",
        "an entry of exclusions names no axis, so it would hold for every cell; add types, paths,",
        id="exclusion-of-all",
    ),
    pytest.param(
        "reason: a reason}",
        "reason: ''}",
        "''}",
        "exclusions.0.reason is empty; a reader would learn nothing. Write it or remove the key.",
        id="exclusion-without-reason",
    ),
    pytest.param(
        "plan:\n      - {",
        "plan: []\n      #  {",
        "[]",
        "presets.default.plan is empty; nothing would be selected. Fill it or remove the key.",
        id="empty-plan",
    ),
    pytest.param(
        "shapes: [core]",
        "shapes: []",
        "[], paths: [default, repack]}",
        "presets.default.plan.0.shapes is empty; nothing would be selected. Fill it or remove the key.",
        id="empty-list",
    ),
    pytest.param(
        "version: 1\n",
        "version: 2\n",
        "2",
        "version is 2, this tierlab reads 1; use that version.",
        id="version",
    ),
    pytest.param(
        "builds: {",
        "builds: {{",
        "profiles:",
        "YAML syntax: expected ',' or '}', but got '<scalar>'; nothing was read. Correct this line.",
        id="syntax",
    ),
    pytest.param(
        "version: 1\n",
        "1: 1\n",
        "1: 1",
        "the key '1' is not text; quote it or use a name.",
        id="number-as-key",
    ),
    pytest.param(
        "cell_seconds: 20",
        "cell_seconds: 0",
        "0, start_seconds: 30}",
        "timeouts.cell_seconds must be more than 0, not 0; correct the value.",
        id="zero-limit",
    ),
    pytest.param(
        "cpu: cortex-a53",
        "cpu:",
        ", features: [asimd]}",
        "profiles.0.cpu must be text, not nothing; correct the value.",
        id="nothing",
    ),
    pytest.param(
        '{gemv: ["ggml_vec_dot_{type}_{codes}"]}',
        '{gemv: ["ggml_vec_dot_{typ}"]}',
        '"ggml_vec_dot_{typ}"]}}]',
        "pattern 'ggml_vec_dot_{typ}' has a placeholder other than {type}, {codes}, {layout}; correct it.",
        id="placeholder",
    ),
    pytest.param(
        "  default:\n    gemm_from",
        "  defualt:\n    gemm_from",
        "defualt:",
        "paths lacks 'default', the plain way that every type has; add it.",
        id="no-default-path",
    ),
    pytest.param(
        "stock: the pinned tree",
        "st ock: tree",
        "st ock: tree}",
        "'st ock' is not a name; use letters, digits, '_', '.' and '-' only.",
        id="bad-name",
    ),
    pytest.param(
        "variants:\n  - {name: armv8.0_1, needs: []}\n",
        "variants:\n  - {name: armv8.0_1, needs: [sve2]}\n",
        "[asimd]}",
        "profile 'plain' meets the needs of no variant; no backend would load. Add a variant without needs.",
        id="no-variant",
    ),
]


def write(folder: Path, text: str) -> Path:
    path = folder / "matrix.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_unbroken_file_loads(tmp_path: Path) -> None:
    matrix = load_matrix(write(tmp_path, SMALL))
    assert list(matrix.profiles) == ["plain", "wide"]
    assert matrix.profiles["wide"].vector_bits == 256
    assert matrix.variant_of["wide"].name == "armv8.2_1"
    assert matrix.exclusions[0].reason == "a reason"


@pytest.mark.parametrize(("good", "bad", "at", "message"), BROKEN)
def test_broken(tmp_path: Path, good: str, bad: str, at: str, message: str) -> None:
    """`at` is the text that stands where the message points."""
    assert good in SMALL, "the fixture must contain what it replaces"
    text = SMALL.replace(good, bad, 1)
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_matrix(path)
    assert caught.value.exit_code == ExitCode.WRONG_USE
    found = re.match(rf"{re.escape(str(path))}:(\d+):(\d+): (.*)", matching(str(caught.value), message))
    assert found is not None
    line, column = int(found[1]), int(found[2])
    assert text.splitlines()[line - 1][column - 1 :].startswith(at)


def matching(text: str, message: str) -> str:
    """The line of the error that holds the message, which must be one of them."""
    lines = [line for line in text.splitlines() if message in line]
    assert lines, text
    return lines[0]


def test_there_are_more_than_twenty_kinds() -> None:
    assert len({case.id for case in BROKEN}) == len(BROKEN) >= 20


def test_every_violation_is_listed_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = SMALL.replace("name: plain", "nam: plain").replace("cell_seconds: 20", "cell_second: 20")
    with pytest.raises(ConfigError) as caught:
        load_matrix(write(tmp_path, text))
    lines = str(caught.value).splitlines()
    assert len(lines) == 4
    assert "profiles.0 lacks the key 'name'" in lines[0]
    assert "unknown key 'nam'" in lines[1]
    assert "timeouts lacks the key 'cell_seconds'" in lines[2]
    assert "unknown key 'cell_second' in timeouts; did you mean 'cell_seconds'?" in lines[3]


def test_missing_empty_and_binary_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot be read \(No such file"):
        load_matrix(tmp_path / "matrix.yaml")
    with pytest.raises(ConfigError, match=r":1:1: the file is empty"):
        load_matrix(write(tmp_path, "# nothing\n"))
    path = tmp_path / "matrix.yaml"
    path.write_bytes(b"version: \xff\n")
    with pytest.raises(ConfigError, match=r"is not UTF-8 text \(byte 9\)"):
        load_matrix(path)


def test_an_alias_that_contains_itself(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="an alias that contains itself"):
        load_matrix(write(tmp_path, "version: &v [*v]\n"))
