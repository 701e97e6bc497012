# SPDX-License-Identifier: MIT
"""Bits from names: the same key gives the same bits on every machine and NumPy version.

The bits are those of Philox-4x64-10 (Salmon et al., 2011), keyed with the first 16 bytes of the key's
SHA-256, counter from 0. NumPy keeps its bit generators' streams fixed; its samplers (`normal`,
`integers`) it does not, so none is used: every value is made from raw words by exact integer arithmetic
and scaled by powers of two. Change a formula here or in `blocks`/`distributions` and `GENERATION` with it.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

GENERATION = "1"
"""Part of every key: input bytes of different generations are unrelated."""


def words(key: str, count: int) -> NDArray[np.uint64]:
    """`count` random 64-bit words that depend on `key` alone."""
    digest = hashlib.sha256(f"tierlab/{GENERATION}/{key}".encode()).digest()
    philox = np.random.Philox(key=int.from_bytes(digest[:16], "little"))
    return np.asarray(philox.random_raw(count), dtype=np.uint64)


def byte_array(key: str, count: int) -> NDArray[np.uint8]:
    """`count` random bytes."""
    # "<u8": the bytes of a word are taken in the same order on every host.
    return words(key, -(-count // 8)).astype("<u8").view(np.uint8)[:count]


def below(source: NDArray[np.uint64], shift: int, limit: int) -> NDArray[np.int64]:
    """Integers in [0, limit) from 16 bits of each word, from bit `shift` on; bias below limit / 65536."""
    return (((source >> np.uint64(shift)) & np.uint64(0xFFFF)) * np.uint64(limit) >> np.uint64(16)).astype(
        np.int64
    )


def normal(key: str, count: int) -> NDArray[np.float32]:
    """Nearly normal float32: mean 0, standard deviation 1, never beyond ±6; exact on every machine.

    The sum of twelve 16-bit uniforms (Irwin–Hall) has the standard deviation 65536, so the scaling is a
    power of two and nothing is rounded.
    """
    parts = words(key, 3 * count).astype("<u8").view("<u2").reshape(count, 12)
    sums: NDArray[np.int64] = parts.sum(axis=1, dtype=np.int64) - 393210
    return np.multiply(sums, 2.0**-16).astype(np.float32)
