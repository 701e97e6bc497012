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

    from tierlab.cells.builds import BuildName

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
_KLEIDIAI_LINKED = re.compile(r"FetchContent_Declare\(\s*kleidiai\b")
_KLEIDIAI_COMPILED = re.compile(r"FetchContent_Declare\(\s*KleidiAI_Download\b")
_KLEIDIAI_VERSION = re.compile(r'KLEIDIAI_COMMIT_TAG\s+"(v[0-9.]+)"')
_ARM_VARIANTS = re.compile(r"ggml_add_cpu_backend_variant\(\s*arm")
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
    kleidiai, notes = _kleidiai(ggml) if options.kleidiai else ({}, ())
    flags |= {
        "BUILD_SHARED_LIBS": "ON",
        "GGML_BACKEND_DL": _switch(options.loadable),
        "GGML_CPU_KLEIDIAI": _switch(bool(kleidiai)),
    }
    flags |= kleidiai | _kernels(options, ggml, optimise)
    if emulated:
        flags["CMAKE_TOOLCHAIN_FILE"] = f"{WRAPPER}/toolchains/aarch64-linux-gnu.cmake"
    return Flags(_arguments(flags), notes)


def _kernels(options: Options, ggml: Path, optimise: str) -> dict[str, str]:
    """All variants, or one architecture. UsageError for a tree without variants for Arm (before May 2025)."""
    if options.mode is Mode.MARCH:
        if "GGML_CPU_ARM_ARCH" in _text(ggml / "src" / "ggml-cpu" / "CMakeLists.txt"):
            return {"GGML_CPU_ARM_ARCH": options.march}
        # The first trees have no option for it; the harness is compiled for it too then.
        flags = f"{optimise} -march={options.march}"
        return {"CMAKE_C_FLAGS_RELEASE": flags, "CMAKE_CXX_FLAGS_RELEASE": flags}
    declared = _text(ggml / "src" / "CMakeLists.txt")
    if declared and not _ARM_VARIANTS.search(declared):
        msg = (
            "this tree has no loadable variants for Arm (they came in 2025); nothing was built. "
            "Give one architecture with --march, like armv8.2-a+dotprod"
        )
        raise UsageError(msg)
    return {"GGML_CPU_ALL_VARIANTS": "ON"}


def _kleidiai(ggml: Path) -> tuple[dict[str, str], tuple[str, ...]]:
    """How the tree gets the packaged KleidiAI, and what there is to say of it; no flags where it has none."""
    text = _text(ggml / "src" / "ggml-cpu" / "CMakeLists.txt")
    root = {"TIERLAB_KLEIDIAI_ROOT": KLEIDIAI_ROOT}
    if _KLEIDIAI_LINKED.search(text):
        return {"FETCHCONTENT_SOURCE_DIR_KLEIDIAI": f"{WRAPPER}/kleidiai", **root}, ()
    if not _KLEIDIAI_COMPILED.search(text):
        return {}, ("this tree has no KleidiAI",)
    own = _KLEIDIAI_VERSION.search(text)
    version = own[1] if own else "another version"
    note = f"KleidiAI is the packaged one; this tree was written for {version}"
    sources = {
        "FETCHCONTENT_SOURCE_DIR_KLEIDIAI_DOWNLOAD": f"{BUILD}/kleidiai-sources",
        "TIERLAB_KLEIDIAI_SOURCES": "ON",
    }
    return {**sources, **root}, (note,)


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


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def options_of(name: BuildName) -> Options:
    """How a build under test is made. As it ships unless its name says otherwise: asserts compiled out,
    so that what they guard shows as wrong numbers or guard verdicts."""
    return Options(
        mode=Mode.MARCH if name.march else Mode.VARIANTS,
        march=name.march,
        assertions=name.assertions,
        llamafile=name.llamafile,
        kleidiai=name.kleidiai,
        openmp=name.openmp,
    )


def _switch(on: bool) -> str:
    return "ON" if on else "OFF"


def _arguments(flags: dict[str, str]) -> tuple[str, ...]:
    return tuple(f"-D{name}={value}" for name, value in sorted(flags.items()))
