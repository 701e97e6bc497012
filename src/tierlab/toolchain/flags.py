# SPDX-License-Identifier: MIT
"""What is built of a tree, as CMake options; every value's reason stands beside it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from tierlab.errors import UsageError
from tierlab.toolchain.build import FAULTY_NAME, HARNESS_NAME
from tierlab.toolchain.engine import KLEIDIAI_ROOT

if TYPE_CHECKING:
    from pathlib import Path

GGML = "/lab/ggml"
HARNESS = "/lab/harness"
WRAPPER = "/lab/wrapper"
BUILD = "/lab/build"
CCACHE = "/lab/ccache"
"""Where the parts appear inside the engine: the same for every tree, so that equal sources give equal bytes
(`__FILE__`, compiler cache) wherever they lie on the host."""

_X86_SWITCHES = (
    *("SSE42", "AVX", "AVX2", "AVX_VNNI", "BMI2", "FMA", "F16C"),
    *("AVX512", "AVX512_VBMI", "AVX512_VNNI", "AVX512_BF16", "AMX_TILE", "AMX_INT8", "AMX_BF16"),
)
_KLEIDIAI_LINKABLE = re.compile(r"FetchContent_Declare\(\s*kleidiai\b")
_MARCH = re.compile(r"armv[0-9][a-z0-9.+_-]*")


class Mode(StrEnum):
    """VARIANTS: every backend variant as a loadable file. MARCH: one backend for one `-march`. REFERENCE: the
    scalar kernels for the build machine, linked statically. REFERENCE_ARM: the same for AArch64."""

    VARIANTS = "variants"
    MARCH = "march"
    REFERENCE = "reference"
    REFERENCE_ARM = "reference-arm"

    @property
    def is_reference(self) -> bool:
        return self in (Mode.REFERENCE, Mode.REFERENCE_ARM)


@dataclass(frozen=True)
class Options:
    """What to build of a tree.

    `march` is GCC's text (`armv8.2-a+dotprod`), for Mode.MARCH alone. `assertions`: without them an
    `assert` of a kernel turns into a silently wrong number. `llamafile`: tinyBLAS takes F32, F16, Q8_0 and
    Q4_0 products away from the kernels. `openmp`: run it with OMP_WAIT_POLICY=passive. `faults`
    also builds `tierlab-harness-faulty`.
    """

    mode: Mode = Mode.VARIANTS
    march: str = ""
    assertions: bool = True
    llamafile: bool = False
    kleidiai: bool = True
    openmp: bool = True
    faults: bool = False
    loadable: bool = True

    @property
    def targets(self) -> tuple[str, ...]:
        """What to make; the backends come along."""
        return (HARNESS_NAME, FAULTY_NAME) if self.faults else (HARNESS_NAME,)

    def __post_init__(self) -> None:
        if (self.mode is Mode.MARCH) != bool(self.march):
            msg = "a -march text and the build mode `march` go together; nothing was built. Give both or none"
            raise UsageError(msg)
        if self.march and not _MARCH.fullmatch(self.march):
            msg = f"-march={self.march} is no Arm architecture; nothing was built. Like: armv8.6-a+sve+i8mm"
            raise UsageError(msg)


@dataclass(frozen=True)
class Flags:
    """CMake's arguments, and what had to differ from what was asked for."""

    arguments: tuple[str, ...]
    notes: tuple[str, ...] = ()


