# SPDX-License-Identifier: MIT
"""Which operands and which rounding counts a cell is judged by.

The default and repack paths have one scheme a type. KleidiAI has several for one type, and takes F16
products of the default path too; which one ran is read from the kernel symbols that were called.
Two are accepted at once only where the dispatch rule splits the columns of one product between two
kernels (hybrid: more threads than the SME cap, at least 128 rows); then every element must satisfy one
of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tierlab.errors import HarnessError
from tierlab.judge.budget import Counts, counts
from tierlab.oracle.formats import format_of
from tierlab.oracle.product import Operands

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

HYBRID_ROWS = 128
"""KleidiAI splits a product between SME and NEON only from this many activation rows on."""
HALF_VARIANTS = ("armv8.2_2", "apple_m1", "apple_m2_m3", "apple_m4")
"""Backend variants compiled with FP16 vector arithmetic and without SVE: F16 dot products sum in binary16."""


class MixedKernelsError(HarnessError):
    """Kernels of two operand schemes ran where the dispatch rule allows one."""


@dataclass(frozen=True)
class Scheme:
    """One way to compute a product: its operands and where its rounding counts stand."""

    operands: Operands
    family: str
    name: str

    @property
    def counts(self) -> Counts:
        return counts(self.family, self.name)

    def counts_with(self, lam: float | None) -> Counts:
        """The counts with another lambda than that of roundings.yaml (None: that one)."""
        return self.counts if lam is None else replace(self.counts, lam=lam)


@dataclass(frozen=True)
class Machine:
    """What decides on a scheme: architecture, loaded variant and features, as the hello names them.

    `compiled` are the features that the loaded backend was compiled for, None where only its name is known.
    `f16_sums` says how the tree's F16 dot product adds where SVE is compiled in: `wide` (in float32), or
    `neon` (it has no SVE code and adds in binary16, as without SVE).
    """

    arch: str
    variant: str
    features: frozenset[str]
    sme_threads: int = 1
    compiled: frozenset[str] | None = None
    f16_sums: str = "wide"

    @property
    def half_sums(self) -> bool:
        """Whether ggml's F16 dot product sums in binary16 here."""
        if self.arch != "aarch64":
            return False
        if self.variant != "static" and self.compiled is None:
            return any(name in self.variant for name in HALF_VARIANTS)
        compiled = self.features if self.compiled is None else self.compiled
        return "fp16" in compiled and ("sve" not in compiled or self.f16_sums == "neon")


KLEIDIAI_SYMBOLS: tuple[tuple[str, str, Operands], ...] = (
    ("_f16p", "f16p", Operands("f16", "f16_product")),
    ("_qsi8d32p", "qsi8d32p", Operands("q8_0")),
    ("_qai8dxp", "qai8dxp", Operands("qai8dx", "row_int8")),
    ("_bf16p", "bf16p", Operands("bf16", "bf16")),
    ("_f32_f32p", "f32p", Operands("f32")),
    ("_f32p", "f32p", Operands("f32")),
)
"""Left-hand packing named in a KleidiAI matmul symbol -> counts and operands, the more specific first."""


def schemes(
    path: str,
    weight_type: str,
    machine: Machine,
    *,
    op: str = "mul_mat",
    m: int,
    threads: int = 1,
    activation_type: str = "f32",
    ran: Mapping[str, int] | None = None,
) -> tuple[Scheme, ...]:
    """The schemes one of which every element must satisfy; more than one only for a hybrid product.

    `ran` are the counted kernel calls of the cell, None where call counting is off: then KleidiAI's
    dispatch rule decides. MixedKernelsError if kernels of two schemes ran where the rule allows one.
    """
    weight_type = weight_type.lower()
    kai = kleidiai_kernels(ran) if ran is not None else _predicted(path, weight_type, machine, op, m, threads)
    found = tuple(dict.fromkeys(_kleidiai(symbol) for symbol in kai))
    if not found:
        return (_own(path, weight_type, machine, activation_type),)
    if len(found) > 1 and not (m >= HYBRID_ROWS and threads > machine.sme_threads):
        names = ", ".join(sorted(kai))
        msg = (
            f"kernels of {len(found)} operand schemes ran in one product of {m} rows on {threads} threads "
            f"({names}); KleidiAI's dispatch rule allows one, so the answer cannot be judged"
        )
        raise MixedKernelsError(msg)
    return found


def kleidiai_kernels(ran: Mapping[str, int]) -> tuple[str, ...]:
    """The KleidiAI matmul kernels that were called."""
    return tuple(s for s, calls in ran.items() if calls and "kai_" in s and "matmul_clamp" in s)


def _kleidiai(symbol: str) -> Scheme:
    left = symbol.partition("matmul_clamp_f32")[2]
    for token, name, operands in KLEIDIAI_SYMBOLS:
        if left.startswith(token):
            return Scheme(operands, "kleidiai", name)
    msg = f"no operand scheme is known for the KleidiAI kernel '{symbol}'; add it to judge/scheme.py"
    raise HarnessError(msg)


def _own(path: str, weight_type: str, machine: Machine, activation_type: str) -> Scheme:
    """ggml's own kernels: vec_dot, or the repacked ones, on the type's partner format."""
    partner = format_of(weight_type).partner
    if path == "repack":
        return Scheme(Operands(partner), "repack", weight_type)
    family = "vec_dot" if machine.arch == "aarch64" else "generic"
    if weight_type == "f16" and machine.half_sums:
        return Scheme(Operands("f16", half_chain=True), family, "f16_half")
    if weight_type == "f32" and activation_type != "f32":
        # ggml widens F16 and BF16 activations exactly.
        return Scheme(Operands("f32"), family, "f32")
    return Scheme(Operands(partner), family, weight_type)


def _predicted(
    path: str, weight_type: str, machine: Machine, op: str, m: int, threads: int
) -> Collection[str]:
    """The kernels that KleidiAI's rules choose, for harnesses without call counting."""
    if op != "mul_mat" or machine.arch != "aarch64":
        return ()
    sme2 = "sme2" in machine.features
    if path == "default":
        return ("kai_matmul_clamp_f32_bf16p",) if weight_type == "f16" and sme2 and m > 1 else ()
    if path != "kleidiai":
        return ()
    if weight_type == "q8_0":
        return ("kai_matmul_clamp_f32_qai8dxp",)
    if weight_type == "f32":
        return ("kai_matmul_clamp_f32_f32p",)
    if weight_type != "q4_0" or "dotprod" not in machine.features:
        return ()
    sme, neon = "kai_matmul_clamp_f32_f16p", "kai_matmul_clamp_f32_qsi8d32p"
    if not sme2 or m == 1:
        return (neon,)
    if threads <= machine.sme_threads:
        return (sme,)
    return (sme, neon) if m >= HYBRID_ROWS else (neon,)


def machine_of(
    arch: str,
    variant: str,
    features: Collection[str],
    *,
    compiled: frozenset[str] | None = None,
    f16_sums: str = "wide",
) -> Machine:
    """A Machine from the fields of a hello, and what else is known of the build."""
    return Machine(arch, variant, frozenset(features), compiled=compiled, f16_sums=f16_sums)
