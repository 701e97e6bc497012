# SPDX-License-Identifier: MIT
"""What the lab says that a `-march` compiles in, asked of the image's compiler."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tierlab.cells.march import BASES, EXTENSIONS, march_features
from tierlab.toolchain.choose import choose_engine

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.engine

MACROS = {
    "DOTPROD": "dotprod",
    "FP16_VECTOR_ARITHMETIC": "fp16",
    "MATMUL_INT8": "i8mm",
    "BF16_VECTOR_ARITHMETIC": "bf16",
    "SVE": "sve",
    "SVE2": "sve2",
    "SME": "sme",
    "SME2": "sme2",
}
MARCHES = (
    *BASES,
    *(f"armv8-a+{extension}" for extension in EXTENSIONS),
    *("armv8.2-a+dotprod+fp16+sve", "armv9.2-a+nosve", "armv9-a+nofp16", "armv8.6-a+sve2+nosve2"),
    *("armv8.6-a+noi8mm", "armv8-a+lse+crypto", "armv9.2-a+sme2+nosme"),
)


def test_the_table_says_what_the_compiler_says(tmp_path: Path) -> None:
    engine = choose_engine(say=lambda _: None)
    engine.prepare()
    ask = "for m in $0 $@; do echo march $m; echo | aarch64-linux-gnu-gcc -march=$m -dM -E -x c -; done"
    log = tmp_path / "macros.log"
    assert engine.run(["sh", "-c", ask, *MARCHES], mounts=[], env={}, workdir="/", log=log) == 0
    said: dict[str, set[str]] = {}
    march = ""
    for line in log.read_text().splitlines():
        if line.startswith("march "):
            march = line.removeprefix("march ")
            said[march] = set()
        elif (found := re.fullmatch(r"#define __ARM_FEATURE_(\w+) 1", line)) and found[1] in MACROS:
            said[march].add(MACROS[found[1]])
    assert set(said) == set(MARCHES)
    assert {march: march_features(march) for march in MARCHES} == said
