# SPDX-License-Identifier: MIT
"""A walk through a function: which blocks run how often for given arguments, without running anything.

General registers are followed exactly, what comes from memory is unknown. A kernel's loops are counted in
registers that depend on its arguments alone, so the way through them is known; a branch on a value from
memory is assumed not to be taken, and counted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from tierlab.dispatch.a64_flow import Block, Flow, flow_of
from tierlab.dispatch.a64_registers import Registers, start, width
from tierlab.dispatch.a64_values import holds
from tierlab.errors import TierlabError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tierlab.dispatch.a64_text import Function, Instruction, Program

MOST_STEPS = 500_000
"""Instructions that a walk may take; kernels with the arguments used here take up to a fifth of that."""

MOST_DEPTH = 32


class WalkError(TierlabError):
    """The way through a function cannot be told."""


class Step(NamedTuple):
    """One run of a block: in which function, how deep in calls, and whether its last branch was assumed."""

    function: str
    block: Block
    depth: int
    assumed: bool


@dataclass
class Walk:
    """What ran, in order; `flows` are the functions that were entered, `unknown` those that are not here."""

    steps: list[Step] = field(default_factory=list)
    flows: dict[str, Flow] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)


def walk(
    program: Program,
    name: str,
    arguments: tuple[int, ...],
    vector_bits: int,
    answers: Mapping[str, int] | None = None,
) -> Walk:
    """Walk through the function `name`. `answers` are results of functions that are not walked through.

    Raises WalkError if the function is not there, jumps to where a register says, or does not end.
    """
    function = program.by_name.get(name)
    if function is None:
        msg = f"there is no function {name} in the file; nothing can be said of its loops"
        raise WalkError(msg)
    walker = _Walker(program, start(vector_bits, arguments), dict(answers or {}))
    walker.run(function, 0)
    return walker.walk


class _Walker:
    def __init__(self, program: Program, state: Registers, answers: dict[str, int]) -> None:
        self.program = program
        self.state = state
        self.answers = answers
        self.walk = Walk()
        self._taken = 0

    def run(self, function: Function, depth: int) -> None:
        """Run until the function returns."""
        if depth > MOST_DEPTH:
            msg = f"{function.name} calls itself or others {MOST_DEPTH} deep; its loops cannot be told"
            raise WalkError(msg)
        flow = self.walk.flows.get(function.name) or flow_of(function)
        self.walk.flows[function.name] = flow
        at: int | None = function.entry
        while at is not None:
            block = flow.blocks.get(at)
            if block is None:
                msg = f"{function.name} runs past its end at {at:#x}; its loops cannot be told"
                raise WalkError(msg)
            self._body(block, function)
            at = self._next(function, block, depth)

    def _body(self, block: Block, function: Function) -> None:
        self._taken += len(block.code)
        if self._taken > MOST_STEPS:
            msg = f"{function.name} does not end within {MOST_STEPS} instructions; its loops cannot be told"
            raise WalkError(msg)
        for item in block.code:
            if not item.ends_block:
                self.state.execute(item)

    def _next(self, function: Function, block: Block, depth: int) -> int | None:
        """The address of the next block of this function; None when it returns."""
        last = block.last
        behind = last.address + 4
        taken = self._is_taken(last) if last.is_conditional else False
        self.walk.steps.append(Step(function.name, block, depth, taken is None))
        if last.is_return:
            return None
        if last.is_call:
            self._call(last, depth)
            return behind
        if last.is_conditional:
            return last.target if taken else behind
        if last.name == "b":
            if last.target in self.walk.flows[function.name].blocks:
                return last.target
            self._call(last, depth)  # a tail call: what it returns, this function returns
            return None
        if last.ends_block:
            msg = f"{function.name} jumps to where a register says ({last.text}); its loops cannot be told"
            raise WalkError(msg)
        return behind

    def _is_taken(self, item: Instruction) -> bool | None:
        if item.condition:
            return holds(item.condition, self.state.flags)
        value = self.state.read(item.operands[0])
        if value is None:
            return None
        if item.name in ("tbz", "tbnz"):
            bit = int(self.state.read(item.operands[1]) or 0)
            return bool(value >> bit & 1) == (item.name == "tbnz")
        return (value & ((1 << width(item.operands[0])) - 1) == 0) == (item.name == "cbz")

    def _call(self, item: Instruction, depth: int) -> None:
        target = self.program.called(item)
        name = item.target_name
        if name in self.answers:
            self._returned(self.answers[name])
        elif target is not None:
            kept = {f"x{number}": self.state.values.get(f"x{number}") for number in range(19, 30)}
            self.run(target, depth + 1)
            self.state.values |= kept  # AAPCS64: the callee restores them, perhaps from where we do not see
        else:
            self.walk.unknown.add(name or item.text)
            self._returned(None)

    def _returned(self, result: int | None) -> None:
        """AAPCS64: x0 holds the result, x1 to x18 and the flags may be anything."""
        self.state.forget(tuple(f"x{number}" for number in range(19)))
        self.state.write("x0", result)
        self.state.flags = None