def cmake_flags(options: Options, ggml: Path, emulated: bool) -> Flags:
    """The CMake arguments for the tree whose ggml lies at `ggml`; `emulated`: cross-compile for AArch64."""
    # No -DNDEBUG, unlike CMake's Release: asserts stay, so a violated one is a crash and not a number.
    optimise = "-O3" if options.assertions else "-O3 -DNDEBUG"
    flags = {
        "TIERLAB_GGML": GGML,
        "TIERLAB_HARNESS": HARNESS,
        # The rules of the faulty harness are always there; Options.targets decides whether it is made.
        "TIERLAB_FAULTS": "ON",
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_C_FLAGS_RELEASE": optimise,
        "CMAKE_CXX_FLAGS_RELEASE": optimise,
        "GGML_NATIVE": "OFF",
        "GGML_LLAMAFILE": _switch(options.llamafile),
        # llama.cpp's own default. ggml's other barrier spins, and a spinning thread that shares a core with
        # the one it waits for costs a time slice a barrier: about 15 times the time of a small product.
        "GGML_OPENMP": _switch(options.openmp and not options.mode.is_reference),
        # The wrapper sets the launcher; ggml's way would set it a second time.
        "GGML_CCACHE": "OFF",
        # The commit of a checkout must not change the bytes of an otherwise equal build.
        "GGML_BUILD_COMMIT": "tierlab",
        "GIT_EXE": "",
    }
    if options.mode.is_reference:
        return Flags(_arguments({**flags, **_reference(options, optimise, emulated)}))
    notes: tuple[str, ...] = ()
    kleidiai = options.kleidiai
    if kleidiai and not _kleidiai_links(ggml):
        kleidiai = False
        notes = ("KleidiAI is off: this tree compiles KleidiAI's sources and cannot link the package",)
    return Flags(_arguments({**flags, **_arm(options, kleidiai, emulated)}), notes)


def _arm(options: Options, kleidiai: bool, emulated: bool) -> dict[str, str]:
    flags = {
        "BUILD_SHARED_LIBS": "ON",
        "GGML_BACKEND_DL": _switch(options.loadable),
        "GGML_CPU_KLEIDIAI": _switch(kleidiai),
    }
    if kleidiai:
        flags |= {
            "FETCHCONTENT_SOURCE_DIR_KLEIDIAI": f"{WRAPPER}/kleidiai",
            "TIERLAB_KLEIDIAI_ROOT": KLEIDIAI_ROOT,
        }
    if options.mode is Mode.MARCH:
        flags["GGML_CPU_ARM_ARCH"] = options.march
    else:
        flags["GGML_CPU_ALL_VARIANTS"] = "ON"
    if emulated:
        flags["CMAKE_TOOLCHAIN_FILE"] = f"{WRAPPER}/toolchains/aarch64-linux-gnu.cmake"
    return flags


def _reference(options: Options, optimise: str, emulated: bool) -> dict[str, str]:
    cross = options.mode is Mode.REFERENCE_ARM and emulated
    # No fused multiply-add: both references round after every operation, so they can be compared bit by bit.
    scalar = f"{optimise} -ffp-contract=off -include {WRAPPER}/reference.h"
    return {
        "CMAKE_TOOLCHAIN_FILE": f"{WRAPPER}/toolchains/reference{'-aarch64' if cross else ''}.cmake",
        "CMAKE_C_FLAGS_RELEASE": scalar,
        "CMAKE_CXX_FLAGS_RELEASE": scalar,
        "BUILD_SHARED_LIBS": "OFF",
        "TIERLAB_STATIC": "ON",
        "GGML_STATIC": "ON",
        "GGML_BACKEND_DL": "OFF",
        "GGML_CPU_KLEIDIAI": "OFF",
        **{f"GGML_{name}": "OFF" for name in _X86_SWITCHES},
    }


def _kleidiai_links(ggml: Path) -> bool:
    """Whether the tree takes KleidiAI as a target `kleidiai` (since ggml fetches it under that name)."""
    try:
        text = (ggml / "src" / "ggml-cpu" / "CMakeLists.txt").read_text(errors="replace")
    except OSError:
        return False
    return _KLEIDIAI_LINKABLE.search(text) is not None


def _switch(on: bool) -> str:
    return "ON" if on else "OFF"


def _arguments(flags: dict[str, str]) -> tuple[str, ...]:
    return tuple(f"-D{name}={value}" for name, value in sorted(flags.items()))
