# SPDX-License-Identifier: MIT
"""Call counters on the real kernels, against the emulator's own log of what it executed.

The same process gives both figures: the harness its counts, the emulator one log line for each execution of
a block in the backend's code. A call of a function is an execution of the block at its first instruction.
"""

from __future__ import annotations

import re
import shutil
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from harness_rig import SHIPPED

from tierlab.dispatch import is_kernel, kernel_symbols, ran_expected
from tierlab.harness.messages import Answer, Request
from tierlab.harness.session import HarnessCommand, Session, SessionFolder
from tierlab.toolchain.builds import build_tree
from tierlab.toolchain.choose import choose_engine
from tierlab.toolchain.engine import ARM_SYSROOT, EMULATORS, Mount
from tierlab.toolchain.sources import stock_tree

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tierlab.toolchain.build import Build
    from tierlab.toolchain.engine import Engine

pytestmark = pytest.mark.engine

# A reserved guest address space makes load addresses the same in every run of the same program.
FIXED_ADDRESSES = ("-R", "0x10000000000")

# Type, bytes of a weight row of 512, path, what must run.
CASES = (
    ("q4_0", 288, "repack", ["ggml_gemm_q4_0_4x*_q8_0"]),
    ("q4_k", 288, "repack", ["ggml_gemm_q4_K_8x*_q8_K"]),
    ("q4_k", 288, "default", ["ggml_vec_dot_q4_K_q8_K"]),
    ("q4_0", 288, "kleidiai", ["kai_run_matmul_clamp_f32_*"]),
)
M, N, K = 6, 24, 512
PLACES = (
    ("qemu-10.0", "neoverse-n1", "libggml-cpu-armv8.2_2.so"),
    ("qemu-11.1", "neoverse-n2", "libggml-cpu-armv8.6_2.so"),
    ("qemu-10.0", "max,sve-max-vq=1,sme_fa64=off", "libggml-cpu-armv9.2_2.so"),
    ("qemu-11.1", "max,sve=off,sme512=on,sme_fa64=off", "libggml-cpu-armv8.2_2.so"),
)


@dataclass(frozen=True)
class Lab:
    engine: Engine
    build: Build
    folder: Path


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    engine = choose_engine(say=lambda _: None)
    if not engine.emulated:
        pytest.skip("hardware keeps no log of executed blocks")
    engine.prepare()
    build = build_tree(engine, stock_tree(say=lambda _: None), SHIPPED, say=lambda _: None)
    return Lab(engine, build, tmp_path_factory.mktemp("variant"))


def run_cells(
    lab: Lab, place: tuple[str, str], variant: str, options: Sequence[str]
) -> tuple[dict[str, dict[str, int]], str]:
    """Every case once in one process: case → counts, and the emulator's log."""
    emulator, cpu = place
    backends = lab.folder / variant.removesuffix(".so")
    backends.mkdir(exist_ok=True)
    shutil.copy(lab.build.backend_dir / variant, backends)  # alone, so that no other one is probed
    with SessionFolder() as folder:
        mounts = [Mount(lab.build.directory, "/lab/build"), Mount(backends, "/lab/backends"), folder.mount]
        command = HarnessCommand(
            executable=f"/lab/build/{lab.build.harness.name}",
            backend_dir="/lab/backends",
            build_id="test",
            emulator=(EMULATORS[emulator], *options, "-D", "/session/log", "-L", ARM_SYSROOT, "-cpu", cpu),
        )
        with lab.engine.sandbox(mounts) as sandbox, Session(folder, command, sandbox.spawn) as session:
            assert session.start().kernels == len(kernel_symbols(backends / variant))
            counts = {f"{case[0]}/{case[2]}": run_cell(session, case) for case in CASES}
        return counts, (folder.path / "log").read_text(errors="replace")


def run_cell(session: Session, case: tuple[str, int, str, list[str]]) -> dict[str, int]:
    weight_type, row_bytes, path, _ = case
    slot = session.arena.slots[0]
    slot.reset()
    values = np.random.default_rng(1)
    weights = slot.put(values.integers(0, 48, N * row_bytes, np.uint8))  # no byte pair is an Inf or NaN scale
    activations = slot.put(values.standard_normal((M, K)).astype(np.float32))
    session.submit(
        Request(
            cell=1,
            op="mul_mat",
            weight_type=weight_type,
            shape=(M, N, K),
            path=path,
            weights=weights,
            activations=activations,
            output=slot.reserve(4 * M * N),
        )
    )
    answer = session.receive(120)
    assert isinstance(answer, Answer), answer
    assert answer.status == "ok", answer.message
    return answer.ran


def load_address(log: str, variant: str) -> int:
    """Where the backend was last mapped, from the emulator's log of system calls.

    The loader opens the file and maps it; whoever only reads it maps none of it.
    """
    uses = [part.partition("openat(")[0] for part in log.split(f'{variant}",')[1:]]
    mapped = [re.search(r"MAP_FIXED,\d+,0\) = (0x[0-9a-f]+)", use) for use in uses]
    return [int(found[1], 16) for found in mapped if found is not None][-1]


def executions(log: str) -> Counter[int]:
    """Guest address → number of executions of the block that begins there."""
    return Counter(int(pc, 16) for pc in re.findall(r"^Trace \d+: \S+ \[[0-9a-f]+/([0-9a-f]+)/", log, re.M))


def kernel_addresses(path: Path) -> dict[str, int]:
    with path.open("rb") as stream:
        symbols = ELFFile(stream).get_section_by_name(".symtab").iter_symbols()
        return {
            symbol.name: symbol["st_value"]
            for symbol in symbols
            if is_kernel(symbol.name) and symbol["st_info"]["type"] == "STT_FUNC" and symbol["st_value"]
        }


@pytest.mark.parametrize(("emulator", "cpu", "variant"), PLACES)
def test_counts_are_those_of_the_emulators_own_log(lab: Lab, emulator: str, cpu: str, variant: str) -> None:
    place = (emulator, cpu)
    first, system_calls = run_cells(lab, place, variant, (*FIXED_ADDRESSES, "-strace"))
    base = load_address(system_calls, variant)
    path = lab.build.backend_dir / variant
    bounds = f"{base:#x}+{path.stat().st_size:#x}"
    counts, log = run_cells(lab, place, variant, (*FIXED_ADDRESSES, "-d", "exec,nochain", "-dfilter", bounds))
    assert counts == first
    seen = executions(log)
    logged = {name: seen[base + at] for name, at in kernel_addresses(path).items() if seen[base + at]}
    counted = sum((Counter(ran) for ran in counts.values()), Counter())
    # Weights are packed before a cell's counters are reset.
    packing = {name for name in logged if name.startswith("kai_run_rhs_pack")}
    assert {name: calls for name, calls in logged.items() if name not in packing} == dict(counted)
    for weight_type, _, way, expected in CASES:
        assert ran_expected(expected, counts[f"{weight_type}/{way}"]) > 0
