# SPDX-License-Identifier: MIT
"""Kernel functions that a shared object names: what call counting can see at all.

A receipt is only as good as this list: a kernel whose symbol is missing (stripped, inlined, renamed) cannot
have a count, and its absence from a receipt proves nothing.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import Symbol, SymbolTableSection

from tierlab.errors import BuildError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

KERNEL_PATTERNS = (
    "kai_run_*",
    "kai_kernel_*",
    "ggml_gemm_*",
    "ggml_gemv_*",
    "_ZL*ggml_gemm_*",
    "_ZL*ggml_gemv_*",
    "ggml_vec_dot_*",
    "ggml_quantize_mat_*",
    "ggml_cpu_fp32_to_*",
    "quantize_row_*",
    "llamafile_sgemm*",
    "_Z*llamafile_sgemm*",
    "_Z*tiled_run_microtile*",
)
"""Shell patterns of the symbols under counting; `kernels/harness/counters_patterns.inc` holds the same."""

EXECUTABLE = 0x4
"""SHF_EXECINSTR of the ELF specification."""

FUNCTION_TYPES = frozenset({"STT_FUNC", "STT_NOTYPE", "STT_GNU_IFUNC", "STT_LOOS"})
"""Hand-written assembly may leave its functions untyped; pyelftools calls an IFUNC by its number's name."""

NOT_CALLED = (".cold", ".resolver")
"""Parts of a name that the compiler gives to code that is not the kernel: split-off code, version pickers."""


def is_kernel(name: str, patterns: Iterable[str] = KERNEL_PATTERNS) -> bool:
    """Whether a symbol of that name is counted."""
    wanted = any(fnmatchcase(name, pattern) for pattern in patterns)
    return wanted and not any(part in name for part in NOT_CALLED)


def kernel_symbols(path: Path, patterns: Iterable[str] = KERNEL_PATTERNS) -> frozenset[str]:
    """Names of the kernel functions that an ELF file defines, static ones included.

    Raises BuildError if the file is no ELF file, has no symbol table, or names no kernel: a probe that can
    see nothing must say so rather than report that nothing ran.
    """
    wanted = tuple(patterns)
    try:
        with path.open("rb") as stream:
            names = frozenset(name for name in _function_names(ELFFile(stream)) if is_kernel(name, wanted))
    except (OSError, ELFError) as problem:
        msg = f"{path}: the symbols cannot be read ({problem}); no receipt is possible. Build it again"
        raise BuildError(msg) from problem
    if not names:
        msg = (
            f"{path}: its symbol table names no kernel function, so nothing that runs in it can be counted. "
            "Build it without stripping, or name the right file"
        )
        raise BuildError(msg)
    return names


def _function_names(elf: ELFFile) -> Iterator[str]:
    table = elf.get_section_by_name(".symtab") or elf.get_section_by_name(".dynsym")
    if not isinstance(table, SymbolTableSection):
        return
    code = {index for index, section in enumerate(elf.iter_sections()) if section["sh_flags"] & EXECUTABLE}
    for symbol in table.iter_symbols():
        if _is_function(symbol, code):
            yield symbol.name


def _is_function(symbol: Symbol, code: set[int]) -> bool:
    named = bool(symbol.name) and not symbol.name.startswith("$")  # $x, $d: marks of code and data
    return named and symbol["st_info"]["type"] in FUNCTION_TYPES and symbol["st_shndx"] in code
