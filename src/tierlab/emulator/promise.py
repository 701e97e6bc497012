# SPDX-License-Identifier: MIT
"""What a profile promises against what the probe inside the emulated CPU found.

A model's name proves nothing: an option that an emulator does not know how to honour may be ignored without
a word (docs/emulators.md), and models change between versions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tierlab.emulator.command_line import NATIVE
from tierlab.errors import ProbeError

if TYPE_CHECKING:
    from collections.abc import Collection

    from tierlab.cells.model import Profile

VOCABULARY = (
    *("asimd", "fp16", "dotprod", "i8mm", "bf16"),
    *("sve", "sve2", "sme", "sme2", "sme_fa64"),
)
"""Features of which a profile speaks in both directions: those it does not list must be absent."""


class Probed(Protocol):
    """The part of the harness' hello that a promise is about."""

    @property
    def arch(self) -> str: ...
    @property
    def features(self) -> Collection[str]: ...
    @property
    def vector_bits(self) -> int: ...
    @property
    def streaming_bits(self) -> int: ...
    @property
    def fa64(self) -> bool: ...


def broken_promises(profile: Profile, hello: Probed) -> list[str]:
    """Each promise that `hello` does not keep, in words; empty if all are kept."""
    if hello.arch != "aarch64":
        return [f"it promises an AArch64 CPU, the program ran on {hello.arch}"]
    found = set(hello.features) | ({"sme_fa64"} if hello.fa64 else set())
    broken = [f"{name} is missing" for name in sorted(profile.features - found)]
    broken += [
        f"{name} is there, and the profile does not list it"
        for name in VOCABULARY
        if name in found and name not in profile.features
    ]
    lengths = (
        ("SVE vector length", profile.vector_bits, hello.vector_bits),
        ("SME streaming vector length", profile.streaming_bits, hello.streaming_bits),
    )
    for what, promised, measured in lengths:
        if (promised or 0) != measured:
            broken.append(f"the {what} is {_bits(measured)} instead of {_bits(promised or 0)}")
    return broken


def check_promise(profile: Profile, hello: Probed) -> None:
    """Raise ProbeError, naming every broken promise, unless the CPU is what the profile says."""
    broken = broken_promises(profile, hello)
    if broken:
        where = "this machine" if profile.emulator == NATIVE else f"{profile.emulator} -cpu {profile.cpu}"
        msg = (
            f"profile {profile.name} ({where}) breaks its promise: {'; '.join(broken)}. None of its cells "
            "was executed. Correct the profile in matrix.yaml, or use the emulator it was written for"
        )
        raise ProbeError(msg)


def _bits(length: int) -> str:
    return f"{length} bit" if length else "none"
