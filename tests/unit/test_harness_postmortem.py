# SPDX-License-Identifier: MIT
"""Last words of a dead harness are read for what they say, and missing ones are not invented."""

from __future__ import annotations

from tierlab.harness.messages import Request
from tierlab.harness.postmortem import crash

REQUEST = Request(3, "mul_mat", "q4_k", (8, 64, 512))

OVERREAD = """\
load_backend: loaded CPU backend
tierlab-harness: signal 11 at 0x7ff2446c8f54 in ggml_vec_dot_q4_K_q8_K+0xb24 (instruction 0xa40b5c9b) \
address 0x7ff24460c000
tierlab-harness: guard read weights +0 bytes
qemu: uncaught target signal 11 (Segmentation fault) - core dumped
"""


def test_illegal_instruction() -> None:
    said = "tierlab-harness: signal 4 at 0x7f00 in kai_run_x+0x10 (instruction 0x00000000)\n"
    found = crash(REQUEST, 132, said)
    assert (found.signal, found.symbol, found.offset) == (4, "kai_run_x", 16)
    assert (found.instruction, found.address, found.guard) == (0, None, "")


def test_guard_page() -> None:
    found = crash(REQUEST, 139, OVERREAD)
    assert (found.signal, found.symbol, found.offset) == (11, "ggml_vec_dot_q4_K_q8_K", 0xB24)
    assert (found.instruction, found.address) == (0xA40B5C9B, 0x7FF24460C000)
    assert found.guard == "read weights +0"
    assert "qemu: uncaught" in found.stderr


def test_write_into_an_input() -> None:
    found = crash(REQUEST, 139, "tierlab-harness: guard write activations @3068 bytes\n")
    assert found.guard == "write activations @3068"


def test_before_the_start() -> None:
    assert crash(REQUEST, 139, "tierlab-harness: guard read ids -4 bytes\n").guard == "read ids -4"


def test_wild_jump_has_no_instruction() -> None:
    said = (
        "tierlab-harness: signal 11 at 0x0 in f+0x8 (instruction unreadable, called from there) address 0x0\n"
    )
    found = crash(REQUEST, 139, said)
    assert (found.symbol, found.offset, found.instruction, found.address) == ("f", 8, None, 0)


def test_unknown_symbol_is_empty() -> None:
    found = crash(REQUEST, 132, "tierlab-harness: signal 4 at 0x1 in ?+0x0 (instruction 0x00000000)\n")
    assert (found.symbol, found.signal) == ("", 4)


def test_silent_death_by_signal() -> None:
    found = crash(REQUEST, 137, "")
    assert (found.signal, found.symbol, found.guard, found.returncode) == (9, "", "", 137)


def test_silent_exit() -> None:
    found = crash(REQUEST, 2, "tierlab-harness: a request exceeds 64 KiB\n")
    assert (found.signal, found.returncode) == (None, 2)
    assert "64 KiB" in found.stderr


def test_a_kernel_cannot_fake_a_guard_within_a_line() -> None:
    assert crash(REQUEST, 139, "log: tierlab-harness: guard read weights +0 bytes\n").guard == ""


def test_only_the_end_of_a_long_story_is_kept() -> None:
    found = crash(REQUEST, 139, "x" * 100_000 + "\n" + OVERREAD)
    assert len(found.stderr) <= 4000
    assert found.guard == "read weights +0"
