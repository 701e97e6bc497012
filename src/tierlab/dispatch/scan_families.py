# SPDX-License-Identifier: MIT
"""Families of kernels by the names of their symbols: data, and the one function that reads it."""

from __future__ import annotations

import re

_TIER = re.compile(r"_(neon|sve2?|sme2?)((?:_(?:[a-z]+\d*[a-z]*))*)$")
_TIER_WORD = re.compile(r"(sme2|sme|sve2|sve|i8mm|bf16|fp16|dotprod|dot|neon)")

FAMILIES: tuple[tuple[str, str, str], ...] = (
    # pattern at the name's start, family, how the tier is found in the name ("end", "word", "last" or "")
    (r"kai_(run|kernel)_\w*matmul\w*", "kleidiai matmul", "end"),
    (r"kai_(run|kernel)_\w*(pack|quant)\w*", "kleidiai pack", "end"),
    (r"kai_(run|kernel)_", "kleidiai kernel", "end"),
    (r"ggml_gemm_\w*_generic", "ggml repack gemm generic", ""),
    (r"ggml_gemm_", "ggml repack gemm", ""),
    (r"ggml_gemv_\w*_generic", "ggml repack gemv generic", ""),
    (r"ggml_gemv_", "ggml repack gemv", ""),
    (r"ggml_quantize_mat_", "ggml repack quantize", ""),
    (r"ggml_vec_dot_\w*_generic", "ggml vec_dot generic", ""),
    (r"ggml_vec_dot_", "ggml vec_dot", ""),
    (r"(ggml_)?(de)?quantize_row_", "ggml quantize_row", ""),
    (r"ggml_cpu_(fp|bf)\d+_to_", "ggml convert", ""),
    (r"(_Z\w*)?(llamafile_sgemm|\w*tinyBLAS)", "ggml sgemm", ""),
    (r"ggml_|gguf_|_Z\w*(ggml|gguf)", "ggml other", ""),
    (r"xnn_\w*(gemm|dwconv|conv|spmm|gemv)\w*__", "xnnpack matmul", "word"),
    (r"xnn_\w*__", "xnnpack other kernel", "word"),
    (r"_ZN\w*(arm_gemm|arm_conv)", "arm_gemm", "word"),
    (r"[a-z0-9]+_\w+_(ARMV[89]\w*|NEOVERSE\w+|CORTEX\w+|A64FX|THUNDER\w+|VORTEX\w*)$", "openblas", "last"),
    (r"_Z\w*Mlas\w*Kernel|Mlas\w*Kernel", "mlas kernel", "word"),
)
"""The first line that matches wins. Functions of no family are counted as `other`."""

OTHER, UNNAMED = "other functions", "no symbol"
KLEIDIAI = "kai_"

INTERESTING = re.compile(
    rb"(?<=\0)(?:kai_|ggml_|gguf_|(?:de)?quantize_row_|llamafile_|xnn_|Mlas"
    rb"|_Z[^\0]*?(?:llamafile_sgemm|tinyBLAS|ggml|gguf|arm_gemm|arm_conv|Mlas)"
    rb"|[a-z0-9]+_[a-z0-9_]+_(?:ARMV[89]|NEOVERSE|CORTEX|A64FX|THUNDER|VORTEX))"
)
"""Beginnings of all names of FAMILIES, as they stand in a string table."""

_COMPILED = tuple((re.compile(pattern), family, tier) for pattern, family, tier in FAMILIES)


def family(name: str) -> str:
    """The family of a function, with the tier that its name carries: `kleidiai matmul neon_dotprod`."""
    plain = name.partition(".")[0]  # what compilers append: .constprop.0, .isra.1
    for pattern, title, how in _COMPILED:
        if pattern.match(plain):
            tier = _tier(plain, how)
            return f"{title} {tier}" if tier else title
    return OTHER


def _tier(name: str, how: str) -> str:
    if how == "last":
        return name.rpartition("_")[2].lower()
    if how == "end" and (found := _TIER.search(name)):
        return found.group(0)[1:]
    if how == "word" and (words := _TIER_WORD.findall(name)):
        return str(words[-1])
    return ""
