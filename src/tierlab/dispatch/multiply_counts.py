# SPDX-License-Identifier: MIT
"""Integer multiply-accumulates of one instruction: dot products, matrix products, outer products of bytes.

Only what multiplies bytes with bytes counts: that is where quantised weights meet activations. Products of
scales and corrections by minima use other instructions and are overhead.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tierlab.dispatch.a64_text import Instruction

_DOT = frozenset({"sdot", "udot", "usdot", "sudot"})
_MATRIX = frozenset({"smmla", "ummla", "usmmla"})
_OUTER = frozenset({"smopa", "umopa", "usmopa", "sumopa"})
_ARRANGED = re.compile(r"[vz]\d+\.(\d*)([bhsd])")
_TILE = re.compile(r"za\d+\.s$")


def multiply_accumulates(item: Instruction, vector_bits: int, streaming_bits: int = 0) -> int:
    """How many products of two bytes the instruction adds; 0 for anything else.

    `vector_bits` is the length of SVE's registers. Predicates are taken as all true.
    """
    if item.name in _OUTER:
        lanes = (streaming_bits or vector_bits) // 32
        return 4 * lanes * lanes if _TILE.match(item.operands[0]) and _is_bytes(item.operands[-1]) else 0
    if item.name not in _DOT | _MATRIX or not _is_bytes(item.operands[1]):
        return 0
    found = _ARRANGED.match(item.operands[0])
    if found is None or found[2] != "s":
        return 0
    bits = 32 * int(found[1]) if found[1] else vector_bits
    # A matrix instruction multiplies [2, 8] by [8, 2] in every 128 bits, a dot product four pairs a lane.
    return bits // 128 * 32 if item.name in _MATRIX else bits // 8


def _is_bytes(operand: str) -> bool:
    found = _ARRANGED.match(operand)
    return found is not None and found[2] == "b"
