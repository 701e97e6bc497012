# SPDX-License-Identifier: MIT
"""Real harnesses for tests: built once a test session, started on any emulated CPU.

`Rig` builds (or finds built) the stock tree as a run does, with tierlab-harness-faulty besides: every
test that needs all variants shares these objects.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tierlab.harness.folder import SessionFolder
from tierlab.harness.messages import Answer, Outcome, Request
from tierlab.harness.session import HarnessCommand, Session
from tierlab.toolchain.builds import build_tree
from tierlab.toolchain.choose import choose_engine
from tierlab.toolchain.engine import ARM_SYSROOT, EMULATORS, Mount
from tierlab.toolchain.flags import Mode, Options
from tierlab.toolchain.sources import stock_tree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from numpy.typing import NDArray

    from tierlab.harness.messages import Hello
    from tierlab.toolchain.build import Build
    from tierlab.toolchain.engine import Engine

BINARIES = "/lab/binaries"
ARENA_BYTES = 32 << 20
LIMIT = 120.0
"""Seconds: far more than anything here takes."""

SHIPPED = Options(assertions=False, faults=True)
"""All variants, as a run builds them; another set of options would be compiled anew, for minutes."""


@dataclass
class Conversation:
    """A running harness and what it said first."""

    session: Session
    hello: Hello
    cell: int = 0

    def block(self, kind: str) -> tuple[int, int]:
        """(elements, bytes) of a block of a type."""
        info = next(info for info in self.hello.types if info.name == kind)
        return info.block, info.nbytes

    def row_bytes(self, kind: str, k: int) -> int:
        elements, nbytes = self.block(kind)
        return k // elements * nbytes

    def ask(
        self,
        op: str,
        kind: str,
        shape: tuple[int, int, int],
        output: int = 0,
        limit: float = LIMIT,
        **given: Any,
    ) -> tuple[Outcome, NDArray[np.uint8]]:
        """One request and its outcome; arrays in `given` are put into the arena, `output` is in bytes."""
        self.cell += 1
        slot = self.session.arena.slots[self.cell % 2]
        slot.reset()
        fields = {
            key: slot.put(value) if isinstance(value, np.ndarray) else value for key, value in given.items()
        }
        if output:
            fields["output"] = slot.reserve(output)
        if not self.session.alive:
            self.session.start(LIMIT)
        self.session.submit(Request(self.cell, op, kind, shape, **fields))
        outcome = self.session.receive(limit)
        return outcome, slot.view(fields["output"]).copy() if output else np.empty(0, np.uint8)

    def product(
        self, kind: str, weights: NDArray[Any], activations: NDArray[Any], n: int, **given: Any
    ) -> tuple[Outcome, NDArray[np.float32]]:
        """MUL_MAT of weights [n, k] and activations f32 [m, k]; output [m, n]."""
        m, k = activations.shape
        outcome, output = self.ask(
            "mul_mat", kind, (m, n, k), m * n * 4, weights=weights, activations=activations, **given
        )
        return outcome, output.view(np.float32).reshape(m, n)

    def quantised(self, kind: str, values: NDArray[np.float32]) -> NDArray[np.uint8]:
        """Blocks [n, row bytes] of f32 values [n, k], by ggml's quantiser."""
        n, k = values.shape
        nbytes = n * self.row_bytes(kind, k)
        outcome, output = self.ask("quantize_weights", kind, (1, n, k), nbytes, activations=values)
        assert isinstance(outcome, Answer)
        assert outcome.status == "ok", outcome.message
        return output.reshape(n, -1)


class Rig:
    """Engine and builds; `arm` and `reference` start harnesses."""

    def __init__(self) -> None:
        self.engine: Engine = choose_engine(say=lambda _: None)
        self.engine.prepare()
        self.tree = stock_tree(say=lambda _: None)
        self.builds: dict[Mode, Build] = {}

    def build(self, mode: Mode) -> Build:
        if mode not in self.builds:
            options = SHIPPED if mode is Mode.VARIANTS else Options(mode=mode)
            self.builds[mode] = build_tree(self.engine, self.tree, options, say=lambda _: None)
        return self.builds[mode]

    @contextmanager
    def arm(
        self, cpu: str, emulator: str = "qemu-11.1", program: str = "tierlab-harness"
    ) -> Iterator[Conversation]:
        """A harness on an emulated CPU (on the real one where the engine is native)."""
        prefix = (EMULATORS[emulator], "-L", ARM_SYSROOT, "-cpu", cpu) if self.engine.emulated else ()
        with self._started(self.build(Mode.VARIANTS), program, prefix) as conversation:
            yield conversation

    @contextmanager
    def reference(self) -> Iterator[Conversation]:
        """The portable reference build, natively."""
        with self._started(self.build(Mode.REFERENCE), "tierlab-harness", ()) as conversation:
            yield conversation

    @contextmanager
    def _started(self, build: Build, program: str, prefix: tuple[str, ...]) -> Iterator[Conversation]:
        command = HarnessCommand(f"{BINARIES}/{program}", BINARIES, "test", prefix)
        with SessionFolder(ARENA_BYTES) as folder:
            mounts = [Mount(build.directory, BINARIES), folder.mount]
            with (
                self.engine.sandbox(mounts) as sandbox,
                Session(folder, command, sandbox.spawn) as session,
            ):
                yield Conversation(session, session.start(LIMIT))
