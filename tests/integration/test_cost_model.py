# SPDX-License-Identifier: MIT
"""Hand-made assembly whose cycles are known, through disassembler, walk and llvm-mca; and real kernels."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tierlab.cells.load import load_matrix
from tierlab.dispatch.a64_walk import WalkError, walk
from tierlab.dispatch.block_loop import BlockLoop, Work, block_loop
from tierlab.dispatch.cost_model import ModelError
from tierlab.dispatch.cost_plan import load_plan
from tierlab.errors import BuildError
from tierlab.run.survey_cost import cost_survey, disassembled, modelled
from tierlab.toolchain.builds import build_tree
from tierlab.toolchain.choose import choose_engine
from tierlab.toolchain.engine import Mount
from tierlab.toolchain.flags import Mode, Options
from tierlab.toolchain.sources import stock_tree

if TYPE_CHECKING:
    from collections.abc import Callable

    from tierlab.toolchain.engine import Engine

pytestmark = pytest.mark.engine

ARGUMENTS = (160, 1 << 40, 0, 2 << 40, 0, 3 << 40, 0, 1)
WORK = Work(block=32, blocks=5, rows=1, columns=1)

NESTED = """
    lsr w9, w0, #5
1:  mov w10, #4
2:  sdot v0.2s, v1.8b, v2.8b
    {inner}
    subs w10, w10, #1
    b.ne 2b
    {outer}
    subs w9, w9, #1
    b.ne 1b
    ret
"""
STEP = "add x12, x12, #1"


@pytest.fixture(scope="module")
def engine() -> Engine:
    made = choose_engine(say=lambda _: None, packages="llvm")
    made.prepare()
    return made


Assembled = Any


@pytest.fixture
def assembled(engine: Engine, tmp_path: Path) -> Callable[[str], Assembled]:
    """Assembles functions into a library, as a build's directory would hold it."""

    def make(**functions: str) -> Assembled:
        text = ".arch armv8.2-a+dotprod\n.text\n"
        for name, code in functions.items():
            text += f".global {name}\n.type {name}, %function\n{name}:\n{code}\n.size {name}, .-{name}\n"
        (tmp_path / "k.s").write_text(text)
        command = ["aarch64-linux-gnu-gcc", "-shared", "-nostdlib", "-o", "/lab/x/libk.so", "/lab/x/k.s"]
        log = tmp_path / "log"
        code = engine.run(command, mounts=[Mount(tmp_path, "/lab/x", writable=True)], log=log)
        assert code == 0, log.read_text()
        return SimpleNamespace(directory=tmp_path, name="stock")

    return make


def loop_of(engine: Engine, build: Assembled, folder: Path, name: str = "kernel") -> BlockLoop:
    program = disassembled(engine, build, "libk.so", folder)
    return block_loop(walk(program, name, ARGUMENTS, 128), name, WORK, 128)


@pytest.mark.parametrize(
    ("inner", "outer", "cycles"),
    [
        # A chain of additions, one cycle each: 4 × 5 of the inner loop and 3 behind it.
        ([STEP] * 5, [STEP] * 3, 4 * 5 + 3),
        # The outer part alone is longer than what the four inner rounds hold.
        ([STEP], [STEP] * 40, 4 + 40),
        # A 32-bit multiplication takes two cycles on the N1 (Arm's optimisation guide: Multiply, W-form).
        (["mul w12, w12, w13"] * 3, [STEP], 4 * 3 * 2 + 1),
        # Eight loads at two a cycle on the N1: 4 × 8 / 2; nothing else is as scarce.
        ([f"ldr x{number}, [x3, #{8 * number}]" for number in range(14, 22)], [], 16),
    ],
)
def test_known_cycles(
    engine: Engine, assembled: Any, tmp_path: Path, inner: list[str], outer: list[str], cycles: int
) -> None:
    code = NESTED.format(inner="\n    ".join(inner), outer="\n    ".join(outer))
    loop = loop_of(engine, assembled(kernel=code), tmp_path)
    assert (loop.products, [one.runs for one in loop.inner]) == (32, [4])
    found = modelled(engine, "neoverse-n1", {"kernel": loop}, tmp_path)
    assert found["kernel"].cycles == pytest.approx(cycles, abs=0.5)


