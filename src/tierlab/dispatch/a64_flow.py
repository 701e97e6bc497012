# SPDX-License-Identifier: MIT
"""Basic blocks of a function and its loops: back edges of the control flow graph, and what they enclose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tierlab.dispatch.a64_text import Function, Instruction


@dataclass(frozen=True)
class Block:
    """Instructions that run one after the other; `follows` are the addresses of what may run next."""

    code: tuple[Instruction, ...]
    follows: tuple[int, ...]

    @property
    def start(self) -> int:
        return self.code[0].address

    @property
    def last(self) -> Instruction:
        return self.code[-1]


@dataclass(frozen=True)
class Loop:
    """A natural loop: the blocks (by address) from which its head is reached again without leaving it."""

    function: str
    head: int
    body: frozenset[int]


@dataclass(frozen=True)
class Flow:
    """A function as a graph of blocks, by address."""

    function: Function
    blocks: dict[int, Block]
    loops: tuple[Loop, ...]


def flow_of(function: Function) -> Flow:
    """Blocks and loops of a function; a branch out of it ends a block and leads nowhere."""
    blocks = _blocks(function)
    return Flow(function, blocks, _loops(function, blocks))


def _blocks(function: Function) -> dict[int, Block]:
    addresses = {item.address for item in function.code}
    starts = {function.entry}
    for item in function.code:
        if item.ends_block:
            starts.add(item.address + 4)
            if not item.is_call and item.target in addresses:
                starts.add(int(item.target or 0))
    blocks: dict[int, Block] = {}
    code: list[Instruction] = []
    for item in function.code:
        code.append(item)
        if item.ends_block or item.address + 4 in starts or item.address + 4 not in addresses:
            follows = tuple(at for at in _after(item) if at in addresses)
            blocks[code[0].address] = Block(tuple(code), follows)
            code = []
    return blocks


def _after(item: Instruction) -> tuple[int, ...]:
    behind = item.address + 4
    if item.is_return or item.name in ("br", "braaz", "brabz"):
        return ()
    if item.name == "b":
        return (item.target or 0,)
    if item.is_conditional:
        return (behind, item.target or 0)
    return (behind,)


def _loops(function: Function, blocks: dict[int, Block]) -> tuple[Loop, ...]:
    dominators = _dominators(function.entry, blocks)
    before: dict[int, list[int]] = {at: [] for at in blocks}
    for at, block in blocks.items():
        for follow in block.follows:
            before[follow].append(at)
    bodies: dict[int, set[int]] = {}
    for at in dominators:
        for head in blocks[at].follows:
            if head in dominators[at]:
                bodies.setdefault(head, {head}).update(_enclosed(head, at, before))
    return tuple(Loop(function.name, head, frozenset(body)) for head, body in sorted(bodies.items()))


def _enclosed(head: int, tail: int, before: dict[int, list[int]]) -> set[int]:
    """All blocks from which `tail` is reached without passing `head`."""
    found, left = {head}, [tail]
    while left:
        at = left.pop()
        if at not in found:
            found.add(at)
            left += before[at]
    return found


def _dominators(entry: int, blocks: dict[int, Block]) -> dict[int, set[int]]:
    """For each reachable block the blocks that every way to it passes."""
    reachable, left = set[int](), [entry]
    while left:
        at = left.pop()
        if at not in reachable:
            reachable.add(at)
            left += blocks[at].follows
    order = sorted(reachable)
    before: dict[int, list[int]] = {at: [] for at in order}
    for at in order:
        for follow in blocks[at].follows:
            before[follow].append(at)
    found = {at: set(order) for at in order}
    found[entry] = {entry}
    changed = True
    while changed:
        changed = False
        for at in order:
            if at == entry:
                continue
            fresh = set.intersection(*(found[one] for one in before[at])) | {at}
            if fresh != found[at]:
                found[at], changed = fresh, True
    return found
