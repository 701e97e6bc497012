# SPDX-License-Identifier: MIT
"""Two builds of one program with the same banner, symbols and numbers; one never enters its fast path."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tierlab.dispatch.receipt import Receipt
from tierlab.dispatch.scan import scan_file
from tierlab.toolchain.choose import choose_engine
from tierlab.toolchain.engine import ARM_SYSROOT, EMULATORS, Mount

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tierlab.toolchain.engine import Sandbox

pytestmark = pytest.mark.engine

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(__file__).resolve().parent / "data" / "liar"
FAST = ("kai_run_*_i8mm",)
CALLS = 5
SUM = sum((3 * at - 90) * (7 * at % 100 - 50) for at in range(64))


@dataclass
class Told:
    """What a build printed (L2), what its file holds (L1) and what it executed (L3)."""

    banner: str
    sums: list[int]
    receipt: Receipt
    compiled: dict[str, int]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Sandbox, bool]]:
    engine = choose_engine(say=lambda _: None)
    engine.prepare()
    out = tmp_path_factory.mktemp("liar")
    mounts = [Mount(ROOT / "kernels" / "harness", "/lab/harness"), Mount(DATA, "/lab/data")]
    log = out / "build.log"
    command = ["sh", "build.sh", "/lab/harness", "/lab/out"]
    writable = Mount(out, "/lab/out", writable=True)
    assert engine.run(command, mounts=[*mounts, writable], workdir="/lab/data", log=log) == 0, log.read_text()
    with engine.sandbox([Mount(out, "/lab/out")]) as sandbox:
        yield out, sandbox, engine.emulated


def told(programs: tuple[Path, Sandbox, bool], build: str, cpu: str = "neoverse-n2") -> Told:
    out, sandbox, emulated = programs
    emulator = [EMULATORS["qemu-11.1"], "-L", ARM_SYSROOT, "-cpu", cpu] if emulated else []
    process = sandbox.spawn(
        [*emulator, "./program", f"/lab/out/{build}/kernels.so"], workdir=f"/lab/out/{build}"
    )
    try:
        assert process.wait(120) == 0, process.stderr_text()
    finally:
        process.kill()
    lines = [line.partition(" ")[::2] for line in process.stdout_text().splitlines()]
    found = scan_file(out / build / "kernels.so").binaries[0]
    return Told(
        banner=next(rest for word, rest in lines if word == "banner"),
        sums=[int(rest) for word, rest in lines if word == "sum"],
        receipt=Receipt.parse(2, [rest for word, rest in lines if word == "ran"]),
        compiled={name: count for name, count in found.classes.items() if count},
    )


def test_banner_numbers_and_compiled_code_tell_nothing(programs: tuple[Path, Sandbox, bool]) -> None:
    honest, liar = told(programs, "honest"), told(programs, "liar")
    assert honest.banner == liar.banner == "dot products: I8MM kernel selected"
    assert honest.sums == liar.sums == [SUM] * CALLS
    assert honest.compiled == liar.compiled
    assert honest.compiled["i8mm"] >= 1


def test_receipt_tells_the_liar(programs: tuple[Path, Sandbox, bool]) -> None:
    honest, liar = told(programs, "honest").receipt, told(programs, "liar").receipt
    assert dict(honest.ran) == {"kai_run_dot_i8mm": CALLS}
    assert dict(liar.ran) == {"ggml_vec_dot_plain": CALLS}
    assert honest.calls(FAST) == CALLS
    assert liar.calls(FAST) == 0
