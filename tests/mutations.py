# SPDX-License-Identifier: MIT
"""Files changed at random, as transport, carelessness and malice change them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

WILD = tuple(
    {0, 1, 2, 3, 7, 8, 60, 63, 64, 65, 0x7F, 0x80, 0xFF, 0xFFFF}
    | {sign + (1 << bits) for bits in (16, 20, 31, 32, 40, 60, 63) for sign in (-1, 0)}
    | {(1 << 64) - 1, (1 << 64) - 4096}
)
"""Values at the edges of what a field can hold."""


def mutated(chance: random.Random, data: bytes) -> bytes:
    """`data` with one to eight changes: to a bit, a byte, a field; bytes removed, added, copied; cut off."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
        _change(chance, changed)
    return bytes(changed)


def _change(chance: random.Random, data: bytearray) -> None:
    # Half of the places by what is there: padding makes up much of a file and changes nothing.
    told = [at for at, value in enumerate(data) if value] if chance.randrange(2) else []
    at = chance.choice(told) if told else chance.randrange(len(data) + 1)
    kind = chance.randrange(8)
    if kind == 0 and at < len(data):
        data[at] ^= 1 << chance.randrange(8)
    elif kind == 1:
        data[at : at + 1] = chance.randbytes(1)
    elif kind in (2, 3):
        size = chance.choice((2, 4, 8))
        number = chance.choice(WILD) % (1 << 8 * size)
        data[at : at + size] = number.to_bytes(size, "little")
    elif kind == 4:
        del data[at : at + chance.choice((1, 4, 8, 60))]
    elif kind == 5:
        data[at:at] = chance.randbytes(chance.choice((1, 4, 8, 60)))
    elif kind == 6:
        begin = chance.randrange(len(data) + 1)
        data[at : at + 24] = data[begin : begin + 24]
    elif not chance.randrange(4):
        del data[at:]
