# SPDX-License-Identifier: MIT
"""Every profile of matrix.yaml delivers what it promises, and a wrong promise is noticed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from harness_rig import Rig

from tierlab.cells.load import load_matrix
from tierlab.emulator import broken_promises, check_promise, command, identify
from tierlab.toolchain.engine import EMULATORS

if TYPE_CHECKING:
    from tierlab.harness.messages import Hello

pytestmark = pytest.mark.engine

PROFILES = load_matrix(Path(__file__).parents[2] / "matrix.yaml").profiles


@pytest.fixture(scope="module")
def rig() -> Rig:
    made = Rig()
    if not made.engine.emulated:
        pytest.skip("profiles are emulated CPUs, and this is a real one")
    return made


def hello(rig: Rig, name: str) -> Hello:
    profile = PROFILES[name]
    with rig.arm(profile.cpu, profile.emulator) as conversation:
        return conversation.hello


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_promise(rig: Rig, name: str) -> None:
    assert command(PROFILES[name])[0] == EMULATORS[PROFILES[name].emulator]
    check_promise(PROFILES[name], hello(rig, name))


def test_the_emulators_are_what_they_are_called(rig: Rig) -> None:
    found = identify(rig.engine, EMULATORS)
    assert {name: f"qemu-{'.'.join(who.version.split('.')[:2])}" for name, who in found.items()} == {
        name: name for name in EMULATORS
    }
    assert len({who.sha256 for who in found.values()}) == len(EMULATORS)


# CPU text and emulator, a profile that it might be taken for, and the words that tell the difference.
IMPOSTORS = (
    (
        "max,sme=off,sve1024=on",
        "qemu-11.1",
        "sve2-1024",
        ["the SVE vector length is 512 bit instead of 1024 bit"],
    ),
    ("neoverse-v1", "qemu-11.1", "neoverse-v1", ["bf16 is missing"]),
    (
        "max,sve=off,sme_fa64=off",
        "qemu-10.0",
        "sme2-nosve",
        [
            "sme is missing",
            "sme2 is missing",
            "the SME streaming vector length is none instead of 512 bit",
        ],
    ),
    (
        "max,sve-default-vector-length=16,sme512=on",
        "qemu-11.1",
        "sme2-svl512",
        ["sme_fa64 is there, and the profile does not list it"],
    ),
)


@pytest.mark.parametrize(("cpu", "emulator", "name", "broken"), IMPOSTORS)
def test_a_cpu_that_is_not_what_its_text_suggests(
    rig: Rig, cpu: str, emulator: str, name: str, broken: list[str]
) -> None:
    with rig.arm(cpu, emulator) as conversation:
        profile = replace(PROFILES[name], cpu=cpu, emulator=emulator)
        assert broken_promises(profile, conversation.hello) == broken
