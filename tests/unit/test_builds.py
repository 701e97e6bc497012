# SPDX-License-Identifier: MIT
"""Builds: what is done again and what is not, and what a failure says. The engine is a pretended one."""

from __future__ import annotations

import errno
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tierlab.cells.builds import parse_build
from tierlab.errors import BuildError, EngineError, SourceError, UsageError
from tierlab.toolchain.build_log import first_error, quarters, watched
from tierlab.toolchain.builds import build_tree, compiler_identity
from tierlab.toolchain.flags import Mode, Options, cmake_flags, options_of
from tierlab.toolchain.sources import user_tree

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tierlab.toolchain.build import Build
    from tierlab.toolchain.engine import Mount
    from tierlab.toolchain.sources import Tree

VARIANTS = ("armv8.0_1", "armv8.6_1")
DECLARED = "".join(f"ggml_add_cpu_backend_variant({name})\n" for name in VARIANTS)


class PretendedEngine:
    """Runs no compiler: each variant's library holds the bytes of its own source file."""

    name = "pretended"
    emulated = True

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.log = "[1/2] Building\n[2/2] Linking\n"
        self.code = 0
        self.meanwhile: list[Path] = []

    def manifest(self) -> dict[str, str]:
        return {"gcc-14-aarch64-linux-gnu": "14.2", "bash": "5"}

    def run(
        self, argv: Sequence[str], *, mounts: Sequence[Mount], env: Mapping[str, str], workdir: str, log: Path
    ) -> int:
        at = {mount.target: mount for mount in mounts}
        assert [target for target, mount in at.items() if mount.writable] == ["/lab/build", "/lab/ccache"]
        build, ggml = at["/lab/build"].source, at["/lab/ggml"].source
        log.write_text(self.log)
        if "-S" in argv:
            self.ran.append("configure")
            (build / "build.ninja").write_text("")
            return 0
        self.ran.append("make")
        if self.code:
            return self.code
        (build / "bin").mkdir(exist_ok=True)
        for variant in VARIANTS:
            source = ggml / f"src/{variant}.c"
            if source.exists():
                (build / f"bin/libggml-cpu-{variant}.so").write_bytes(source.read_bytes())
        (build / "bin/libggml.so.0").write_bytes((ggml / "src/ggml.c").read_bytes().split(b"//")[0])
        (build / "bin/libggml.so").unlink(missing_ok=True)
        (build / "bin/libggml.so").symlink_to("libggml.so.0")
        (build / "bin/tierlab-harness").write_bytes((at["/lab/harness"].source / "main.cpp").read_bytes())
        if self.meanwhile:
            self.meanwhile.pop().write_text("changed while it was being built")
        return 0


class Bench:
    """A user's tree, a harness and a cache."""

    def __init__(self, place: Path) -> None:
        self.engine = PretendedEngine()
        self.cache, self.root, self.harness = place / "cache", place / "mine", place / "harness"
        files = ["CMakeLists.txt", "include/ggml.h", "src/CMakeLists.txt", "src/ggml.c"]
        for name in [*files, *(f"src/{variant}.c" for variant in VARIANTS)]:
            self.write(name, f"{name} 1")
        self.write("src/CMakeLists.txt", DECLARED)
        self.harness.mkdir()
        (self.harness / "main.cpp").write_text("harness 1")
        self.said: list[str] = []

    def write(self, name: str, text: str) -> Path:
        path = self.root / "ggml" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    @property
    def tree(self) -> Tree:
        return user_tree(self.root, cache=self.cache)

    def build(self, options: Options | None = None, tree: Tree | None = None) -> Build:
        self.engine.ran.clear()
        return build_tree(
            self.engine,  # type: ignore[arg-type]
            self.tree if tree is None else tree,
            options,
            cache=self.cache,
            harness=self.harness,
            say=self.said.append,
        )


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_first_build(bench: Bench) -> None:
    build = bench.build()
    assert bench.engine.ran == ["configure", "make"]
    assert set(build.file_digests) == {
        *("libggml-cpu-armv8.0_1.so", "libggml-cpu-armv8.6_1.so", "libggml.so.0", "tierlab-harness")
    }
    assert build.variants == ("libggml-cpu-armv8.0_1.so", "libggml-cpu-armv8.6_1.so")
    assert build.harness.read_text() == "harness 1"
    assert (build.backend_dir / "libggml.so").readlink() == Path("libggml.so.0")
    assert (build.name, build.mode, build.tree_digest) == ("user", "variants", bench.tree.digest)


