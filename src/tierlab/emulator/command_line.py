# SPDX-License-Identifier: MIT
"""The words in front of an AArch64 program that make it run on a profile's CPU."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tierlab.errors import ConfigError
from tierlab.toolchain.engine import ARM_SYSROOT, EMULATORS

if TYPE_CHECKING:
    from tierlab.cells.model import Profile

NATIVE = "none"
"""The `emulator` of a profile that is the machine itself."""


def command(profile: Profile) -> list[str]:
    """What to put before the program's own arguments; empty on real hardware.

    Give environment variables to the process that is spawned, never through QEMU's `-E`: it splits at commas.
    ConfigError for an emulator that the image does not have, or a CPU text that could be read as options.
    """
    if profile.emulator == NATIVE:
        return []
    program = EMULATORS.get(profile.emulator)
    if program is None:
        known = ", ".join([*sorted(EMULATORS), NATIVE])
        msg = f"profile {profile.name}: there is no emulator {profile.emulator!r}; use one of {known}"
        raise ConfigError(msg)
    if not profile.cpu or profile.cpu.startswith("-") or any(mark.isspace() for mark in profile.cpu):
        msg = f"profile {profile.name}: {profile.cpu!r} is no CPU of an emulator; use a name like neoverse-n1"
        raise ConfigError(msg)
    return [program, "-L", ARM_SYSROOT, "-cpu", profile.cpu]


def on_hardware(profile: Profile) -> Profile:
    """The profile without its emulator: the same promises, to be kept by the machine itself."""
    return replace(profile, emulator=NATIVE)
