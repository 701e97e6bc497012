# SPDX-License-Identifier: MIT
"""Builds of the real tree: what comes out, what is built again after a change, and what an error says."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from harness_rig import SHIPPED, Rig

from tierlab.errors import BuildError
from tierlab.harness.messages import Answer
from tierlab.toolchain.build_log import STEP
from tierlab.toolchain.builds import build_tree
from tierlab.toolchain.choose import choose_engine
from tierlab.toolchain.engine import EMULATORS
from tierlab.toolchain.flags import Mode, Options
from tierlab.toolchain.sources import stock_tree, user_tree

if TYPE_CHECKING:
    from pathlib import Path

    from tierlab.toolchain.build import Build
    from tierlab.toolchain.engine import Engine
    from tierlab.toolchain.sources import Tree

pytestmark = pytest.mark.engine

VARIANTS = ("8.0_1", "8.2_1", "8.2_2", "8.2_3", "8.6_1", "8.6_2", "9.2_1", "9.2_2")
ONE_MARCH = Options(mode=Mode.MARCH, march="armv8.2-a+dotprod")


def quiet(_: str) -> None:
    """Say nothing."""


def functions(path: Path) -> set[str]:
    """The functions in a file's symbol table."""
    with path.open("rb") as file:
        table = ELFFile(file).get_section_by_name(".symtab")
        assert table is not None, f"{path.name} is stripped: its kernels could not be counted"
        return {symbol.name for symbol in table.iter_symbols() if symbol["st_info"]["type"] == "STT_FUNC"}


@pytest.fixture(scope="module")
def engine() -> Engine:
    made = choose_engine(say=quiet)
    made.prepare()
    return made


@pytest.fixture(scope="module")
def stock() -> Tree:
    return stock_tree(say=quiet)


@pytest.fixture(scope="module")
def copy(stock: Tree, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's copy of the pinned ggml, at a path of its own."""
    root = tmp_path_factory.mktemp("user") / "llama.cpp"
    shutil.copytree(stock.ggml, root / "ggml")
    return root


@pytest.fixture(scope="module")
def first(engine: Engine, copy: Path) -> Build:
    return build_tree(engine, user_tree(copy), ONE_MARCH, say=quiet)


@pytest.fixture(scope="module")
def rig() -> Rig:
    return Rig()


def steps(build: Build) -> int:
    """How many commands the last build took."""
    found = STEP.findall(build.log.read_bytes())
    return int(found[-1][1]) if found else 0


def test_all_variants(engine: Engine, stock: Tree) -> None:
    build = build_tree(engine, stock, SHIPPED, say=quiet)
    assert build.variants == tuple(f"libggml-cpu-armv{name}.so" for name in VARIANTS)
    for variant in build.variants:
        names = functions(build.directory / variant)
        assert "ggml_vec_dot_q4_0_q8_0" in names
        assert any(name.startswith("kai_run_matmul") for name in names), f"no KleidiAI in {variant}"
    with build.harness.open("rb") as file:
        assert ELFFile(file)["e_machine"] == "EM_AARCH64"


def test_reference_needs_nothing_of_the_image(engine: Engine, stock: Tree) -> None:
    build = build_tree(engine, stock, Options(mode=Mode.REFERENCE), say=quiet)
    assert set(build.file_digests) == {"tierlab-harness"}
    with build.harness.open("rb") as file:
        elf = ELFFile(file)
        assert elf.num_segments() > 0
        assert {segment["p_type"] for segment in elf.iter_segments()} & {"PT_INTERP", "PT_DYNAMIC"} == set()
        machine = "EM_X86_64" if engine.emulated else "EM_AARCH64"
        assert elf["e_machine"] == machine
    assert "ggml_vec_dot_q4_0_q8_0" in functions(build.harness)


def test_equal_sources_give_equal_bytes_wherever_they_lie(engine: Engine, stock: Tree, first: Build) -> None:
    there = build_tree(engine, stock, ONE_MARCH, say=quiet)
    assert there.file_digests == first.file_digests
    assert there.directory == first.directory


def test_again_runs_nothing(engine: Engine, copy: Path, first: Build) -> None:
    before = first.log.stat().st_mtime_ns
    assert build_tree(engine, user_tree(copy), ONE_MARCH, say=quiet) == first
    assert first.log.stat().st_mtime_ns == before


def test_one_changed_file(engine: Engine, copy: Path, first: Build) -> None:
    source = copy / "ggml/src/ggml-cpu/arch/arm/quants.c"
    original = source.read_text()
    try:
        source.write_text(
            original + "\nint tierlab_was_here(void);\nint tierlab_was_here(void) { return 1; }\n"
        )
        changed = build_tree(engine, user_tree(copy), ONE_MARCH, say=quiet)
        assert steps(changed) <= 4  # compile it, link the backend, and what stands behind the backend
        differing = {
            name for name, value in first.file_digests.items() if changed.file_digests[name] != value
        }
        assert differing == {"libggml-cpu.so"}
        source.write_text(original + "\n/* a comment */\n")
        assert build_tree(engine, user_tree(copy), ONE_MARCH, say=quiet).directory == first.directory
    finally:
        source.write_text(original)


def test_compile_error(engine: Engine, copy: Path, first: Build) -> None:
    source = copy / "ggml/src/ggml-cpu/arch/arm/quants.c"
    original = source.read_text()
    line = original.count("\n") + 1
    try:
        source.write_text(original + "flot x;\n")
        with pytest.raises(
            BuildError, match=rf"{re.escape(str(source))}:{line}:1: error: unknown type name .flot."
        ):
            build_tree(engine, user_tree(copy), ONE_MARCH, say=quiet)
    finally:
        source.write_text(original)
    assert build_tree(engine, user_tree(copy), ONE_MARCH, say=quiet).directory == first.directory


def test_the_users_tree_is_left_as_it_was(stock: Tree, copy: Path, first: Build) -> None:
    assert user_tree(copy).digest == stock.digest
    assert first.tree_digest == stock.digest


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16", "q4_0", "q8_0", "q4_k", "iq4_xs"])
def test_both_references_compute_the_same_bytes(rig: Rig, kind: str) -> None:
    """Scalar code without fused operations has one answer, on x86-64 as on AArch64."""
    random = np.random.default_rng(7)
    weights, activations = (
        random.standard_normal((24, 512), np.float32),
        random.standard_normal((5, 512), np.float32),
    )
    outputs = []
    for mode in (Mode.REFERENCE, Mode.REFERENCE_ARM):
        emulator = (
            [EMULATORS["qemu-11.1"], "-cpu", "max"]
            if mode is Mode.REFERENCE_ARM and rig.engine.emulated
            else []
        )
        with rig._started(rig.build(mode), "tierlab-harness", tuple(emulator)) as harness:
            blocks = harness.quantised(kind, weights)
            outcome, output = harness.product(kind, blocks, activations, 24)
            assert isinstance(outcome, Answer)
            assert outcome.status == "ok", outcome.message
            outputs.append((blocks.tobytes(), output.tobytes()))
    assert outputs[0] == outputs[1]
