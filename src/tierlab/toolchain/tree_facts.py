# SPDX-License-Identifier: MIT
"""What a tree's sources say of its kernels, where results alone cannot tell a fault from a way of adding."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

F16_DOT = "src/ggml-cpu/vec.cpp"
_DOT = re.compile(r"^void ggml_vec_dot_f16\(.*?^}", re.MULTILINE | re.DOTALL)


def f16_sums(ggml: Path) -> str:
    """How ggml_vec_dot_f16 adds where SVE is compiled in.

    `wide`: in float32, as it does now; also where the function is not found. `sve`: in binary16 registers of
    the vector length (2025 and 2026). `neon`: there is no SVE code, so in binary16 registers of 128 bits.
    """
    try:
        found = _DOT.search((ggml / F16_DOT).read_text(errors="replace"))
    except OSError:
        # Before vec.cpp (early 2025) the function stood in ggml-cpu.c, without SVE code.
        return "neon" if (ggml / "src" / "ggml-cpu").is_dir() else "wide"
    if found is None or "fma_widened" in found[0]:
        return "wide"
    return "sve" if "__ARM_FEATURE_SVE" in found[0] else "neon"
