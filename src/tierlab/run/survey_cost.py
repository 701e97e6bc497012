# SPDX-License-Identifier: MIT
"""Static cost: kernels' block loops from the libraries of a build, and their cycles by llvm-mca."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING

from tierlab.cells.builds import parse_build
from tierlab.dispatch.a64_text import OBJDUMP, Program, parse_program
from tierlab.dispatch.a64_walk import WalkError, walk
from tierlab.dispatch.block_loop import BlockLoop, block_loop
from tierlab.dispatch.cost_model import LONG, SHORT, Cycles, ModelError, command, cycles, program_text
from tierlab.dispatch.cost_plan import Call, CostPlan, call_of
from tierlab.dispatch.expected import matches, plain_names
from tierlab.errors import BuildError
from tierlab.toolchain.engine import Mount

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tierlab.cells.matrix import Matrix
    from tierlab.toolchain.build import Build
    from tierlab.toolchain.engine import Engine, Say

OBJDUMP_TOOL, MCA_TOOL = "llvm-objdump-19", "llvm-mca-19"
INSIDE, WORK = "/lab/build", "/lab/work"
SECONDS = 600.0
"""A limit for one tool; they take seconds."""


@dataclass(frozen=True)
class Cost:
    """One kernel on one core."""

    symbol: str
    loop: BlockLoop
    cycles: Cycles

    @property
    def per_product(self) -> float:
        """Cycles of one multiply-accumulate."""
        return self.cycles.cycles / self.loop.products


@dataclass
class CostSurvey:
    """(model, type, kernel) → its cost; `absent` are kernels that the build's path does not have there, and
    `failed` those whose loop or cost was not found, with the reason."""

    models: tuple[str, ...]
    types: tuple[str, ...]
    libraries: dict[str, str] = field(default_factory=dict)
    found: dict[tuple[str, str, str], Cost] = field(default_factory=dict)
    absent: set[tuple[str, str, str]] = field(default_factory=set)
    failed: dict[tuple[str, str, str], str] = field(default_factory=dict)

    def ratio(self, model: str, kernel: tuple[str, str], of: tuple[str, str]) -> float | None:
        """How many times as fast (type, kernel) is as another on a core; None where one is not known."""
        one, other = self.found.get((model, *kernel)), self.found.get((model, *of))
        return other.per_product / one.per_product if one and other else None


class _Surveyor:
    """Reads each library once and follows each kernel once, however many cores share them."""

    def __init__(self, engine: Engine, build: Build, matrix: Matrix, plan: CostPlan, folder: Path) -> None:
        self.engine, self.build, self.matrix, self.plan, self.folder = engine, build, matrix, plan, folder
        self._programs: dict[str, Program] = {}
        self._loops: dict[tuple[str, int, Call], BlockLoop | str] = {}

    def library(self, model: str) -> str:
        """The file of the backend that ggml loads on a core."""
        if parse_build(self.build.name).march:
            return "libggml-cpu.so"
        return f"libggml-cpu-{self.matrix.variant_of[self.plan.models[model]].name}.so"

    def loop(self, model: str, call: Call, say: Say) -> BlockLoop | str:
        """The block loop of a call, or why there is none."""
        library = self.library(model)
        length = self.matrix.profiles[self.plan.models[model]].vector_bits
        vector_bits = length or 128
        if library not in self._programs:
            say(f"cost: reading {library}")
            self._programs[library] = disassembled(self.engine, self.build, library, self.folder)
        key = (library, vector_bits, call)
        if key not in self._loops:
            answers = dict.fromkeys(self.plan.vector_bytes, (length or 0) // 8)
            self._loops[key] = followed(self._programs[library], call, vector_bits, answers)
        return self._loops[key]


def cost_survey(
    engine: Engine,
    build: Build,
    matrix: Matrix,
    plan: CostPlan,
    models: Sequence[str],
    types: Sequence[str],
    folder: Path,
    say: Say,
) -> CostSurvey:
    """Model every kernel of `types` on `models`; `engine` holds LLVM's tools.

    What the tools were given and said is kept in `folder`. Raises BuildError where a library is not there,
    ModelError where a tool fails.
    """
    surveyor = _Surveyor(engine, build, matrix, plan, folder)
    made = CostSurvey(tuple(models), tuple(types), {model: surveyor.library(model) for model in models})
    for model in models:
        loops: dict[str, tuple[tuple[str, str, str], Call, BlockLoop]] = {}
        for place in product((model,), types, plan.kernels):
            call = call_of(plan, matrix, build.name, *place)
            if call is None:
                made.absent.add(place)
                continue
            loop = surveyor.loop(model, call, say)
            if isinstance(loop, str):
                made.failed[place] = loop
            else:
                loops["_".join(place[1:])] = (place, call, loop)
        if loops:
            say(f"cost: {len(loops)} kernels on {model}")
            answered = modelled(engine, model, {name: loop for name, (_, _, loop) in loops.items()}, folder)
            for name, (place, call, loop) in loops.items():
                made.found[place] = Cost(call.symbol, loop, answered[name])
    return made


def followed(program: Program, call: Call, vector_bits: int, answers: Mapping[str, int]) -> BlockLoop | str:
    """The block loop of a call, or why there is none."""
    try:
        found = walk(program, call.symbol, call.arguments, vector_bits, answers)
        if not any(matches(call.expected, name) for name in found.flows):
            went = ", ".join(plain_names(name)[0] for name in found.flows)
            return f"the way leads through {went}, and {' or '.join(call.expected)} is what runs there"
        return block_loop(found, call.symbol, call.work, vector_bits)
    except WalkError as error:
        return str(error)


def disassembled(engine: Engine, build: Build, library: str, folder: Path) -> Program:
    """The functions of one of the build's libraries."""
    if not (build.directory / library).is_file():
        msg = f"{build.directory} holds no {library}; nothing can be said of its kernels. Build it again"
        raise BuildError(msg)
    log = folder / f"{library}.txt"
    code = engine.run(
        [OBJDUMP_TOOL, *OBJDUMP, f"{INSIDE}/{library}"],
        mounts=[Mount(build.directory, INSIDE)],
        log=log,
        timeout=SECONDS,
    )
    text = log.read_text("utf-8", "replace")
    log.unlink()  # seven megabytes that the library gives again
    if code != 0:
        msg = f"{OBJDUMP_TOOL} ended with {code} on {library}: {' '.join(text.split())[-300:]}"
        raise ModelError(msg)
    return parse_program(text.splitlines())


def modelled(engine: Engine, model: str, loops: Mapping[str, BlockLoop], folder: Path) -> dict[str, Cycles]:
    """Name → cycles of one iteration of the loop on a core."""
    source = folder / f"{model}.s"
    source.write_text(program_text({name: loop.code for name, loop in loops.items()}))
    answers = []
    for iterations in (SHORT, LONG):
        log = folder / f"{model}-{iterations}.json"
        code = engine.run(
            command(MCA_TOOL, model, iterations, f"{WORK}/{source.name}"),
            mounts=[Mount(folder, WORK)],
            log=log,
            timeout=SECONDS,
        )
        answers.append(log.read_text("utf-8", "replace"))
        if code != 0:
            said = " ".join(answers[-1].split())[:300]
            msg = f"{MCA_TOOL} ended with {code} for {model}: {said}; its input is {source}"
            raise ModelError(msg)
    found = cycles(*answers)
    missing = loops.keys() - found.keys()
    if missing:
        msg = f"{MCA_TOOL} has no answer for {', '.join(sorted(missing))} on {model}; its input is {source}"
        raise ModelError(msg)
    return found
