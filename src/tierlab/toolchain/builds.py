# SPDX-License-Identifier: MIT
"""Building a tree and the harness against it: incremental, out of tree, identified by content.

Work happens in `<cache>/builds/<key>/`; the result is copied to `<cache>/binaries/<digest>/`, which never
changes afterwards, so a lab that is executing is not disturbed by one that rebuilds.
"""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING

from tierlab.errors import BuildError
from tierlab.toolchain.build import FAULTY_NAME, HARNESS_NAME, Build
from tierlab.toolchain.build_log import quarters
from tierlab.toolchain.cache import built_whole, cache_root, locked
from tierlab.toolchain.compiling import CompilerKilledError, Job, compile_tree
from tierlab.toolchain.digests import TreeDigest, digest_of, tree_digest
from tierlab.toolchain.disk import disk_errors
from tierlab.toolchain.flags import Options, cmake_flags
from tierlab.toolchain.sources import kernels_directory
from tierlab.toolchain.tree_facts import f16_sums

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tierlab.toolchain.engine import Engine, Say
    from tierlab.toolchain.sources import Tree

_MAKES_BINARIES = re.compile(
    r"binutils|cmake|cpp|g\+\+|gcc|libc6|libgcc|libgomp|libkleidiai|libstdc\+\+|linux-libc|ninja"
)

ATTEMPTS = 3
"""How often a tree may change while it is being built."""


def build_tree(
    engine: Engine,
    tree: Tree,
    options: Options | None = None,
    *,
    cache: Path | None = None,
    harness: Path | None = None,
    say: Say = print,
    progress: Callable[[int, int], None] | None = None,
) -> Build:
    """Build `tree` and the harness against it; at once if nothing changed since the last time.

    `harness` is the directory of the harness' sources (default: the checkout's). `progress` is called with
    (steps done, steps in all); without it, `say` tells each quarter. BuildError shows the compiler's first
    error and the log's place. Two labs never build in the same directory at once: the second waits.
    """
    options = options if options is not None else Options()
    cache = cache if cache is not None else cache_root()
    harness = (harness if harness is not None else kernels_directory() / "harness").resolve()
    wrapper = kernels_directory() / "llama.cpp" / "cmake"
    flags = cmake_flags(options, tree.ggml, engine.emulated)
    progress = progress if progress is not None else quarters(tree.name, say)
    identity = compiler_identity(engine)
    source = str(tree.ggml) if tree.mutable else tree.digest
    key = digest_of([source, identity, flags.arguments, str(harness), tree_digest(wrapper).digest])[:16]
    stem = "user" if tree.mutable else "tree"
    place = cache / "builds" / f"{stem}-{options.mode}-{key}"
    job = Job(engine, tree, options, flags, cache, harness, wrapper, place, identity)
    with disk_errors(cache), locked(cache / "locks" / place.name, lambda: _waiting(tree, say)):
        return _current(job, say, progress)


def compiler_identity(engine: Engine) -> str:
    """SHA-256 (hex) over the packages of the image that make binaries: the same for every engine that has the
    same ones, whatever else is in its image."""
    manifest = engine.manifest()
    return digest_of({name: manifest[name] for name in manifest if _MAKES_BINARIES.match(name)})


def _waiting(tree: Tree, say: Say) -> None:
    say(f"build {tree.name}: another lab is building the same; waiting for it")


def _current(job: Job, say: Say, progress: Callable[[int, int], None] | None) -> Build:
    for _ in range(ATTEMPTS):
        sources = _sources(job)
        digest = _inputs(job, sources)
        kept = _kept(job, digest, sources)
        if kept is not None:
            return kept
        _fails_again(job, digest)
        try:
            compile_tree(job, sources, say, progress)
        except CompilerKilledError:
            raise
        except BuildError as error:
            _remember_failure(job, digest, str(error))
            raise
        if _inputs(job, _sources(job)) == digest:
            return _published(job, digest, sources)
        say(f"build {job.tree.name}: the sources changed meanwhile; building again")
    msg = f"{job.tree.root} changed during each of {ATTEMPTS} builds; it was not built. Try again later"
    raise BuildError(msg)


