# SPDX-License-Identifier: MIT
"""Emulated CPUs: the command line that makes one, and the check that it is what was promised.

Only this package knows QEMU's flags. What was measured about them stands in docs/emulators.md.
"""

from tierlab.emulator.command_line import NATIVE, command
from tierlab.emulator.identity import EmulatorIdentity, identify
from tierlab.emulator.promise import VOCABULARY, Probed, broken_promises, check_promise

__all__ = [
    "NATIVE",
    "VOCABULARY",
    "EmulatorIdentity",
    "Probed",
    "broken_promises",
    "check_promise",
    "command",
    "identify",
]
