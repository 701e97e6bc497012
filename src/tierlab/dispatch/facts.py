# SPDX-License-Identifier: MIT
"""The facts of one product, as the rules ask for them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tierlab.dispatch.conditions import Facts

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

SME_VARIABLE, HINT_VARIABLE = "GGML_KLEIDIAI_SME", "GGML_TOTAL_THREADS"
UNSET = -1
_LARGEST = 2**31 - 1
_MULTIPLIER = 4
"""Chunks a thread, unless GGML_KLEIDIAI_CHUNK_MULTIPLIER says otherwise."""


def facts_of(
    *,
    kind: str,
    path: str,
    own: bool,
    columns: int,
    rows: int,
    threads: int,
    cpu: Collection[str],
    built: Collection[str],
    vector_bits: int,
    streaming_bits: int,
    environment: Mapping[str, str],
) -> Facts:
    """Facts of a product of `rows` weight rows and `columns` activation rows. Lengths in bits, 0 for none."""
    hint = whole_number(environment.get(HINT_VARIABLE))
    numbers = {
        "columns": columns,
        "rows": rows,
        "rows_mod_8": rows % 8,
        "threads": threads,
        "rows_per_thread": max(1, rows // threads),
        "cap": 0,
        "cap_asked": whole_number(environment.get(SME_VARIABLE)),
        "hint": max(hint, 0),
        "chunks": chunks(rows, threads, streaming_bits),
        "vector_bits": vector_bits,
        "streaming_bits": streaming_bits,
    }
    return Facts(kind, path, own, frozenset(cpu), frozenset(built), numbers)


def chunks(rows: int, threads: int, streaming_bits: int) -> int:
    """Pieces into which KleidiAI cuts the weight rows of a product that SME and another slot share.

    Pieces are a multiple of the step of both kernels: four streaming vectors of float32 for the SME kernels
    of Q4_0 and Q8_0 (`4vl` in their names), which four, the step of the others, divides.
    """
    step = max(streaming_bits // 8, 4)
    pieces = threads * _MULTIPLIER if threads > 1 else 1
    size = math.ceil(math.ceil(rows / pieces) / step) * step
    return math.ceil(rows / size)


def whole_number(text: str | None) -> int:
    """The number in a variable as ggml's KleidiAI code reads it; UNSET where it ignores the text."""
    if text is None or not text.strip().removeprefix("+").isdecimal() or text != text.rstrip():
        return UNSET
    value = int(text)
    return value if value <= _LARGEST else UNSET