def _failure(job: Job) -> Path:
    return job.place / "failure.json"


def _fails_again(job: Job, digest: str) -> None:
    """Raise what the compiler said of these very inputs, if they did not compile before."""
    try:
        record = json.loads(_failure(job).read_text())
        known = str(record["error"]) if record["inputs"] == digest else ""
    except (OSError, ValueError, KeyError, TypeError):
        return
    if known:
        raise BuildError(known)


def _remember_failure(job: Job, digest: str, error: str) -> None:
    """A tree that nobody changes fails the same way each time; its owner's changes may mend a user's."""
    if not job.tree.mutable:
        _failure(job).write_text(json.dumps({"inputs": digest, "error": error}))


def _sources(job: Job) -> dict[str, TreeDigest]:
    memory = job.cache / "digests"
    return {"ggml": tree_digest(job.tree.ggml, memory), "harness": tree_digest(job.harness, memory)}


def _inputs(job: Job, sources: Mapping[str, TreeDigest]) -> str:
    parts = {name: digest.digest for name, digest in sources.items()}
    wrapper = tree_digest(job.wrapper).digest
    return digest_of([parts, wrapper, job.identity, job.flags.arguments, job.options.targets])


def _kept(job: Job, digest: str, sources: Mapping[str, TreeDigest]) -> Build | None:
    """The finished build of these inputs, if every file of it is still what was built."""
    try:
        record = json.loads(_record(job).read_text())
        files: dict[str, str] = record["files"]
        directory = job.cache / "binaries" / digest_of(files)[:16]
        if record["inputs"] != digest or _file_digests(directory, job.cache) != files:
            return None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return _result(job, digest, sources, directory, files)


def _record(job: Job) -> Path:
    """Where the last result is noted, apart for each set of targets that is made in the same place."""
    return job.place / f"{'+'.join(job.options.targets)}.json"


def _published(job: Job, digest: str, sources: Mapping[str, TreeDigest]) -> Build:
    """Copy what was built to where nothing touches it any more, and record it."""
    others = {FAULTY_NAME} - set(job.options.targets)
    files = _file_digests(job.build / "bin", None)
    for name in others:
        files.pop(name, None)
    directory = job.cache / "binaries" / digest_of(files)[:16]
    with locked(job.cache / "locks" / "binaries"):
        if not directory.is_dir() or _file_digests(directory, job.cache) != files:
            with built_whole(directory) as partial:
                for path in sorted((job.build / "bin").iterdir()):
                    if path.name not in others:
                        shutil.copy2(path, partial / path.name, follow_symlinks=False)
    fresh = job.place / "record.new"
    fresh.write_text(json.dumps({"inputs": digest, "files": files}))
    fresh.replace(_record(job))
    return _result(job, digest, sources, directory, files)


def _result(
    job: Job, digest: str, sources: Mapping[str, TreeDigest], directory: Path, files: Mapping[str, str]
) -> Build:
    return Build(
        name=job.tree.name,
        mode=str(job.options.mode),
        directory=directory,
        harness=directory / HARNESS_NAME,
        backend_dir=directory,
        digest=digest,
        tree_digest=sources["ggml"].digest,
        flags=job.flags.arguments,
        log=job.place / "build.log",
        file_digests=files,
        notes=job.flags.notes,
        f16_sums=f16_sums(job.tree.ggml),
    )


def _file_digests(directory: Path, cache: Path | None) -> dict[str, str]:
    """Name → SHA-256 of each file; symbolic links (libggml.so → libggml.so.0 …) are not counted apart."""
    if not directory.is_dir():
        return {}
    found = tree_digest(directory, None if cache is None else cache / "digests").files
    return {name: value for name, value in found.items() if not (directory / name).is_symlink()}
