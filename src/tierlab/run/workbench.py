# SPDX-License-Identifier: MIT
"""What one worker process holds while it runs lanes: engine, open sandboxes, problems, caches, store."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from tierlab.cells.builds import sdist_version
from tierlab.cells.load import load_matrix
from tierlab.dispatch.receipt import check_counters
from tierlab.dispatch.symbols import kernel_symbols
from tierlab.emulator.command_line import command, on_hardware
from tierlab.emulator.promise import check_promise
from tierlab.errors import TierlabError
from tierlab.harness.session import HarnessCommand, Session, SessionFolder
from tierlab.run.judging import TreeFacts
from tierlab.run.keys import lane_parts, rules_digest
from tierlab.run.problems import Problems
from tierlab.run.provenance import note_hello
from tierlab.run.reference import Reference
from tierlab.run.store import CANARIES, Store, iter_records
from tierlab.run.verdict_cache import VerdictCache
from tierlab.toolchain.cache import cache_root
from tierlab.toolchain.choose import choose_engine
from tierlab.toolchain.engine import Limits, Mount

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import TracebackType

    import numpy as np
    from numpy.typing import NDArray

    from tierlab.cells.matrix import Matrix
    from tierlab.cells.model import Cell, LaneKey
    from tierlab.harness.messages import Hello
    from tierlab.run.plan import Plan
    from tierlab.run.record import CellRecord
    from tierlab.toolchain.build import Build
    from tierlab.toolchain.engine import Process, Sandbox

BUILD_MOUNT = "/lab/build"
ENVIRONMENT = {
    "LD_LIBRARY_PATH": BUILD_MOUNT,
    # Where a debugger is installed, ggml would start it on every abort.
    "GGML_NO_BACKTRACE": "1",
}


def harness_command(
    build: Build, emulator: Sequence[str], environment: Mapping[str, str] | None = None
) -> HarnessCommand:
    """How to start the build's harness in a sandbox that mounts the build at BUILD_MOUNT."""
    inside = f"{BUILD_MOUNT}/{build.harness.relative_to(build.directory)}"
    backends = f"{BUILD_MOUNT}/{build.backend_dir.relative_to(build.directory)}".rstrip("/.")
    env = {**(environment or {}), **ENVIRONMENT}
    return HarnessCommand(inside, backends, build.binaries[:16], tuple(emulator), env)


@dataclass(frozen=True)
class Room:
    """An open sandbox with a session folder mounted; sessions follow one another in it."""

    stack: ExitStack
    folder: SessionFolder
    sandbox: Sandbox


