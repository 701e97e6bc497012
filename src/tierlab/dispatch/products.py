# SPDX-License-Identifier: MIT
"""Kernels that multiply: which counted functions they are, and the family of instructions they belong to."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tierlab.dispatch.expected import plain_names

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

PRODUCTS = ("kai_run_matmul", "ggml_gemm_", "ggml_gemv_", "ggml_vec_dot_", "llamafile_sgemm", "tiled_run")
"""Parts of the names of functions that multiply; packing and quantising are no products."""

FAMILIES = ("SME2", "SME", "SVE", "I8MM", "DOTPROD", "NEON", "portable")
"""The strongest first. `NEON` needs nothing beyond Advanced SIMD (and half precision), `portable` is C."""

FAMILY_OF_CLASS = {
    "sme2": "SME2",
    "sme": "SME",
    "sve2": "SVE",
    "sve": "SVE",
    "i8mm": "I8MM",
    "dotprod": "DOTPROD",
    "bf16": "NEON",
    "fp16": "NEON",
    "neon": "NEON",
}
"""Instruction class → family. BF16 kernels of Advanced SIMD are NEON here: nothing is chosen by them."""

GENERIC = "_generic"
"""End of the name of ggml's portable twin of a kernel."""

_KLEIDIAI = re.compile(r"kai_run_matmul_\w*?_(sme2|sme|sve|neon)(_\w+)?$")
_OF_NEON = (("i8mm", "I8MM"), ("dotprod", "DOTPROD"))


def product_kernels(ran: Mapping[str, int]) -> dict[str, int]:
    """Exact calls of the product kernels of a receipt, under the names that the source has."""
    kernels: dict[str, int] = {}
    for counted, calls in sorted(ran.items()):
        name = next((plain for plain in plain_names(counted) if multiplies(plain)), "")
        if name:
            kernels[name] = kernels.get(name, 0) + calls
    return kernels


def multiplies(name: str) -> bool:
    """Whether a function of that name is a product kernel."""
    return any(part in name for part in PRODUCTS)


def family_of_name(name: str) -> str:
    """The family that a kernel's name states, or nothing: KleidiAI's names do, ggml's do not."""
    if name.endswith(GENERIC):
        return "portable"
    match = _KLEIDIAI.match(name)
    if match is None:
        return ""
    if match[1] != "neon":
        return "SVE" if match[1] == "sve" else match[1].upper()
    return next((family for word, family in _OF_NEON if word in (match[2] or "")), "NEON")


def strongest(classes: Collection[str]) -> str:
    """The family of a function in which these instruction classes occur; `portable` for none."""
    found = {FAMILY_OF_CLASS[name] for name in classes}
    return next((family for family in FAMILIES if family in found), "portable")


def in_order(families: Iterable[str]) -> tuple[str, ...]:
    """Each family once, the strongest first."""
    have = set(families)
    return tuple(family for family in FAMILIES if family in have)
