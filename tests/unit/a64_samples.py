# SPDX-License-Identifier: MIT
"""Hand-made functions in a disassembler's words, for tests of the walk through them."""

from __future__ import annotations

from tierlab.dispatch.a64_text import Program, parse_program

START = 0x1000


def listing(name: str, text: str, start: int = START) -> str:
    """A disassembly of `text`: a line an instruction; `label:` stands for the address of what follows, and
    `@label` (or `@label<symbol>`) for a branch to it."""
    lines = [line.strip() for line in text.strip().splitlines()]
    labels: dict[str, int] = {}
    code: list[str] = []
    for line in lines:
        if line.endswith(":"):
            labels[line[:-1]] = start + 4 * len(code)
        else:
            code.append(line)
    made = [f"{start:016x} <{name}>:"]
    for number, line in enumerate(code):
        for label, address in labels.items():
            line = line.replace(f"@{label}", f"0x{address:x} <{name}+0x{address - start:x}>")
        opcode, _, operands = line.partition(" ")
        made.append(f"    {start + 4 * number:x}:      \t{opcode}\t{operands}")
    return "\n".join([*made, ""])


def program(**functions: str) -> Program:
    """Functions one after the other, 0x1000 bytes apart."""
    text = "\n".join(
        listing(name, code, START * (number + 1)) for number, (name, code) in enumerate(functions.items())
    )
    return parse_program(text.splitlines())


# n (w0) in blocks of 32, one element: 8 sdot in an inner loop that runs four times, two of them a time.
DOT = """
    asr w9, w0, #5
    cbz w9, @end
    block:
    mov w10, #4
    add x11, x3, #32
    inner:
    ldr q1, [x3], #8
    ldr q2, [x5]
    sdot v0.2s, v1.8b, v2.8b
    sub w10, w10, #1
    cmp x3, x11
    b.ne @inner
    subs w9, w9, #1
    b.ne @block
    end:
    str s0, [x1]
    ret
"""
