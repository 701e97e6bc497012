# SPDX-License-Identifier: MIT
"""The three layers of evidence side by side, and the names of the ways in which they differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tierlab.dispatch.products import FAMILIES

if TYPE_CHECKING:
    from collections.abc import Collection

AGREE = "advertised and executed"
OTHER = "advertised, other family executed"
HYBRID = "hybrid"
SILENT = "no choice advertised"
UNADVERTISED = "executed, not advertised"
NOTHING = "no kernel counted"
UNKNOWN = "family not known"

CLASSES = {
    AGREE: "the program says that it selected a family, and kernels of that family alone ran",
    OTHER: "it says that it selected a family, and kernels of another ran instead",
    HYBRID: "the selected family and another shared one product",
    SILENT: "it says nothing of a choice for this type; what ran is a family that its list of features names",
    UNADVERTISED: "what ran is a family that neither an announcement nor the list of features names",
    NOTHING: "no product kernel ran that can be counted",
    UNKNOWN: "kernels are counted, but nothing tells which instructions they executed",
}
"""Of a row: exactly one."""

UNREACHABLE = "compiled, unreachable"
NOT_COMPILED = "in the CPU, not compiled"

REACH_CLASSES = {
    UNREACHABLE: "the loaded file has kernels of the family, the CPU has the family, and in no row one ran",
    NOT_COMPILED: "the CPU has the family, and the loaded file holds no kernel of it for this type and path",
}
"""Of a profile, type and path over all of its rows: any number of families each."""

ABLE = {
    "asimd": "NEON",
    "dotprod": "DOTPROD",
    "i8mm": "I8MM",
    "sve": "SVE",
    "sme": "SME",
    "sme2": "SME2",
}
"""Features as the probe names them → families."""


@dataclass(frozen=True)
class Layers:
    """Families of instructions by layer; nothing of one layer is inferred from another.

    `choice` is announced for this type (empty: nothing is), `banner` is what the backend lists as its
    features, `executed` what ran: empty if no kernel was counted, None if the instructions are not known.
    """

    choice: str
    banner: tuple[str, ...]
    executed: tuple[str, ...] | None


def divergence(layers: Layers) -> str:
    """The class of one row."""
    if layers.executed is None:
        return UNKNOWN
    ran = set(layers.executed)
    if not ran:
        return NOTHING
    if layers.choice:
        if layers.choice not in ran:
            return OTHER
        return AGREE if len(ran) == 1 else HYBRID
    return SILENT if ran <= {*layers.banner, "NEON", "portable"} else UNADVERTISED


def able(features: Collection[str]) -> tuple[str, ...]:
    """Families that a CPU with these probed features can run, the strongest first."""
    have = {ABLE[name] for name in features if name in ABLE}
    return tuple(family for family in FAMILIES if family in have)


def unreachable(compiled: Collection[str], can: Collection[str], ran: Collection[str]) -> tuple[str, ...]:
    """Families that are compiled and that the CPU has, none of whose kernels ran."""
    return tuple(family for family in FAMILIES if family in compiled and family in can and family not in ran)


def not_compiled(compiled: Collection[str], can: Collection[str]) -> tuple[str, ...]:
    """Families that the CPU has beyond Advanced SIMD and that are not compiled.

    SME stands for SME2 too: a kernel of either uses the unit.
    """
    have = {"SME" if family == "SME2" else family for family in compiled}
    wanted = {"SME" if family == "SME2" else family for family in can} - {"NEON"}
    return tuple(family for family in FAMILIES if family in wanted and family not in have)
