# SPDX-License-Identifier: MIT
"""The command line of an emulated CPU, and every way in which one can break its promise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from tierlab.cells.model import Profile
from tierlab.emulator import NATIVE, broken_promises, check_promise, command, identify
from tierlab.errors import ConfigError, EngineError, ProbeError

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Found:
    """What a probe found."""

    arch: str = "aarch64"
    features: frozenset[str] = frozenset({"asimd", "fp16", "dotprod", "sve", "sve2", "fhm", "sve2p1"})
    vector_bits: int = 128
    streaming_bits: int = 0
    fa64: bool = False


PROFILE = Profile(
    name="n2",
    emulator="qemu-11.1",
    cpu="neoverse-n2",
    features=frozenset({"asimd", "fp16", "dotprod", "sve", "sve2"}),
    vector_bits=128,
    streaming_bits=None,
)
SME = replace(
    PROFILE, name="sme", features=frozenset({"asimd", "sme", "sme2"}), vector_bits=None, streaming_bits=512
)
SME_FOUND = Found(features=frozenset({"asimd", "sme", "sme2"}), vector_bits=0, streaming_bits=512)


def test_command() -> None:
    assert command(PROFILE) == [
        *("/opt/qemu-11.1/usr/bin/qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"),
        *("-cpu", "neoverse-n2"),
    ]
    assert command(replace(PROFILE, emulator="qemu-10.0"))[0] == "/opt/qemu-10.0/usr/bin/qemu-aarch64"
    assert command(replace(PROFILE, emulator=NATIVE)) == []


def test_unknown_emulator_names_the_known_ones() -> None:
    with pytest.raises(
        ConfigError, match=r"n2: there is no emulator .qemu-9.; use one of qemu-10.0, qemu-11.1, none"
    ):
        command(replace(PROFILE, emulator="qemu-9"))


@pytest.mark.parametrize("cpu", ["", "-d in_asm", "max -strace", "a\tb"])
def test_cpu_that_would_be_read_as_options(cpu: str) -> None:
    with pytest.raises(ConfigError, match="is no CPU"):
        command(replace(PROFILE, cpu=cpu))


def test_kept_promises() -> None:
    assert broken_promises(PROFILE, Found()) == []
    check_promise(PROFILE, Found())
    check_promise(SME, SME_FOUND)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (Found(features=Found().features - {"sve2"}), "sve2 is missing"),
        (Found(features=Found().features | {"i8mm"}), "i8mm is there, and the profile does not list it"),
        (Found(features=Found().features | {"sme"}), "sme is there, and the profile does not list it"),
        (Found(vector_bits=512), "the SVE vector length is 512 bit instead of 128 bit"),
        (Found(vector_bits=0), "the SVE vector length is none instead of 128 bit"),
        (Found(streaming_bits=256), "the SME streaming vector length is 256 bit instead of none"),
        (Found(arch="x86_64"), "it promises an AArch64 CPU, the program ran on x86_64"),
    ],
)
def test_each_broken_promise_is_named_alone(found: Found, words: str) -> None:
    assert broken_promises(PROFILE, found) == [words]
    with pytest.raises(ProbeError) as caught:
        check_promise(PROFILE, found)
    assert words in str(caught.value)
    assert "profile n2 (qemu-11.1 -cpu neoverse-n2)" in str(caught.value)
    assert caught.value.exit_code == 2


def test_streaming_promises() -> None:
    found = replace(SME_FOUND, streaming_bits=256, fa64=True)
    assert broken_promises(SME, found) == [
        "sme_fa64 is there, and the profile does not list it",
        "the SME streaming vector length is 256 bit instead of 512 bit",
    ]
    assert broken_promises(replace(SME, features=SME.features | {"sme_fa64"}), SME_FOUND) == [
        "sme_fa64 is missing"
    ]


def test_flags_outside_the_vocabulary_are_promised_only_if_listed() -> None:
    assert broken_promises(replace(PROFILE, features=PROFILE.features | {"ebf16"}), Found()) == [
        "ebf16 is missing"
    ]


class SpokenEngine:
    """An engine whose programs say `text` and end with `code`."""

    name = "spoken"

    def __init__(self, text: str, code: int = 0) -> None:
        self.text, self.code = text, code

    def run(self, argv: list[str], *, log: Path) -> int:
        log.write_text(self.text)
        return self.code


def test_identity() -> None:
    engine = SpokenEngine(f"qemu-aarch64 version 11.1.3 (x)\nCopyright\n{'ab' * 32}  /opt/q\n")
    found = identify(engine, ["qemu-11.1", NATIVE])  # type: ignore[arg-type]
    assert found["qemu-11.1"].version == "11.1.3 (x)"
    assert found["qemu-11.1"].text == f"11.1.3 (x) sha256:{'ab' * 32}"
    assert found[NATIVE].text == "no emulator"


def test_emulator_that_is_not_in_the_image() -> None:
    with pytest.raises(EngineError, match=r"qemu-10.0 .*does not start.*not found.*invoke image"):
        identify(SpokenEngine("sh: not found", 127), ["qemu-10.0"])  # type: ignore[arg-type]
