# SPDX-License-Identifier: MIT
"""A patch that reaches farther than it says: every cell passes, and the comparison is red all the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tierlab.cli import matrix, selection
from tierlab.errors import ExitCode
from tierlab.run import prepare
from tierlab.toolchain.choose import choose_engine
from tierlab.toolchain.diff import Patch
from tierlab.toolchain.sources import stock_tree

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.engine

SOURCE = "ggml/src/ggml-cpu/vec.cpp"
KERNEL = "void ggml_vec_dot_bf16("
PROFILES = ["cortex-a53", "neoverse-n2"]
CELLS = [
    "ggml.mul_mat/bf16/m5n61k129/blocks.gauss/default/*",
    "ggml.mul_mat/f16/m5n61k129/blocks.gauss/default/*",
    "ggml.mul_mat/iq4_xs/m5n61k512/blocks.gauss/default/*",
]
Compare = Callable[..., tuple[ExitCode, dict[str, Any]]]


def one_bit(touches: tuple[str, ...]) -> Patch:
    """A patch by which the BF16 kernel's sum has its lowest bit the other way round."""
    lines = (stock_tree(say=lambda _: None).root / SOURCE).read_text().splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(KERNEL))
    at = next(number for number in range(start, len(lines)) if lines[number] == "    *s = sumf;")
    assert lines[at + 1] == "}"
    hunk = [
        f"--- a/{SOURCE}",
        f"+++ b/{SOURCE}",
        f"@@ -{at + 1},2 +{at + 1},5 @@",
        "-    *s = sumf;",
        "+    const float sum = sumf;",
        "+    uint32_t bits;",
        "+    memcpy(&bits, &sum, sizeof bits);",
        "+    bits ^= 1; memcpy(s, &bits, sizeof bits);",
        " }",
    ]
    return Patch("0001-one-bit.patch", "\n".join([*hunk, ""]).encode(), touches)


@pytest.fixture
def compare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compare:
    if not choose_engine(say=lambda _: None).emulated:
        pytest.skip("the profiles of this test are emulated")

    def run(touches: tuple[str, ...], **more: Any) -> tuple[ExitCode, dict[str, Any]]:
        monkeypatch.setattr(prepare, "load_patches", lambda: (one_bit(touches),))
        builds = (more.pop("build", ""), "", "", ())
        words = selection("default", CELLS, PROFILES, *[None] * 3, builds, "", "matrix.yaml")
        code = matrix(words, "", "", "", False, str(tmp_path), **more)
        return code, json.loads((tmp_path / "latest" / "report.json").read_text())

    return run


def test_another_types_kernel_off_by_one_bit_is_exit_1(compare: Compare) -> None:
    code, report = compare(("iq4_xs",), build="stock,patched", compare=True)
    assert code is ExitCode.UNEXPECTED
    assert report["headline"] == "2 controls moved"
    assert report["total"]["outcomes"] == {"pass": 12}, "no cell, taken alone, shows it"
    controls = report["comparisons"][0]["controls"]
    assert controls["types"] == {"bf16": 2, "f16": 2}
    (group,) = controls["moved"]
    assert (group["where"], group["changes"]) == ("ggml.mul_mat bf16 default", ["bytes"])
    assert group["profiles"] == PROFILES


def test_what_the_patch_may_change_is_no_control(compare: Compare) -> None:
    code, report = compare(("bf16",), each_patch=True)
    assert code is ExitCode.AS_EXPECTED
    (comparison,) = report["comparisons"]
    assert comparison["controls"]["moved_cells"] == 0
    assert comparison["controls"]["types"] == {"f16": 2, "iq4_xs": 2}
    assert [group["where"] for group in comparison["changed"]] == ["ggml.mul_mat bf16 default"]
