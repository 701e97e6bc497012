# SPDX-License-Identifier: MIT
"""The arena: spans that do not overlap, arrays that come back, room that runs out with a message."""

from __future__ import annotations

import errno
import os
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tierlab.errors import HarnessError
from tierlab.harness.arena import ALIGNMENT, Arena
from tierlab.harness.messages import Span

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MIB = 1 << 20


@pytest.fixture
def arena(tmp_path: Path) -> Iterator[Arena]:
    with Arena(tmp_path / "arena", 4 * MIB) as made:
        yield made


def test_slots_share_the_file_without_overlap(arena: Arena) -> None:
    first, second = arena.slots
    spans = [first.reserve(first.nbytes), second.reserve(second.nbytes)]
    assert spans == [Span(0, 2 * MIB), Span(2 * MIB, 2 * MIB)]


def test_spans_are_aligned_and_apart(arena: Arena) -> None:
    spans = [arena.slots[0].reserve(nbytes) for nbytes in (1, 64, 65, 3)]
    assert [span.offset % ALIGNMENT for span in spans] == [0, 0, 0, 0]
    for left, right in pairwise(spans):
        assert left.offset + left.nbytes <= right.offset


def test_put_keeps_every_bit(arena: Arena) -> None:
    bits = np.array([0x7FC0DEAD, 0x80000000, 0x7F800001, 1], np.uint32)
    span = arena.slots[1].put(bits.view(np.float32))
    assert np.array_equal(arena.view(span, np.uint32), bits)


def test_put_takes_c_order(arena: Arena) -> None:
    matrix = np.arange(12, dtype=np.int32).reshape(3, 4)
    span = arena.slots[0].put(matrix.T)
    assert np.array_equal(arena.view(span, np.int32).reshape(4, 3), matrix.T)


def test_the_file_holds_what_the_view_shows(arena: Arena) -> None:
    span = arena.slots[1].put(np.arange(8, dtype=np.uint8))
    data = arena.path.read_bytes()
    assert data[span.offset : span.offset + span.nbytes] == bytes(range(8))


def test_reset_gives_the_room_again(arena: Arena) -> None:
    slot = arena.slots[0]
    slot.reserve(2 * MIB)
    slot.reset()
    assert slot.reserve(2 * MIB) == Span(0, 2 * MIB)


def test_a_full_slot_says_so(arena: Arena) -> None:
    slot = arena.slots[0]
    slot.reserve(MIB)
    with pytest.raises(HarnessError, match=f"needs {2 * MIB + 1} bytes of tensors, a slot has {2 * MIB}"):
        slot.reserve(MIB + 1)


@pytest.mark.parametrize("nbytes", [0, -1])
def test_an_empty_span_is_refused(arena: Arena, nbytes: int) -> None:
    with pytest.raises(HarnessError):
        arena.slots[0].reserve(nbytes)


def test_a_view_of_broken_elements_is_refused(arena: Arena) -> None:
    span = arena.slots[0].reserve(6)
    with pytest.raises(HarnessError, match="no whole number"):
        arena.view(span, np.float32)


def test_full_memory_is_a_message_not_a_signal(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, offset: int, nbytes: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(HarnessError, match="No space left"):
        arena.slots[0].reserve(1)


def test_memory_is_taken_only_as_it_is_used(arena: Arena) -> None:
    arena.slots[0].reserve(1)
    assert os.stat(arena.path).st_blocks * 512 <= MIB


def test_closing_with_a_view_alive_is_harmless(tmp_path: Path) -> None:
    arena = Arena(tmp_path / "other", MIB)
    view = arena.view(arena.slots[0].put(np.ones(4, np.float32)), np.float32)
    arena.close()
    assert view.tolist() == [1.0, 1.0, 1.0, 1.0]
