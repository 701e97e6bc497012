# SPDX-License-Identifier: MIT
"""Real hardware: which profile of the matrix this machine is, so that its cells run without an emulator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierlab.emulator.command_line import on_hardware
from tierlab.emulator.promise import broken_promises
from tierlab.errors import ProbeError
from tierlab.harness.folder import SessionFolder
from tierlab.harness.session import Session
from tierlab.run.workbench import BUILD_MOUNT, harness_command
from tierlab.toolchain.engine import Limits, Mount

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tierlab.cells.matrix import Matrix
    from tierlab.harness.messages import Hello
    from tierlab.toolchain.build import Build
    from tierlab.toolchain.engine import Engine


def probe(engine: Engine, build: Build) -> Hello:
    """What this machine's CPU says of itself through the build's harness."""
    with SessionFolder() as folder:
        mounts = [Mount(build.directory, BUILD_MOUNT), folder.mount]
        with engine.sandbox(mounts, Limits()) as sandbox:
            command = harness_command(build, ())
            with Session(folder, command, lambda argv, env: sandbox.spawn(argv, env)) as session:
                return session.start()


def profile_of(matrix: Matrix, names: Sequence[str], hello: Hello) -> str:
    """The first of the profiles whose every promise this machine keeps. ProbeError names the nearest."""
    broken = {name: broken_promises(on_hardware(matrix.profiles[name]), hello) for name in names}
    for name, promises in broken.items():
        if not promises:
            return name
    nearest = min(broken, key=lambda name: len(broken[name]))
    msg = (
        f"this machine's CPU is none of the profiles in {matrix.path}: the nearest is {nearest}, but "
        f"{'; '.join(broken[nearest])}. Nothing was run. Add a profile with this machine's features"
    )
    raise ProbeError(msg)
