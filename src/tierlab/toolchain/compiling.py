# SPDX-License-Identifier: MIT
"""Running CMake and Ninja inside the engine, and saying what went wrong."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tierlab.errors import BuildError, EngineError
from tierlab.toolchain import flags as inside
from tierlab.toolchain.build_log import first_error, watched
from tierlab.toolchain.cache import is_disk_full, remove_tree, require_space
from tierlab.toolchain.engine import Mount
from tierlab.toolchain.stale import UNKNOWN_END, Remembered, forget_stale, remember

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tierlab.toolchain.digests import TreeDigest
    from tierlab.toolchain.engine import Engine, Say
    from tierlab.toolchain.flags import Flags, Options
    from tierlab.toolchain.sources import Tree

BUILD_BYTES = 256 << 20
"""Disk that one build may take (measured: 55 MB with its share of the compiler cache), with room to spare."""

CCACHE_SIZE = "5G"


class CompilerKilledError(BuildError):
    """The compiler was killed, so that nothing is known of the sources."""


@dataclass(frozen=True)
class Job:
    """One build to be made: its inputs and its places (of the host)."""

    engine: Engine
    tree: Tree
    options: Options
    flags: Flags
    cache: Path
    harness: Path
    wrapper: Path
    place: Path
    identity: str

    @property
    def build(self) -> Path:
        return self.place / "build"

    @property
    def places(self) -> dict[str, str]:
        return {
            inside.GGML: str(self.tree.ggml),
            inside.HARNESS: str(self.harness),
            inside.WRAPPER: str(self.wrapper),
            inside.BUILD: str(self.build),
        }


def compile_tree(
    job: Job,
    sources: Mapping[str, TreeDigest],
    say: Say,
    progress: Callable[[int, int], None] | None,
) -> None:
    """Bring `job.build` up to date with `sources` (`ggml`, `harness`); BuildError if they do not compile."""
    job.cache.mkdir(parents=True, exist_ok=True)
    require_space(job.cache, BUILD_BYTES, f"the build of {job.tree.name}")
    forget_stale(job.place, {"ggml": job.tree.ggml, "harness": job.harness}, sources)
    for directory in (job.build, job.cache / "ccache"):
        directory.mkdir(parents=True, exist_ok=True)
    files = {name: digest.files for name, digest in sources.items()}
    remember(job.place, Remembered(UNKNOWN_END, files))
    march = f" -march={job.options.march}" if job.options.march else ""
    say(f"build {job.tree.name}: {job.options.mode}{march}, {job.engine.name} engine")
    for note in job.flags.notes:
        say(f"build {job.tree.name}: {note}")
    try:
        _configure_and_make(job, progress)
    except BuildError:
        remember(job.place, Remembered(time.time_ns(), files))
        raise
    remember(job.place, Remembered(time.time_ns(), files))


def _configure_and_make(job: Job, progress: Callable[[int, int], None] | None) -> None:
    if not (job.build / "build.ninja").is_file():
        configure = ["cmake", "-S", inside.WRAPPER, "-B", inside.BUILD, "-G", "Ninja", *job.flags.arguments]
        _run(job, configure, job.place / "configure.log", None)
    jobs = str(len(os.sched_getaffinity(0)))
    command = ["cmake", "--build", inside.BUILD, "--parallel", jobs, "--target", *job.options.targets]
    _run(job, command, job.place / "build.log", progress)


def _run(job: Job, command: list[str], log: Path, progress: Callable[[int, int], None] | None) -> None:
    mounts = [
        Mount(job.tree.ggml, inside.GGML),
        Mount(job.harness, inside.HARNESS),
        Mount(job.wrapper, inside.WRAPPER),
        Mount(job.build, inside.BUILD, writable=True),
        Mount(job.cache / "ccache", inside.CCACHE, writable=True),
    ]
    env = {
        "CCACHE_DIR": inside.CCACHE,
        "CCACHE_MAXSIZE": CCACHE_SIZE,
        # By the packages' versions, not the compiler's time stamp: engines share what one compiled.
        "CCACHE_COMPILERCHECK": f"string:{job.identity}",
    }
    with watched(log, progress):
        code = job.engine.run(command, mounts=mounts, env=env, workdir="/", log=log)
    if code != 0:
        raise _failure(job, code, log)


def _failure(job: Job, code: int, log: Path) -> Exception:
    text = log.read_text(errors="replace") if log.is_file() else ""
    if not (job.build / "build.ninja").is_file() or log.name == "configure.log":
        remove_tree(job.build)
    if is_disk_full(text):
        return EngineError(
            f"the disk that holds {job.cache} became full while {job.tree.name} was built (log: {log}); "
            "there is no build. Free some space (invoke clean), or set TIERLAB_CACHE to a larger disk"
        )
    killed = code in (137, 143)
    why = " The compiler was killed: is there enough memory?" if killed else ""
    kind = CompilerKilledError if killed else BuildError
    return kind(
        f"{job.tree.name} does not build ({job.options.mode}): {first_error(text, job.places)}.{why} "
        f"Its cells are unbuildable; the whole log is {log}"
    )
