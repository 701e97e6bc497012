# SPDX-License-Identifier: MIT
"""Families of instructions that kernels executed, from the receipt of one cell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tierlab.dispatch.expected import plain_names
from tierlab.dispatch.instruction_classes import CLASSES
from tierlab.dispatch.products import GENERIC, family_of_name, in_order, strongest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_ENTRY, _CODE = "kai_run_", "kai_kernel_"
"""KleidiAI's C function and the assembly that it calls: one kernel."""


@dataclass(frozen=True)
class Ran:
    """Product kernels of one cell: family of each, and all instruction classes that they executed.

    `classes` is None where nothing records executed instructions (real hardware): then a family is known only
    where a name states it. `misnamed` are kernels whose instructions are of another family than their name
    says: (name, family executed).
    """

    families: Mapping[str, str]
    classes: tuple[str, ...] | None
    misnamed: tuple[tuple[str, str], ...] = ()

    @property
    def known(self) -> bool:
        """Whether every kernel's family is known."""
        return all(self.families.values())

    @property
    def together(self) -> tuple[str, ...] | None:
        """The families that ran, the strongest first; None if one is not known."""
        return in_order(self.families.values()) if self.known else None


def ran(kernels: Iterable[str], executed: Mapping[str, Iterable[str]] | None) -> Ran:
    """`kernels` are plain names of product kernels; `executed` maps counted functions to executed classes."""
    names = tuple(kernels)
    if executed is None:
        return Ran({name: family_of_name(name) for name in names}, None)
    by_name: dict[str, set[str]] = {}
    for counted, classes in executed.items():
        for plain in plain_names(counted):
            by_name.setdefault(plain.replace(_CODE, _ENTRY, 1), set()).update(classes)
    families: dict[str, str] = {}
    misnamed = []
    for name in names:
        if f"{name}{GENERIC}" in names and not by_name.get(name):
            continue  # it only hands its work to its portable twin
        seen = strongest(by_name.get(name, ()))
        said = family_of_name(name)
        families[name] = "portable" if said == "portable" else seen
        if said not in ("", "portable", seen):
            misnamed.append((name, seen))
    union = {item for name in names for item in by_name.get(name, ())}
    return Ran(families, tuple(item for item in CLASSES if item in union), tuple(misnamed))
