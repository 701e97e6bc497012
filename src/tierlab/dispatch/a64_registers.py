# SPDX-License-Identifier: MIT
"""General registers, flags and memory of a walk through AArch64 code, and what each instruction does to them.

Vector registers are not followed: no loop of a kernel is counted in one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tierlab.dispatch.a64_values import (
    BINARY,
    MASK,
    UNSET,
    Flags,
    Value,
    add_flags,
    binary,
    bit_field,
    holds,
    logic_flags,
    shifted,
    signed,
    subtract_flags,
    while_flags,
)

if TYPE_CHECKING:
    from tierlab.dispatch.a64_text import Instruction

_GENERAL = re.compile(r"([wx])(\d+|zr)$|(w?sp)$")
_MEMORY = re.compile(r"\[(\w+)(?:,\s*([^\]]+))?\](!?)$")
_NUMBER = re.compile(r"#?(-?(?:0x[0-9a-f]+|\d+))$")
_PREDICATE_FLAGS = re.compile(r"(ptest|cmp\w+|fcm\w+|match|nmatch|brk\w+s|\w+s)$")
_BITS_OF = {"b": 8, "h": 16, "w": 32, "d": 64}
_LOADS = {"ldrb": (8, False), "ldrh": (16, False)} | {
    "ldrsb": (8, True),
    "ldrsh": (16, True),
    "ldrsw": (32, True),
}
_VECTOR_BYTES = {"b": 1, "h": 2, "s": 4, "d": 8, "q": 16}
SP = "sp"


class Registers:
    """The state; `vector_bits` is the length of SVE's registers."""

    def __init__(self, vector_bits: int) -> None:
        self.vector_bits = vector_bits
        self.values: dict[str, Value] = {}
        self.flags: Flags | None = None
        self._memory: dict[tuple[int, int], Value] = {}

    # Operands ---------------------------------------------------------------------------------------

    def read(self, name: str) -> Value:
        """A register's value (`w3` its low half) or a number's (`#12`)."""
        number = _NUMBER.match(name)
        if number:
            return int(number[1], 0) & MASK
        found = _GENERAL.match(name)
        if found is None:
            return None
        if found[2] == "zr":
            return 0
        value = self.values.get(SP if found[3] else f"x{found[2]}")
        return None if value is None else value & _mask(name)

    def write(self, name: str, value: Value) -> None:
        """Set a register; only general ones are followed. A write to `w3` clears the upper half."""
        found = _GENERAL.match(name)
        if found is not None and found[2] != "zr":
            known = None if value is None else value & _mask(name)
            self.values[SP if found[3] else f"x{found[2]}"] = known

    def forget(self, names: tuple[str, ...]) -> None:
        for name in names:
            self.write(name, None)

    def _second(self, operands: tuple[str, ...], at: int, bits: int) -> Value:
        """The operand at `at`, shifted or extended by the one behind it."""
        value = self.read(operands[at])
        return shifted(value, operands[at + 1], bits) if len(operands) > at + 1 else value

    # Instructions -----------------------------------------------------------------------------------

    def execute(self, item: Instruction) -> None:
        """What an instruction that is no branch does to the state; unknown ones make their target unknown."""
        name, operands = item.name, item.operands
        if any(operand.startswith("[") for operand in operands):
            self._memory_access(name, operands)
        elif name in _HANDLERS:
            _HANDLERS[name](self, name, operands)
        elif name in BINARY and len(operands) > 2:
            bits = width(operands[0])
            left, right = self.read(operands[1]), self._second(operands, 2, bits)
            self.write(operands[0], binary(name, left, right, bits))
        elif operands:
            self._unknown(name, operands)

    def _unknown(self, name: str, operands: tuple[str, ...]) -> None:
        self.write(operands[0], None)
        if (operands[0].startswith("p") and _PREDICATE_FLAGS.match(name)) or name.startswith(
            ("fcmp", "fccmp")
        ):
            self.flags = None

    def _add(self, name: str, operands: tuple[str, ...]) -> None:
        """ADDS, SUBS, NEGS, CMP, CMN, and ANDS, BICS, TST."""
        target = "xzr" if name in ("cmp", "cmn", "tst") else operands[0]
        sources = operands if name in ("cmp", "cmn", "tst") else operands[1:]
        if name == "negs":
            sources = ("xzr", *sources)
        bits = width(operands[0])
        left, right = self.read(sources[0]), self._second(sources, 1, bits)
        if name in ("ands", "tst", "bics"):
            result = binary("bic" if name == "bics" else "and", left, right, bits)
            self.flags = logic_flags(result, bits)
        elif name in ("adds", "cmn"):
            result, self.flags = add_flags(left, right, bits)
        else:
            result, self.flags = subtract_flags(left, right, bits)
        self.write(target, result)

    def _move(self, name: str, operands: tuple[str, ...]) -> None:
        value = self._second(operands, 1, width(operands[0]))
        if name == "movk":
            old, shift = self.read(operands[0]), _amount(operands[2:])
            part = self.read(operands[1])
            value = None if old is None or part is None else (old & ~(0xFFFF << shift)) | (part << shift)
        elif name in ("mvn", "movn") and value is not None:
            value = ~value
        elif name == "neg" and value is not None:
            value = -value
        self.write(operands[0], value)

    def _extend(self, name: str, operands: tuple[str, ...]) -> None:
        self.write(operands[0], shifted(self.read(operands[1]), name, 64))

    def _field(self, name: str, operands: tuple[str, ...]) -> None:
        first, count = (int(self.read(operand) or 0) for operand in operands[2:4])
        old, value = self.read(operands[0]), self.read(operands[1])
        self.write(operands[0], bit_field(name, old, value, first, count, width(operands[0])))

    def _multiply(self, name: str, operands: tuple[str, ...]) -> None:
        kind = {"smaddl": "smull", "umaddl": "umull", "smsubl": "smull", "umsubl": "umull"}.get(name, "mul")
        bits = width(operands[0])
        product = binary(kind, self.read(operands[1]), self.read(operands[2]), bits)
        how = "sub" if "sub" in name else "add"
        self.write(operands[0], binary(how, self.read(operands[3]), product, bits))

    def _select(self, name: str, operands: tuple[str, ...]) -> None:
        yes = holds(operands[-1], self.flags)
        if yes is None:
            self.write(operands[0], None)
            return
        if name in ("cset", "csetm"):
            value: Value = (1 if name == "cset" else MASK) if yes else 0
        elif name in ("cinc", "cinv", "cneg"):
            source = self.read(operands[1])
            value = _changed(source, name[1:]) if yes else source
        else:
            other = self.read(operands[2])
            value = self.read(operands[1]) if yes else _changed(other, name[2:])
        self.write(operands[0], value)

    def _conditional_compare(self, name: str, operands: tuple[str, ...]) -> None:
        yes = holds(operands[3], self.flags)
        if yes is None:
            self.flags = None
        elif not yes:
            bits = int(self.read(operands[2]) or 0)
            self.flags = Flags(bool(bits & 8), bool(bits & 4), bool(bits & 2), bool(bits & 1))
        else:
            of = subtract_flags if name == "ccmp" else add_flags
            self.flags = of(self.read(operands[0]), self.read(operands[1]), width(operands[0]))[1]

    def _page(self, name: str, operands: tuple[str, ...]) -> None:
        self.write(operands[0], self.read(operands[1].partition(" ")[0]))

    # Vector lengths ---------------------------------------------------------------------------------

    def _count(self, name: str, operands: tuple[str, ...]) -> None:
        """CNTB and kin, INCB and DECB, over all elements; a pattern other than ALL is not followed."""
        elements = self.vector_bits // _BITS_OF[name[-1]]
        amount: Value = elements
        if len(operands) > 1:
            factor = re.fullmatch(r"mul #(\d+)", operands[-1])
            plain = operands[1] == "all" or (factor is not None and len(operands) == 2)
            amount = elements * int(factor[1] if factor else 1) if plain else None
        if name.startswith("cnt"):
            self.write(operands[0], amount)
        elif _GENERAL.match(operands[0]):
            how = "add" if name.startswith("inc") else "sub"
            self.write(operands[0], binary(how, self.read(operands[0]), amount, 64))

    def _length(self, name: str, operands: tuple[str, ...]) -> None:
        """RDVL, ADDVL, ADDPL."""
        unit = self.vector_bits // (64 if name == "addpl" else 8)
        steps = self.read(operands[-1])
        amount = None if steps is None else signed(steps, 64) * unit
        base: Value = 0 if name == "rdvl" else self.read(operands[1])
        self.write(operands[0], None if base is None or amount is None else base + amount)

    def _while(self, name: str, operands: tuple[str, ...]) -> None:
        size = operands[0].rpartition(".")[2]
        elements = self.vector_bits // {"b": 8, "h": 16, "s": 32, "d": 64}[size]
        first, last = self.read(operands[1]), self.read(operands[2])
        is_signed, bits = name in ("whilelt", "whilele"), width(operands[1])
        self.flags = while_flags(first, last, elements, is_signed, bits)

    # Memory -----------------------------------------------------------------------------------------

    def _memory_access(self, name: str, operands: tuple[str, ...]) -> None:
        at = next(number for number, operand in enumerate(operands) if operand.startswith("["))
        address, behind = self._address(operands, at)
        registers = operands[:at]
        if name.startswith("st"):
            self._store(registers, address, name)
        elif name.startswith("ld"):
            self._load(registers, address, name)
        if behind is not None:
            self.write(*behind)

    def _address(self, operands: tuple[str, ...], at: int) -> tuple[Value, tuple[str, Value] | None]:
        """Where an access goes, and what its base register is afterwards, if that changes."""
        found = _MEMORY.match(operands[at])
        if found is None:
            return None, None
        base = self.read(found[1])
        if len(operands) > at + 1:  # post-indexed
            step = self.read(operands[at + 1])
            return base, (found[1], binary("add", base, step, 64))
        offset = self._offset(found[2] or "#0")
        address = binary("add", base, offset, 64)
        return address, ((found[1], address) if found[3] else None)

    def _offset(self, text: str) -> Value:
        first, _, how = (part.strip() for part in text.partition(","))
        value = self.read(first)
        if how == "mul vl":
            return None  # vectors: nothing is remembered of them
        return shifted(value, how, 64) if how else value

    def _store(self, registers: tuple[str, ...], address: Value, name: str) -> None:
        for register in registers:
            if address is None:
                return
            general = _GENERAL.match(register) is not None
            size = {"strb": 8, "sturb": 8, "strh": 16, "sturh": 16}.get(name, width(register)) // 8
            if not general:
                size = _VECTOR_BYTES.get(register[0], 4 * self.vector_bits // 8)
            for key in [key for key in self._memory if key[0] < address + size and address < sum(key)]:
                del self._memory[key]
            if general:
                self._memory[address, size] = self.read(register)
            address += size

    def _load(self, registers: tuple[str, ...], address: Value, name: str) -> None:
        bits, sign = _LOADS.get(name.replace("ldu", "ld"), (0, False))
        for register in registers:
            if not _GENERAL.match(register):
                return
            size = (bits or width(register)) // 8
            value = None if address is None else self._memory.get((address, size))
            self.write(register, signed(value, bits) if sign and value is not None else value)
            address = None if address is None else address + size


def width(name: str) -> int:
    """32 for `w3`, else 64."""
    return 32 if name.startswith("w") else 64


def _mask(name: str) -> int:
    return (1 << width(name)) - 1


def _amount(rest: tuple[str, ...]) -> int:
    found = re.match(r"lsl #(\d+)", rest[0]) if rest else None
    return int(found[1]) if found else 0


def _changed(value: Value, how: str) -> Value:
    """CSINC, CSINV and CSNEG change what they take when the condition does not hold."""
    if value is None:
        return None
    return {"inc": value + 1, "inv": ~value, "neg": -value}.get(how, value)


def start(vector_bits: int, arguments: tuple[int, ...]) -> Registers:
    """The state in which a function is called with `arguments` in x0, x1, …"""
    made = Registers(vector_bits)
    made.flags = UNSET
    made.values = {f"x{number}": value for number, value in enumerate(arguments)}
    made.values[SP] = 1 << 46
    return made


_HANDLERS = {
    **dict.fromkeys(("adds", "subs", "negs", "cmp", "cmn", "ands", "bics", "tst"), Registers._add),
    **dict.fromkeys(("mov", "movz", "movn", "movk", "mvn", "neg"), Registers._move),
    **dict.fromkeys(("sxtb", "sxth", "sxtw", "uxtb", "uxth", "uxtw"), Registers._extend),
    **dict.fromkeys(("ubfx", "sbfx", "ubfiz", "sbfiz", "bfi", "bfxil"), Registers._field),
    **dict.fromkeys(("madd", "msub", "smaddl", "umaddl", "smsubl", "umsubl"), Registers._multiply),
    **dict.fromkeys(
        ("csel", "csinc", "csinv", "csneg", "cset", "csetm", "cinc", "cinv", "cneg"), Registers._select
    ),
    **dict.fromkeys(("ccmp", "ccmn"), Registers._conditional_compare),
    **dict.fromkeys(("adr", "adrp"), Registers._page),
    **{f"{kind}{size}": Registers._count for kind in ("cnt", "inc", "dec") for size in _BITS_OF},
    **dict.fromkeys(("rdvl", "addvl", "addpl"), Registers._length),
    **dict.fromkeys(("whilelt", "whilelo"), Registers._while),
}