def test_cores_differ(engine: Engine, assembled: Any, tmp_path: Path) -> None:
    """Sixteen independent dot products: two a cycle on the N1 and N2, four on the V1 and V2."""
    body = "\n".join(f"sdot v{number}.4s, v30.16b, v31.16b" for number in range(16))
    code = f"lsr w9, w0, #5\n1:\n{body}\nsubs w9, w9, #1\nb.ne 1b\nret"
    program = disassembled(engine, assembled(kernel=code), "libk.so", tmp_path)
    loop = block_loop(walk(program, "kernel", ARGUMENTS, 128), "kernel", Work(32, 5, 1, 8), 128)
    assert (loop.products, loop.tile) == (256, 8)
    cycles = {
        core: modelled(engine, core, {"kernel": loop}, tmp_path)["kernel"].cycles
        for core in ("neoverse-n1", "neoverse-n2", "neoverse-v1", "neoverse-v2")
    }
    assert cycles == {
        "neoverse-n1": pytest.approx(8, abs=0.5),
        "neoverse-n2": pytest.approx(8, abs=0.5),
        "neoverse-v1": pytest.approx(4, abs=0.5),
        "neoverse-v2": pytest.approx(4, abs=0.5),
    }


def test_a_kernel_behind_the_linkage_table_is_found(engine: Engine, assembled: Any, tmp_path: Path) -> None:
    build = assembled(kernel="b inner", inner=NESTED.format(inner=STEP, outer=""))
    loop = loop_of(engine, build, tmp_path)
    assert (loop.loop.function, loop.products) == ("inner", 32)


def test_a_missing_symbol_or_loop_is_told(engine: Engine, assembled: Any, tmp_path: Path) -> None:
    build = assembled(kernel="ret", straight="\n".join(["sdot v0.4s, v1.16b, v2.16b"] * 10 + ["ret"]))
    with pytest.raises(WalkError, match="there is no function kernal in the file"):
        loop_of(engine, build, tmp_path, "kernal")
    with pytest.raises(WalkError, match="does 0 multiply-accumulates where 160 are due"):
        loop_of(engine, build, tmp_path)
    with pytest.raises(WalkError, match="none of the 0 loops of straight runs once a block"):
        loop_of(engine, build, tmp_path, "straight")


def test_a_core_that_is_not_known_is_told(engine: Engine, assembled: Any, tmp_path: Path) -> None:
    loop = loop_of(engine, assembled(kernel=NESTED.format(inner=STEP, outer="")), tmp_path)
    with pytest.raises(ModelError, match="neoverse-n9"):
        modelled(engine, "neoverse-n9", {"kernel": loop}, tmp_path)
    with pytest.raises(BuildError, match=r"holds no libother\.so"):
        disassembled(engine, SimpleNamespace(directory=tmp_path), "libother.so", tmp_path)  # type: ignore[arg-type]


def test_real_kernels(engine: Engine, tmp_path: Path) -> None:
    """Every kernel of the plan: all its products found, and the figures those that its instructions allow."""
    builder = choose_engine(engine.name, lambda _: None)
    options = Options(mode=Mode.VARIANTS, assertions=False, faults=True)  # as the other tests build it
    build = build_tree(builder, stock_tree(say=lambda _: None), options, say=lambda _: None)
    plan, matrix = load_plan(), load_matrix(Path(__file__).parents[2] / "matrix.yaml")
    found = cost_survey(
        engine, build, matrix, plan, ["neoverse-n2", "neoverse-v1"], plan.types, tmp_path, lambda _: None
    )
    assert found.failed == {}
    assert {place[1] for place in found.absent} <= {"iq4_xs"}
    assert len(found.found) + len(found.absent) == 2 * len(plan.types) * len(plan.kernels)
    for place, cost in found.found.items():
        assert cost.loop.assumed == 0, place
        assert cost.cycles.instructions == len(cost.loop.code), place
        assert cost.cycles.cycles >= cost.cycles.bound - 1, place
    gemm = found.found["neoverse-n2", "q4_k", "gemm"]
    assert gemm.loop.multipliers == {"smmla": 256}
    assert gemm.loop.products == 8 * 4 * 256
    assert found.found["neoverse-v1", "q4_0", "gemv"].loop.tile == 8
