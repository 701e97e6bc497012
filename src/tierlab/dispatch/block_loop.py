# SPDX-License-Identifier: MIT
"""The loop of a kernel that runs once a block of weights, found from a walk and checked by its products.

Where K is `blocks` blocks long, that loop runs `blocks` times each time it is entered (or a half, a quarter,
an eighth of that, if it takes several blocks at a time), and its iterations together hold all products of
the tile that it computes. Loops inside of it are part of its iteration, as often as they run.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tierlab.dispatch.a64_walk import WalkError
from tierlab.dispatch.multiply_counts import multiply_accumulates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tierlab.dispatch.a64_flow import Loop
    from tierlab.dispatch.a64_text import Instruction
    from tierlab.dispatch.a64_walk import Step, Walk

UNROLLED = (1, 2, 4, 8)
"""Blocks that one iteration may take."""


@dataclass(frozen=True)
class Work:
    """What a call must compute: the block length of the type, K in blocks, and the size of the product."""

    block: int
    blocks: int
    rows: int
    columns: int

    @property
    def products(self) -> int:
        return self.block * self.blocks * self.rows * self.columns


@dataclass(frozen=True)
class Inner:
    """A loop inside of the block loop: its head and how often its body runs in one iteration."""

    function: str
    head: int
    runs: int


@dataclass(frozen=True)
class BlockLoop:
    """One iteration of the block loop.

    `code` are the instructions in the order in which they run, `products` the multiply-accumulates in them,
    `tile` the elements of the result that they belong to, `unrolled` the blocks that an iteration takes,
    `assumed` the branches on values from memory.
    """

    loop: Loop
    code: tuple[Instruction, ...]
    products: int
    tile: int
    unrolled: int
    inner: tuple[Inner, ...]
    assumed: int

    @property
    def multipliers(self) -> dict[str, int]:
        """Names of the instructions that multiply, and how many of each."""
        return dict(Counter(item.name for item in self.code if multiply_accumulates(item, 128, 128)))


@dataclass(frozen=True)
class _Runs:
    """The iterations of a loop as ranges of steps, entry by entry."""

    loop: Loop
    entries: tuple[tuple[range, ...], ...]


def block_loop(walk: Walk, name: str, work: Work, vector_bits: int) -> BlockLoop:
    """The block loop that computes most of `name`'s products. WalkError says why there is none."""
    if f"{name}_generic" in walk.flows:
        msg = f"{name} leaves its work to portable code ({name}_generic), so it has no loop to be modelled"
        raise WalkError(msg)
    products = [
        sum(multiply_accumulates(item, vector_bits) for item in step.block.code) for step in walk.steps
    ]
    total = sum(products)
    if total != work.products:
        msg = (
            f"{name} does {total} multiply-accumulates where {work.products} are due ({work.rows} × "
            f"{work.columns} elements, K = {work.block * work.blocks}); its loops were not understood"
        )
        raise WalkError(msg)
    found = [
        (sum(products[at] for entry in runs.entries for one in entry for at in one), runs)
        for flow in walk.flows.values()
        for runs in (_runs(walk.steps, loop) for loop in flow.loops)
        if _takes_blocks(runs, products, work)
    ]
    if not found:
        heads = sum(len(flow.loops) for flow in walk.flows.values())
        msg = (
            f"none of the {heads} loops of {name} runs once a block ({work.blocks} blocks of {work.block}); "
            "nothing can be said of its cost"
        )
        raise WalkError(msg)
    _, runs = max(found, key=lambda item: item[0])
    return _described(walk, runs, products, work)


def _takes_blocks(runs: _Runs, products: Sequence[int], work: Work) -> bool:
    """Whether each entry runs through all blocks, with the same whole number of products for each."""
    if not runs.entries:
        return False
    counts = {len(entry) for entry in runs.entries}
    if len(counts) != 1:
        return False
    unrolled, rest = divmod(work.blocks, counts.pop())
    if rest or unrolled not in UNROLLED:
        return False
    amounts = {sum(products[at] for at in one) for entry in runs.entries for one in entry}
    return all(amount > 0 and amount % (unrolled * work.block) == 0 for amount in amounts)


def _runs(steps: Sequence[Step], loop: Loop) -> _Runs:
    """Where the loop was entered, and the steps of each of its iterations (calls out of it included)."""
    entries: list[tuple[range, ...]] = []
    current: list[range] = []
    begun, depth = -1, -1
    for at, step in enumerate(steps):
        mine = step.function == loop.function and (begun < 0 or step.depth == depth)
        if begun >= 0 and (step.depth < depth or (mine and step.block.start not in loop.body)):
            current.append(range(begun, at))
            entries.append(tuple(current))
            current, begun = [], -1
        if mine and step.block.start == loop.head:
            if begun >= 0:
                current.append(range(begun, at))
            begun, depth = at, step.depth
    if begun >= 0:
        entries.append((*current, range(begun, len(steps))))
    return _Runs(loop, tuple(entries))


def _described(walk: Walk, runs: _Runs, products: Sequence[int], work: Work) -> BlockLoop:
    """The widest entry's second iteration: the first may differ where a loop was peeled."""
    entry = max(runs.entries, key=lambda entry: sum(products[at] for at in entry[0]))
    chosen = entry[min(1, len(entry) - 1)]
    steps = [walk.steps[at] for at in chosen]
    amount = sum(products[at] for at in chosen)
    unrolled = work.blocks // len(entry)
    return BlockLoop(
        loop=runs.loop,
        code=tuple(item for step in steps for item in step.block.code),
        products=amount,
        tile=amount // (unrolled * work.block),
        unrolled=unrolled,
        inner=_inner(walk, runs.loop, steps),
        assumed=sum(step.assumed for step in steps),
    )


def _inner(walk: Walk, outer: Loop, steps: Sequence[Step]) -> tuple[Inner, ...]:
    """Loops that run more than once within one iteration."""
    found = []
    for flow in walk.flows.values():
        for loop in flow.loops:
            if loop != outer:
                heads = sum(
                    step.function == loop.function and step.block.start == loop.head for step in steps
                )
                if heads:
                    found.append(Inner(loop.function, loop.head, heads))
    return tuple(found)
