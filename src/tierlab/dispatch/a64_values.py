# SPDX-License-Identifier: MIT
"""Integer arithmetic of AArch64 on values that may be unknown: enough to follow a kernel's loop counters.

A value is an unsigned number below 2**64, or None where it depends on what a kernel reads from memory.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

Value = int | None
MASK = (1 << 64) - 1

_EXTENDS = {"uxtb": (8, False), "uxth": (16, False), "uxtw": (32, False), "uxtx": (64, False)} | {
    "sxtb": (8, True),
    "sxth": (16, True),
    "sxtw": (32, True),
    "sxtx": (64, True),
}
_SHIFT = re.compile(r"(lsl|lsr|asr|ror|[us]xt[bhwx])(?:\s+#(\d+))?$")


class Flags(NamedTuple):
    """N, Z, C and V of the processor's state."""

    negative: bool
    zero: bool
    carry: bool
    overflow: bool


UNSET = Flags(False, False, False, False)
CONDITIONS: dict[str, Callable[[Flags], bool]] = {
    "eq": lambda f: f.zero,
    "ne": lambda f: not f.zero,
    "hs": lambda f: f.carry,
    "cs": lambda f: f.carry,
    "lo": lambda f: not f.carry,
    "cc": lambda f: not f.carry,
    "mi": lambda f: f.negative,
    "pl": lambda f: not f.negative,
    "vs": lambda f: f.overflow,
    "vc": lambda f: not f.overflow,
    "hi": lambda f: f.carry and not f.zero,
    "ls": lambda f: not f.carry or f.zero,
    "ge": lambda f: f.negative == f.overflow,
    "lt": lambda f: f.negative != f.overflow,
    "gt": lambda f: not f.zero and f.negative == f.overflow,
    "le": lambda f: f.zero or f.negative != f.overflow,
    "al": lambda f: True,
    # What SVE calls them after a WHILE or PTEST.
    "first": lambda f: f.negative,
    "nfrst": lambda f: not f.negative,
    "any": lambda f: not f.zero,
    "none": lambda f: f.zero,
    "last": lambda f: not f.carry,
    "nlast": lambda f: f.carry,
}


def holds(condition: str, flags: Flags | None) -> bool | None:
    """Whether a branch with this condition is taken; None if the flags are unknown."""
    return None if flags is None else CONDITIONS[condition](flags)


def signed(value: int, bits: int) -> int:
    """The two's complement number of the lowest `bits`."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def shifted(value: Value, how: str, bits: int) -> Value:
    """A second operand after its shift or extension: `lsl #2`, `sxtw #3`."""
    found = _SHIFT.match(how)
    if value is None or found is None:
        return None
    kind, amount = found[1], int(found[2] or 0)
    if kind in _EXTENDS:
        width, sign = _EXTENDS[kind]
        value = signed(value, width) if sign else value & ((1 << width) - 1)
        return (value << amount) & MASK
    value &= (1 << bits) - 1
    match kind:
        case "lsl":
            return (value << amount) & MASK
        case "lsr":
            return value >> amount
        case "asr":
            return (signed(value, bits) >> amount) & MASK
    return ((value >> amount) | (value << (bits - amount))) & ((1 << bits) - 1)


def add_flags(left: Value, right: Value, bits: int, carry: int = 0) -> tuple[Value, Flags | None]:
    """Sum and flags of an addition; a subtraction adds the complement with a carry."""
    if left is None or right is None:
        return None, None
    mask = (1 << bits) - 1
    left, right = left & mask, right & mask
    whole = left + right + carry
    result = whole & mask
    exact = signed(left, bits) + signed(right, bits) + carry
    flags = Flags(bool(result >> (bits - 1)), result == 0, whole > mask, signed(result, bits) != exact)
    return result, flags


def subtract_flags(left: Value, right: Value, bits: int) -> tuple[Value, Flags | None]:
    """Difference and flags, as SUBS and CMP give them."""
    return add_flags(left, None if right is None else ~right, bits, 1)


def logic_flags(value: Value, bits: int) -> Flags | None:
    """Flags of ANDS and TST."""
    if value is None:
        return None
    value &= (1 << bits) - 1
    return Flags(bool(value >> (bits - 1)), value == 0, False, False)


def while_flags(first: Value, last: Value, elements: int, is_signed: bool, bits: int) -> Flags | None:
    """Flags of WHILELT and WHILELO over `elements` lanes: is the first lane active, any, not the last?"""
    if first is None or last is None:
        return None
    mask = (1 << bits) - 1
    first, last = first & mask, last & mask
    if is_signed:
        first, last = signed(first, bits), signed(last, bits)
    return Flags(first < last, first >= last, first + elements > last, False)


def _arithmetic(name: str, a: int, b: int, bits: int) -> Value:
    mask = (1 << bits) - 1
    match name:
        case "add":
            return a + b
        case "sub":
            return a - b
        case "and":
            return a & b
        case "orr":
            return a | b
        case "eor":
            return a ^ b
        case "bic":
            return a & ~b
        case "orn":
            return a | (~b & mask)
        case "eon":
            return a ^ (~b & mask)
        case "mul":
            return a * b
        case "mneg":
            return -(a * b)
        case "lsl":
            return (a & mask) << (b % bits)
        case "lsr":
            return (a & mask) >> (b % bits)
        case "asr":
            return signed(a, bits) >> (b % bits)
        case "smull":
            return signed(a, 32) * signed(b, 32)
        case "umull":
            return (a & 0xFFFFFFFF) * (b & 0xFFFFFFFF)
        case "udiv":
            return (a & mask) // (b & mask) if b & mask else 0
        case "sdiv":
            return _toward_zero(signed(a, bits), signed(b, bits))
    return None


def _toward_zero(a: int, b: int) -> int:
    if b == 0:
        return 0
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


BINARY = frozenset(
    {
        *("add", "sub", "mul", "mneg", "smull", "umull", "udiv", "sdiv"),
        *("and", "orr", "eor", "bic", "orn", "eon", "lsl", "lsr", "asr"),
    }
)


def binary(name: str, a: Value, b: Value, bits: int) -> Value:
    """The result of a two-operand instruction of BINARY, cut to `bits`."""
    if a is None or b is None:
        return None
    result = _arithmetic(name, a, b, bits)
    return None if result is None else result & ((1 << bits) - 1)


def bit_field(name: str, old: Value, value: Value, first: int, width: int, bits: int) -> Value:
    """UBFX, SBFX, UBFIZ, SBFIZ, BFI, BFXIL: `first` is lsb, `width` the number of bits."""
    if value is None or (old is None and name in ("bfi", "bfxil")):
        return None
    ones = (1 << width) - 1
    mask = (1 << bits) - 1
    if name in ("ubfx", "sbfx"):
        part = (value >> first) & ones
        return (signed(part, width) if name == "sbfx" else part) & mask
    if name in ("ubfiz", "sbfiz"):
        part = value & ones
        return ((signed(part, width) if name == "sbfiz" else part) << first) & mask
    if name == "bfi":
        return ((int(old or 0) & ~(ones << first)) | ((value & ones) << first)) & mask
    return ((int(old or 0) & ~ones) | ((value >> first) & ones)) & mask
