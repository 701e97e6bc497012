# SPDX-License-Identifier: MIT
"""Deliberate faults in the harness arrive at the lab as what they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from harness_rig import Conversation, Rig

from tierlab.harness.messages import SENTINEL_BITS, Answer, Crash, Timeout

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from numpy.typing import NDArray

pytestmark = pytest.mark.engine

# Odd sizes: the 84 bytes of output leave slack before the guard page.
M, N, K = 3, 7, 256


@pytest.fixture(scope="module")
def faulty() -> Iterator[Conversation]:
    with Rig().arm("neoverse-n2", program="tierlab-harness-faulty") as conversation:
        yield conversation


def weights(n: int = N) -> NDArray[np.uint8]:
    """Random valid iq4_xs blocks [n, 136] with modest scales."""
    blocks = np.random.default_rng(0).integers(0, 256, (n, 136), np.uint8)
    blocks[:, :2] = np.full(n, 0.01, np.float16).view(np.uint8).reshape(n, 2)
    return blocks


def run(faulty: Conversation, fault: str, n: int = N, **given: Any) -> tuple[Any, NDArray[np.float32]]:
    activations = np.random.default_rng(1).standard_normal((M, K), np.float32)
    return faulty.product("iq4_xs", weights(n), activations, n, fault=fault, **given)


def changed(faulty: Conversation, fault: str, **given: Any) -> NDArray[np.bool_]:
    """Which outputs a fault changes; the fault itself goes unreported."""
    sound, before = run(faulty, "", **given)
    outcome, after = run(faulty, fault, **given)
    assert isinstance(sound, Answer)
    assert isinstance(outcome, Answer)
    assert (outcome.status, outcome.guard) == ("ok", "")
    assert outcome.ran == sound.ran
    return before.view(np.uint32) != after.view(np.uint32)


@pytest.mark.parametrize("fault", ["nibble_order", "high_scale_bit", "tail", "nan", "zeros"])
def test_faults_of_every_output(faulty: Conversation, fault: str) -> None:
    assert changed(faulty, fault).all()


def test_last_column(faulty: Conversation) -> None:
    assert changed(faulty, "last_column").tolist() == [[False] * (N - 1) + [True]] * M


def test_row_pair(faulty: Conversation) -> None:
    assert changed(faulty, "row_pair").tolist() == [[True, True] + [False] * (N - 2)] * M


def test_thread_dependent(faulty: Conversation) -> None:
    assert not changed(faulty, "thread_dependent", threads=1).any()
    assert changed(faulty, "thread_dependent", threads=2).sum() == 1


def test_unstable(faulty: Conversation) -> None:
    outcome, _ = run(faulty, "unstable", repeat=2)
    assert isinstance(outcome, Answer)
    assert outcome.unstable == 1


def test_no_kernel_leaves_the_sentinel(faulty: Conversation) -> None:
    outcome, output = run(faulty, "no_kernel")
    assert isinstance(outcome, Answer)
    assert (outcome.status, outcome.unwritten, outcome.ran) == ("ok", M * N, {})
    assert (output.view(np.uint32) == SENTINEL_BITS).all()


def test_other_kernel_gives_right_numbers_and_the_wrong_receipt(faulty: Conversation) -> None:
    values = np.random.default_rng(2).standard_normal((8, K), np.float32)
    blocks = faulty.quantised("q4_0", values)
    activations = np.random.default_rng(3).standard_normal((4, K), np.float32)
    sound, expected = faulty.product("q4_0", blocks, activations, 8, path="repack")
    outcome, output = faulty.product("q4_0", blocks, activations, 8, path="repack", fault="other_kernel")
    assert isinstance(sound, Answer)
    assert isinstance(outcome, Answer)
    assert "ggml_gemm_q4_0_4x8_q8_0" in sound.ran
    assert "ggml_gemm_q4_0_4x8_q8_0" not in outcome.ran
    assert np.allclose(output, expected, rtol=1e-4, atol=1e-4)


def test_illegal_instruction(faulty: Conversation) -> None:
    outcome, _ = run(faulty, "illegal")
    assert isinstance(outcome, Crash)
    assert (outcome.returncode, outcome.signal, outcome.guard) == (132, 4, "")
    assert outcome.instruction == 0
    assert "replaces_kernel" in outcome.symbol


def test_abort(faulty: Conversation) -> None:
    outcome, _ = run(faulty, "abort")
    assert isinstance(outcome, Crash)
    assert (outcome.returncode, outcome.signal, outcome.guard) == (134, 6, "")
    assert "deliberate fault" in outcome.stderr


def test_hang(faulty: Conversation) -> None:
    outcome, _ = run(faulty, "hang", limit=1.0)
    assert isinstance(outcome, Timeout)


def test_read_beyond(faulty: Conversation) -> None:
    outcome, _ = run(faulty, "read_beyond")
    assert isinstance(outcome, Crash)
    assert (outcome.signal, outcome.guard) == (11, "read activations +64")


def test_write_into_the_slack(faulty: Conversation) -> None:
    outcome, _ = run(faulty, "write_beyond")
    assert isinstance(outcome, Answer)
    assert (outcome.status, outcome.guard) == ("ok", "write output +0")


def test_write_into_the_guard_page(faulty: Conversation) -> None:
    """With 96 bytes of output there is no slack."""
    outcome, _ = run(faulty, "write_beyond", n=8)
    assert isinstance(outcome, Crash)
    assert (outcome.signal, outcome.guard) == (11, "write output +0")


def test_write_into_an_input(faulty: Conversation) -> None:
    outcome, _ = run(faulty, "write_input")
    assert isinstance(outcome, Crash)
    assert (outcome.signal, outcome.guard) == (11, f"write activations @{M * K * 4 - 4}")


@pytest.mark.parametrize(("fault", "why"), [("nosuch", "unknown fault"), ("other_kernel", "no other path")])
def test_a_fault_that_cannot_be_is_an_error(faulty: Conversation, fault: str, why: str) -> None:
    outcome, _ = run(faulty, fault)
    assert isinstance(outcome, Answer)
    assert outcome.status == "error"
    assert why in outcome.message


def test_the_harness_works_after_every_death(faulty: Conversation) -> None:
    run(faulty, "illegal")
    outcome, _ = run(faulty, "")
    assert isinstance(outcome, Answer)
    assert (outcome.status, outcome.unwritten) == ("ok", 0)