def test_nothing_changed_runs_nothing(bench: Bench) -> None:
    first = bench.build()
    assert bench.build() == first
    assert bench.engine.ran == []


def test_touching_a_file_runs_nothing(bench: Bench) -> None:
    first = bench.build()
    os.utime(bench.root / "ggml/src/ggml.c")
    assert bench.build() == first
    assert bench.engine.ran == []


def test_a_changed_file_changes_only_the_lanes_that_load_it(bench: Bench) -> None:
    first = bench.build()
    bench.write("src/armv8.6_1.c", "other")
    second = bench.build()
    assert bench.engine.ran == ["make"]
    assert second.digest != first.digest
    assert second.lane_digest("libggml-cpu-armv8.0_1.so") == first.lane_digest("libggml-cpu-armv8.0_1.so")
    assert second.lane_digest("libggml-cpu-armv8.6_1.so") != first.lane_digest("libggml-cpu-armv8.6_1.so")
    assert second.lane_digest("static") != first.lane_digest("static")


def test_a_change_that_all_use_changes_all_lanes(bench: Bench) -> None:
    first = bench.build()
    (bench.harness / "main.cpp").write_text("harness 2")
    second = bench.build()
    assert all(first.lane_digest(name) != second.lane_digest(name) for name in first.variants)


def test_equal_bytes_keep_their_identity(bench: Bench) -> None:
    first = bench.build()
    bench.write("src/ggml.c", "src/ggml.c 1// a comment")
    second = bench.build()
    assert bench.engine.ran == ["make"]
    assert (second.binaries, second.directory) == (first.binaries, first.directory)
    assert second.digest != first.digest


def test_a_finished_build_stays_what_it_was(bench: Bench) -> None:
    first = bench.build()
    before = {path.name: path.read_bytes() for path in first.directory.iterdir()}
    bench.write("src/armv8.6_1.c", "other")
    assert bench.build().directory != first.directory
    assert {path.name: path.read_bytes() for path in first.directory.iterdir()} == before


def test_a_damaged_result_is_made_again(bench: Bench) -> None:
    first = bench.build()
    first.harness.write_text("damaged")
    assert bench.build() == first
    assert first.harness.read_text() == "harness 1"


def test_changed_content_with_an_old_time_drops_the_objects(bench: Bench) -> None:
    first = bench.build()
    marker = first.log.parent / "build" / "object.o"
    marker.write_text("made from the old content")
    os.utime(bench.write("src/ggml.c", "older file"), (1, 1))
    bench.build()
    assert bench.engine.ran == ["configure", "make"]
    assert not marker.exists()


def test_a_changed_file_keeps_the_other_objects(bench: Bench) -> None:
    first = bench.build()
    marker = first.log.parent / "build" / "object.o"
    marker.write_text("still right")
    bench.write("src/ggml.c", "newer file")
    bench.build()
    assert marker.exists()


def test_a_new_header_drops_the_objects(bench: Bench) -> None:
    bench.build()
    bench.write("src/ggml.h", "hides include/ggml.h")
    bench.build()
    assert bench.engine.ran == ["configure", "make"]


def test_a_variant_that_the_rules_no_longer_have_is_gone(bench: Bench) -> None:
    bench.build()
    (bench.root / "ggml/src/armv8.6_1.c").unlink()
    bench.write("src/CMakeLists.txt", DECLARED.splitlines()[0])
    assert bench.build().variants == ("libggml-cpu-armv8.0_1.so",)


def test_a_tree_that_changes_while_it_is_built_is_built_again(bench: Bench) -> None:
    bench.engine.meanwhile.append(bench.root / "ggml/src/armv8.0_1.c")
    build = bench.build()
    assert (build.directory / "libggml-cpu-armv8.0_1.so").read_text() == "changed while it was being built"
    assert build.tree_digest == bench.tree.digest
    assert any("changed meanwhile" in line for line in bench.said)