class Workbench:
    """Opened once by each worker; closing it ends every process it started."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.matrix: Matrix = load_matrix(plan.matrix_file)
        # Canaries too: none of them is among the cells that were asked for.
        last = chain(iter_records(plan.run_dir), iter_records(plan.run_dir, name=CANARIES))
        records = {record.cell: record for record in last}
        self.answered = {cell: record for cell, record in records.items() if not record.undetermined}
        self.store = Store(plan.run_dir)
        self.witness: Callable[[Cell, NDArray[np.uint8]], None] | None = None
        """Sees every output (its bytes) that a process computes, before it is gone."""
        self.engine = choose_engine(plan.engine, say=lambda _: None)
        self._rooms: dict[str, Room] = {}
        self._cache = VerdictCache(cache_root() / "verdicts")
        self._rules = rules_digest(self.matrix)
        self._retried: set[str] = set()
        self._keys: dict[tuple[LaneKey, str], dict[str, str]] = {}
        self._reference = reference = Reference(self.matrix, self._open_reference)
        root = cache_root() / "problems"
        self.problems = Problems(root, self.matrix, plan.seed, reference, plan.reference.binaries)

    # Sessions ---------------------------------------------------------------------------------------

    @contextmanager
    def open_session(self, lane: LaneKey) -> Iterator[Session]:
        """A session, not yet started, for the lane's build on the lane's profile."""
        build, profile = self.plan.builds[lane.build], self.matrix.profiles[lane.profile]
        emulator = tuple(command(profile)) if self.engine.emulated else ()
        try:
            with self._session(build, emulator, self.plan.environment) as session:
                yield session
        except TierlabError:
            # The sandbox itself may be what broke: the next lane gets a new one.
            self._leave(build)
            raise

    def check_promise(self, lane: LaneKey, hello: Hello) -> None:
        """ProbeError if the CPU is not what the profile promises, HarnessError without call counters."""
        check_counters(hello)
        note_hello(self.exact_key(lane), hello)
        profile = self.matrix.profiles[lane.profile]
        check_promise(profile if self.engine.emulated else on_hardware(profile), hello)

    def facts(self, lane: LaneKey, hello: Hello) -> TreeFacts:
        """What the judge must know of the lane's build. BuildError if its kernels cannot be named."""
        build = self.plan.builds[lane.build]
        if sdist_version(lane.build) is None:
            return TreeFacts(build.f16_sums)
        return TreeFacts(build.f16_sums, kernel_symbols(build.directory / hello.variant))

    def may_retry(self, cell: Cell) -> bool:
        """True once for each cell: a process that was killed from outside is worth a second try."""
        if cell.id in self._retried:
            return False
        self._retried.add(cell.id)
        return True

    def _session(
        self, build: Build, emulator: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> Session:
        room = self._room(build)
        start = harness_command(build, emulator, environment)

        def spawn(argv: Sequence[str], env: Mapping[str, str]) -> Process:
            return room.sandbox.spawn(argv, env)

        return Session(room.folder, start, spawn)

    def _room(self, build: Build) -> Room:
        key = str(build.directory)
        if key not in self._rooms:
            with ExitStack() as stack:
                folder = stack.enter_context(SessionFolder())
                mounts = [Mount(build.directory, BUILD_MOUNT), folder.mount]
                sandbox = stack.enter_context(self.engine.sandbox(mounts, Limits()))
                self._rooms[key] = Room(stack.pop_all(), folder, sandbox)
        return self._rooms[key]

    def _leave(self, build: Build) -> None:
        room = self._rooms.pop(str(build.directory), None)
        if room is not None:
            room.stack.close()

    def _open_reference(self) -> Session:
        return self._session(self.plan.reference, ())

    def judge_by(self, matrix: Matrix) -> None:
        """Use these rules in place of the file's; verdicts by other rules are not found under their keys."""
        self.matrix, self._rules = matrix, rules_digest(matrix)
        self._keys.clear()

    # Verdict cache ----------------------------------------------------------------------------------

    def exact_key(self, lane: LaneKey) -> dict[str, str]:
        """Nothing at all changed: no process has to be started to know."""
        return self._key(lane, "")

    def variant_key(self, lane: LaneKey, hello: Hello) -> dict[str, str]:
        """The files that this profile's process really loaded are unchanged."""
        return self._key(lane, hello.variant)

    def cached(self, key: Mapping[str, str]) -> dict[str, CellRecord]:
        """Cell id → record, of the verdicts stored under `key`."""
        return self._cache.load(key)

    def remember(self, key: Mapping[str, str], record: CellRecord) -> None:
        """Keep a verdict for later runs, if it is of a kind that may be kept."""
        self._cache.store(key, [record])

    def _key(self, lane: LaneKey, variant: str) -> dict[str, str]:
        if (lane, variant) in self._keys:
            return self._keys[lane, variant]
        build = self.plan.builds[lane.build]
        files = {variant: build.lane_digest(variant)} if variant else dict(build.file_digests)
        profile = self.matrix.profiles[lane.profile]
        key = self._keys[lane, variant] = lane_parts(self.plan, profile, lane, self._rules, files)
        return key

    # ------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End all sessions and sandboxes, sync the store."""
        self._reference.close()
        while self._rooms:
            self._rooms.popitem()[1].stack.close()
        self._cache.close()
        self.store.close()

    def __enter__(self) -> Workbench:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
