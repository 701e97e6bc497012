# SPDX-License-Identifier: MIT
"""Disassembled AArch64 functions: what `llvm-objdump -d` prints, as values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

OBJDUMP = ("--disassemble", "--no-show-raw-insn", "--no-print-imm-hex")
"""Options by which a disassembler prints what is read here."""

_HEAD = re.compile(r"([0-9a-f]+) <(.+)>:$")
_LINE = re.compile(r"\s*([0-9a-f]+):\s+(\S+)(?:\s+(.*))?$")
_TARGET = re.compile(r"0x([0-9a-f]+)(?: <([^>]*)>)?$")
_CONDITION = re.compile(r"bc?\.(\w+)")
_PLT = "@plt"


@dataclass(frozen=True)
class Instruction:
    """One instruction; `operands` are split at the commas outside of brackets."""

    address: int
    name: str
    operands: tuple[str, ...]

    @property
    def text(self) -> str:
        return f"{self.name} {', '.join(self.operands)}".strip()

    @property
    def condition(self) -> str:
        """`ne` of `b.ne`; empty for anything else."""
        found = _CONDITION.fullmatch(self.name)
        return found[1] if found else ""

    @property
    def is_conditional(self) -> bool:
        return bool(self.condition) or self.name in ("cbz", "cbnz", "tbz", "tbnz")

    @property
    def is_call(self) -> bool:
        return self.name in ("bl", "blr", "blraa", "blrab", "blraaz", "blrabz")

    @property
    def is_return(self) -> bool:
        return self.name in ("ret", "retaa", "retab")

    @property
    def ends_block(self) -> bool:
        return (
            self.is_conditional
            or self.is_call
            or self.is_return
            or self.name in ("b", "br", "braaz", "brabz")
        )

    @property
    def target(self) -> int | None:
        """The address that a direct branch or call goes to."""
        found = self._target()
        return int(found[1], 16) if found else None

    @property
    def target_name(self) -> str:
        """The symbol of a branch's target, without the mark of the procedure linkage table."""
        found = self._target()
        return (found[2] or "").removesuffix(_PLT) if found else ""

    def _target(self) -> re.Match[str] | None:
        if not self.ends_block or not self.operands:
            return None
        return _TARGET.match(self.operands[-1])


@dataclass(frozen=True)
class Function:
    """A function's instructions in the order of their addresses."""

    name: str
    code: tuple[Instruction, ...]

    @property
    def entry(self) -> int:
        return self.code[0].address


class Program:
    """The functions of one file. Of two of one name (static ones) the first is found by it."""

    def __init__(self, functions: Iterable[Function]) -> None:
        self.by_name: dict[str, Function] = {}
        self.by_address: dict[int, Function] = {}
        for function in functions:
            self.by_name.setdefault(function.name, function)
            if not function.name.endswith(_PLT):
                self.by_address[function.entry] = function

    def called(self, call: Instruction) -> Function | None:
        """The function that a direct branch or a stub of the linkage table goes to; None: not in this file.

        A name of several static functions is no guide, so the address comes first.
        """
        return self.by_address.get(call.target or 0) or self.by_name.get(call.target_name)


def parse_program(lines: Iterable[str]) -> Program:
    """The functions of a disassembly; lines that belong to none are skipped."""
    return Program(Function(name, tuple(code)) for name, code in _sections(lines) if code)


def _sections(lines: Iterable[str]) -> Iterator[tuple[str, list[Instruction]]]:
    name, code = "", list[Instruction]()
    for line in lines:
        head = _HEAD.match(line)
        if head:
            yield name, code
            name, code = head[2], []
        elif (found := _LINE.match(line)) and name:
            text = (found[3] or "").partition("//")[0].strip()
            code.append(Instruction(int(found[1], 16), found[2], split_operands(text)))
    yield name, code


def split_operands(text: str) -> tuple[str, ...]:
    """`v20.4s, { v1.16b, v2.16b }, [x1, #16]` → three operands."""
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter in "[{") - (letter in "]}")
        if letter == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    last = text[start:].strip()
    return tuple([*parts, last] if last else parts)