def test_a_tree_that_never_rests(bench: Bench, tmp_path: Path) -> None:
    names = ["src/ggml.c", "src/armv8.0_1.c", "src/armv8.6_1.c", "include/ggml.h"]
    bench.engine.meanwhile += [bench.root / "ggml" / name for name in names]
    with pytest.raises(BuildError, match="changed during each of 3 builds"):
        bench.build()


def test_failure_shows_the_first_error_on_the_hosts_path(bench: Bench) -> None:
    bench.engine.code = 1
    bench.engine.log = (
        "[1/3] Building C object x.o\nFAILED: x.o\ncc -c x.c\n"
        "/lab/ggml/src/x.c: In function 'f':\n/lab/ggml/src/x.c:7:1: warning: unused\n"
        "/lab/ggml/src/x.c:9:5: error: unknown type name 'flot'\n/lab/ggml/src/x.c:11:1: error: other\n"
    )
    with pytest.raises(BuildError) as caught:
        bench.build()
    text = str(caught.value)
    assert f"{bench.root}/ggml/src/x.c:9:5: error: unknown type name 'flot'" in text
    assert "other" not in text
    log = text.rsplit(" ", 1)[1]
    assert Path(log).read_text() == bench.engine.log
    assert caught.value.exit_code == 2


def test_after_a_failure_the_corrected_tree_builds(bench: Bench) -> None:
    bench.engine.code = 1
    with pytest.raises(BuildError):
        bench.build()
    bench.engine.code = 0
    bench.write("src/ggml.c", "corrected")
    assert (bench.build().directory / "libggml.so.0").read_text() == "corrected"
    assert bench.engine.ran == ["make"]


def test_full_disk_is_not_the_trees_fault(bench: Bench) -> None:
    bench.engine.code = 1
    bench.engine.log = "x.c:1:1: fatal error: error writing to x.s: No space left on device\n"
    with pytest.raises(EngineError, match=r"became full while user was built.*TIERLAB_CACHE"):
        bench.build()


def test_a_published_tree_that_failed_fails_again_at_once(bench: Bench) -> None:
    published = replace(bench.tree, name="sdist-0.3.16")
    bench.engine.code, bench.engine.log = 1, "/lab/ggml/src/ggml.c:1:2: error: what?\n"
    for ran in (["configure", "make"], []):
        bench.engine.ran.clear()
        with pytest.raises(BuildError, match="error: what"):
            bench.build(tree=published)
        assert bench.engine.ran == ran
    bench.engine.code = 0
    bench.engine.ran.clear()
    bench.build()
    assert bench.engine.ran == ["configure", "make"], "an owner's tree is tried again"


def test_a_killed_compiler_is_tried_again(bench: Bench) -> None:
    published = replace(bench.tree, name="sdist-0.3.16")
    bench.engine.code = 137
    for _ in range(2):
        bench.engine.ran.clear()
        with pytest.raises(BuildError, match="was killed"):
            bench.build(tree=published)
        assert bench.engine.ran[-1] == "make"


def test_killed_compiler(bench: Bench) -> None:
    bench.engine.code = 137
    with pytest.raises(BuildError, match="is there enough memory"):
        bench.build()


def test_modes_do_not_share_a_place(bench: Bench) -> None:
    places = {
        bench.build(options).log
        for options in (
            Options(),
            Options(mode=Mode.MARCH, march="armv8.2-a+dotprod"),
            Options(mode=Mode.REFERENCE),
            Options(assertions=False),
        )
    }
    assert len(places) == 4


@pytest.mark.parametrize(
    ("log", "line"),
    [
        ("a\nx.cpp:3:4: fatal error: y.h: No such file\nb", "x.cpp:3:4: fatal error: y.h: No such file"),
        (
            "ld: x.o: in function `f':\nx.c:(.text+0x4): undefined reference to `g'\n",
            "x.c:(.text+0x4): undefined reference to `g'",
        ),
        (
            "cc1plus: error: bad value for '-march=' switch\n",
            "cc1plus: error: bad value for '-march=' switch",
        ),
        (
            "-- ok\nCMake Error at CMakeLists.txt:3 (message):\n  no ggml\n  here\n\n\nCall Stack\n",
            "CMake Error at CMakeLists.txt:3 (message): no ggml here",
        ),
        ("ninja: error: loading 'build.ninja': gone\n", "ninja: error: loading 'build.ninja': gone"),
        ("words\nlast words\n", "last words"),
        ("", "the log is empty"),
    ],
)
def test_first_error(log: str, line: str) -> None:
    assert first_error(log, {}) == line


