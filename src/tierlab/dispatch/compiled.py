# SPDX-License-Identifier: MIT
"""What is compiled into a backend: its product kernels by name, and the instructions in each of them.

This is the static layer. It is read from the file and from nothing else, and it says nothing of what ran.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import numpy as np

from tierlab.dispatch.elf_reader import DamagedError, Window, read_elf
from tierlab.dispatch.elf_symbols import read_functions
from tierlab.dispatch.expected import plain_names
from tierlab.dispatch.instruction_classes import CLASSES, class_counts
from tierlab.dispatch.products import FAMILY_OF_CLASS, family_of_name, in_order, multiplies
from tierlab.dispatch.scan_families import INTERESTING
from tierlab.errors import BuildError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from tierlab.dispatch.elf_reader import Elf
    from tierlab.dispatch.elf_symbols import Functions

LENGTH_READERS = ((0xFFFFF800, 0x04BF5000), (0xFFE0F800, 0x04205000), (0xFF30FC00, 0x0420E000))
"""RDVL, ADDVL and CNTB to CNTD (mask, value): SVE instructions that ask for the vector length and compute no
product. A function that asks and then runs Advanced SIMD is no SVE kernel."""

CANDIDATES: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("kleidiai", "q4_0"): ("kai_run_matmul_*_qsi4c32p*",),
    ("kleidiai", "q8_0"): ("kai_run_matmul_*_qsi8cxp*",),
    ("kleidiai", "f32"): ("kai_run_matmul_*_f32p2vlx1b*",),
    ("default", "f16"): ("ggml_vec_dot_f16", "kai_run_matmul_*_bf16p2vlx2_bf16p2vlx2_*"),
}
"""(path, type) → the kernels that could serve it, where their names do not follow the type's."""

BY_PATH: Mapping[str, tuple[str, ...]] = {
    "repack": ("ggml_gemm_{type}_*", "ggml_gemv_{type}_*"),
    "default": ("ggml_vec_dot_{type}_{codes}", "ggml_vec_dot_{type}"),
    "kleidiai": ("kai_run_matmul_*_{type}p*",),
}


@dataclass(frozen=True)
class Compiled:
    """Product kernels of one file: name → instructions of each class in its code (length readers left out).

    The code of a KleidiAI kernel may lie in a function of its own (`kai_kernel_*`); its family is its name's.
    """

    file: str
    kernels: Mapping[str, Mapping[str, int]]

    def code_of(self, name: str) -> tuple[str, ...]:
        """Families of one kernel: by its name where that tells, else every family that its code holds.

        Advanced SIMD beside something stronger is no family of its own; code without any is `portable`.
        """
        if said := family_of_name(name):
            return (said,)
        classes = [key for key, count in self.kernels.get(name, {}).items() if count]
        found = in_order(FAMILY_OF_CLASS[key] for key in classes)
        return tuple(family for family in found if family != "NEON") or found or ("portable",)

    def candidates(self, path: str, kind: str, names: Mapping[str, str]) -> tuple[str, ...]:
        """The compiled kernels that could serve the type on that path; portable twins are left out."""
        patterns = CANDIDATES.get((path, kind)) or tuple(each.format_map(names) for each in BY_PATH[path])
        return tuple(
            name
            for name in sorted(self.kernels)
            if any(fnmatchcase(name, pattern) for pattern in patterns) and family_of_name(name) != "portable"
        )

    def families(self, path: str, kind: str, names: Mapping[str, str]) -> tuple[str, ...]:
        """Families of those kernels; one whose code has no vector instruction hands its work to its twin."""
        found = {family for name in self.candidates(path, kind, names) for family in self.code_of(name)}
        return in_order(found - {"portable"})


def compiled(path: Path) -> Compiled:
    """Read a backend. BuildError if it cannot be read or names no product kernel."""
    try:
        with path.open("rb") as stream:
            elf = read_elf(Window(stream, 0, path.stat().st_size))
            kernels = _kernels(elf, read_functions(elf, INTERESTING))
    except (OSError, DamagedError) as error:
        msg = (
            f"{path}: what is compiled into it cannot be read ({error}); nothing is recorded. Build it again"
        )
        raise BuildError(msg) from error
    if not kernels:
        msg = (
            f"{path}: its symbol table names no product kernel, so nothing can be said of what is compiled "
            "into it; nothing is recorded. Build it without stripping"
        )
        raise BuildError(msg)
    return Compiled(path.name, kernels)


def _kernels(elf: Elf, functions: Functions) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    code = {part.index: part for part in elf.code}
    for at in np.flatnonzero(functions.name > 0).tolist():
        name = plain_names(functions.names[int(functions.name[at])])[0]
        if not multiplies(name):
            continue
        part = code[int(functions.section[at])]
        size = int(functions.size[at]) // 4 * 4
        words = np.frombuffer(elf.window.read(part.offset + int(functions.start[at]), size), "<u4")
        counts = class_counts(words[~reads_length(words)])
        old = found.get(name, dict.fromkeys(CLASSES, 0))
        found[name] = {key: old[key] + counts[key] for key in CLASSES}
    return found


def reads_length(words: np.ndarray) -> np.ndarray:
    """bool array: which instruction words only ask for the vector length."""
    hits = np.zeros(words.shape, np.bool_)
    for mask, value in LENGTH_READERS:
        hits |= (words & np.uint32(mask)) == np.uint32(value)
    return hits


def class_totals(kernels: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Sum over kernels, class by class."""
    totals = dict.fromkeys(CLASSES, 0)
    for counts in kernels:
        for key, count in counts.items():
            totals[key] += count
    return totals