def flags(options: Options, ggml: Path, emulated: bool = True) -> dict[str, str]:
    return dict(item[2:].split("=", 1) for item in cmake_flags(options, ggml, emulated).arguments)


@pytest.fixture
def ggml(tmp_path: Path) -> Path:
    rules = tmp_path / "src/ggml-cpu/CMakeLists.txt"
    rules.parent.mkdir(parents=True)
    rules.write_text("FetchContent_Declare(kleidiai\n  URL x)\nGGML_CPU_ARM_ARCH\n")
    (tmp_path / "src/CMakeLists.txt").write_text(DECLARED)
    return tmp_path


def test_flags_of_the_default_build(ggml: Path) -> None:
    found = flags(Options(), ggml)
    assert found["GGML_CPU_ALL_VARIANTS"] == found["GGML_BACKEND_DL"] == found["GGML_CPU_KLEIDIAI"] == "ON"
    assert found["GGML_NATIVE"] == found["GGML_LLAMAFILE"] == "OFF"
    assert found["CMAKE_C_FLAGS_RELEASE"] == found["CMAKE_CXX_FLAGS_RELEASE"] == "-O3"
    assert found["CMAKE_TOOLCHAIN_FILE"].endswith("aarch64-linux-gnu.cmake")
    assert "-DNDEBUG" in flags(Options(assertions=False), ggml)["CMAKE_C_FLAGS_RELEASE"]


def test_real_hardware_needs_no_cross_compiler(ggml: Path) -> None:
    assert "CMAKE_TOOLCHAIN_FILE" not in flags(Options(), ggml, emulated=False)


def test_flags_of_one_march(ggml: Path) -> None:
    found = flags(Options(mode=Mode.MARCH, march="armv8.2-a+dotprod"), ggml)
    assert found["GGML_CPU_ARM_ARCH"] == "armv8.2-a+dotprod"
    assert "GGML_CPU_ALL_VARIANTS" not in found


def test_the_reference_uses_no_instruction_set(ggml: Path) -> None:
    found = flags(Options(mode=Mode.REFERENCE), ggml)
    assert {found[f"GGML_{name}"] for name in ("SSE42", "AVX", "AVX2", "FMA", "F16C", "AVX512")} == {"OFF"}
    assert found["BUILD_SHARED_LIBS"] == found["GGML_BACKEND_DL"] == found["GGML_CPU_KLEIDIAI"] == "OFF"
    assert found["CMAKE_C_FLAGS_RELEASE"] == "-O3 -ffp-contract=off -include /lab/wrapper/reference.h"
    assert found["CMAKE_TOOLCHAIN_FILE"].endswith("/reference.cmake")
    arm = Options(mode=Mode.REFERENCE_ARM)
    assert flags(arm, ggml)["CMAKE_TOOLCHAIN_FILE"].endswith("/reference-aarch64.cmake")
    assert flags(arm, ggml, emulated=False)["CMAKE_TOOLCHAIN_FILE"].endswith("/reference.cmake")


def test_a_tree_without_kleidiai_says_so(ggml: Path) -> None:
    (ggml / "src/ggml-cpu/CMakeLists.txt").write_text("")
    found = cmake_flags(Options(), ggml, True)
    assert "-DGGML_CPU_KLEIDIAI=OFF" in found.arguments
    assert found.notes == ("this tree has no KleidiAI",)


def test_a_tree_that_compiles_kleidiai_gets_the_packaged_one_and_says_so(ggml: Path) -> None:
    rules = 'set(KLEIDIAI_COMMIT_TAG "v1.11.0")\nFetchContent_Declare(KleidiAI_Download URL x)\n'
    (ggml / "src/ggml-cpu/CMakeLists.txt").write_text(rules)
    found = cmake_flags(Options(), ggml, True)
    assert "-DGGML_CPU_KLEIDIAI=ON" in found.arguments
    assert "-DTIERLAB_KLEIDIAI_SOURCES=ON" in found.arguments
    assert found.notes == ("KleidiAI is the packaged one; this tree was written for v1.11.0",)
    assert "-DGGML_CPU_KLEIDIAI=OFF" in cmake_flags(Options(kleidiai=False), ggml, True).arguments


def test_a_tree_without_variants_asks_for_an_architecture(ggml: Path) -> None:
    (ggml / "src/CMakeLists.txt").write_text("ggml_add_cpu_backend_variant(haswell)\n")
    with pytest.raises(UsageError, match="Give one architecture with --march"):
        cmake_flags(Options(), ggml, True)


def test_the_oldest_trees_get_their_architecture_as_compiler_flags(ggml: Path) -> None:
    (ggml / "src/ggml-cpu/CMakeLists.txt").write_text("")
    found = flags(Options(mode=Mode.MARCH, march="armv8.2-a+dotprod", assertions=False), ggml)
    assert found["CMAKE_C_FLAGS_RELEASE"] == "-O3 -DNDEBUG -march=armv8.2-a+dotprod"
    assert "GGML_CPU_ARM_ARCH" not in found


@pytest.mark.parametrize(
    ("name", "differs"),
    [
        ("stock", Options(assertions=False)),
        ("stock:assertions", Options()),
        ("sdist-0.3.16:llamafile", Options(assertions=False, llamafile=True)),
        ("user:no-openmp:no-kleidiai", Options(assertions=False, openmp=False, kleidiai=False)),
        ("stock:armv8-a", Options(Mode.MARCH, "armv8-a", assertions=False)),
    ],
)
def test_a_name_says_how_to_build(name: str, differs: Options) -> None:
    assert options_of(parse_build(name)) == differs


@pytest.mark.parametrize(
    ("mode", "march"),
    [(Mode.MARCH, ""), (Mode.VARIANTS, "armv8-a"), (Mode.MARCH, "x86-64"), (Mode.MARCH, "armv8-a -O0")],
)
def test_march_that_makes_no_sense(mode: Mode, march: str) -> None:
    with pytest.raises(UsageError):
        Options(mode=mode, march=march)


def test_the_faulty_harness_is_made_only_when_asked_for(bench: Bench) -> None:
    plain = bench.build()
    faulty = bench.build(Options(faults=True))
    assert bench.engine.ran == ["make"]
    (plain.log.parent / "build/bin/tierlab-harness-faulty").write_text("made for the faults")
    assert bench.build() == plain
    assert bench.engine.ran == []
    bench.write("src/ggml.c", "changed")
    assert "tierlab-harness-faulty" not in bench.build().file_digests
    assert "tierlab-harness-faulty" in bench.build(Options(faults=True)).file_digests
    assert faulty.faulty_harness.name == "tierlab-harness-faulty"


def test_only_what_makes_binaries_identifies_the_toolchain() -> None:
    def identity(**versions: str) -> str:
        engine = PretendedEngine()
        engine.manifest = lambda: versions  # type: ignore[method-assign]
        return compiler_identity(engine)  # type: ignore[arg-type]

    assert identity(gcc="14", bash="5") == identity(bash="6", gcc="14", perl="5")
    assert identity(gcc="14") != identity(gcc="15")


def test_a_disk_that_fills_up_while_the_result_is_kept(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(shutil, "copy2", full)
    with pytest.raises(SourceError, match="is full"):
        bench.build()
    assert list((bench.cache / "binaries").iterdir()) == []
    monkeypatch.undo()
    assert bench.build().harness.read_text() == "harness 1"


def test_a_long_build_tells_each_quarter() -> None:
    said: list[str] = []
    tell = quarters("stock", said.append)
    for done in range(201):
        tell(done, 200)
    assert said == [f"build stock: {done} of 200 steps" for done in (50, 100, 150)]
    tell = quarters("stock", said.append)
    tell(2, 3)
    assert len(said) == 3


def test_progress_is_told_to_the_end(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    with watched(tmp_path / "log", lambda done, total: told.append((done, total))):
        (tmp_path / "log").write_text("[1/9] a\nnoise [7/9]\n[9/9] z\n")
    assert told[-1] == (9, 9)
