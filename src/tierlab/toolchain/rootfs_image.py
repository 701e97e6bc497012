# SPDX-License-Identifier: MIT
"""Making Debian trees with mmdebstrap: the whole toolchain (rootfs engine), or a bare base (docker engine).

Both end as a tar stream, so that what lands in the cache belongs to the caller even where mmdebstrap worked
under subordinate ids: an ordinary user can enter and remove it.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from typing import TYPE_CHECKING

from tierlab.errors import EngineError
from tierlab.toolchain import host_tools
from tierlab.toolchain.cache import built_whole, is_disk_full, locked, require_space, sweep_partials
from tierlab.toolchain.image import (
    IMAGE_BYTES,
    INSTALL_DIRECTORY,
    MANIFEST_PATH,
    RELEASE,
    Recipe,
    log_failure,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tierlab.toolchain.engine import Say


def tree_directory(cache: Path, recipe: Recipe) -> Path:
    """Where the finished tree of this recipe lies; `root/` below it is the file tree."""
    return cache / f"rootfs-{recipe.short}"


def is_finished(directory: Path) -> bool:
    """The manifest is written last, and the directory is renamed into place after that."""
    return (directory / "root" / MANIFEST_PATH.lstrip("/")).is_file()


def make_tree(cache: Path, recipe: Recipe, say: Say) -> Path:
    """The finished tree of `recipe` below `cache`, made if it is not there; returns its `root/`."""
    final = tree_directory(cache, recipe)
    if is_finished(final):
        return final / "root"
    with locked(cache / "lock", lambda: say("another lab is making the toolchain; waiting for it")):
        if not is_finished(final):
            sweep_partials(cache)
            _make_tree(cache, final, recipe, say)
    return final / "root"


def _make_tree(cache: Path, final: Path, recipe: Recipe, say: Say) -> None:
    host_tools.ensure(host_tools.TO_MAKE_TREE, say)
    require_space(cache, IMAGE_BYTES, "the toolchain's tree")
    log = cache / f"{final.name}.log"
    say(f"making the toolchain's tree with mmdebstrap (about a minute, once; log: {log})")
    with built_whole(final) as partial:
        root = partial / "root"
        root.mkdir()
        archive = _mmdebstrap(recipe_hooks(recipe))
        unpack = ["tar", "-x", "--no-same-owner", "--exclude=./dev/*", "-C", str(root)]
        _pipe(archive, unpack, partial, log)
        if not is_finished(partial):
            msg = f"the toolchain's tree came out without a manifest; it was removed. Read {log}"
            raise EngineError(msg)


def make_base_archive(target: Path, log: Path, say: Say) -> None:
    """Write a bare Debian base as a tar archive to `target`."""
    host_tools.ensure(host_tools.TO_MAKE_TREE, say)
    with target.open("wb") as file:
        _run(_mmdebstrap([]), file.fileno(), target.parent, log)


def recipe_hooks(recipe: Recipe) -> list[str]:
    """mmdebstrap options that run the recipe's install.sh inside the new tree."""
    files = " ".join(shlex.quote(str(path)) for path in recipe.inside)
    return [
        f'--customize-hook=mkdir -p "$1{INSTALL_DIRECTORY}"',
        f"--customize-hook=copy-in {files} {INSTALL_DIRECTORY}",
        f'--customize-hook=chroot "$1" sh {INSTALL_DIRECTORY}/install.sh',
    ]


def _mmdebstrap(hooks: list[str]) -> list[str]:
    if not host_tools.is_root():
        host_tools.ensure_ordinary_user_can_make_trees()
    return [
        *_confinement(),
        "mmdebstrap",
        f"--mode={'root' if host_tools.is_root() else 'unshare'}",
        "--variant=minbase",
        '--aptopt=Acquire::Check-Valid-Until "false"',
        *hooks,
        RELEASE,
        "-",
    ]


def _confinement() -> list[str]:
    """Words in front of mmdebstrap, so that it ends with the lab and its mounts end with it.

    Root's mmdebstrap mounts the host's /dev, /proc and /sys into the new tree: in namespaces of its own these
    mounts are never seen outside, whatever happens, and nothing that removes the tree can reach through them.
    An ordinary user's runs in such namespaces anyway; there SIGTERM makes it remove its temporary tree.
    """
    if host_tools.is_root():
        alone = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        return ["setpriv", "--pdeathsig", "KILL", *alone]
    return ["setpriv", "--pdeathsig", "TERM"]


def _environment(scratch: Path) -> dict[str, str]:
    """Root works on the cache's own disk; subordinate ids often cannot reach into a home directory."""
    environment = {**os.environ, "LC_ALL": "C"}
    if host_tools.is_root():
        environment["TMPDIR"] = str(scratch)
    return environment


def _pipe(producer: list[str], consumer: list[str], scratch: Path, log: Path) -> None:
    """producer | consumer, each failure told by the log."""
    read_end, write_end = os.pipe()
    with log.open("wb") as file:
        sink = subprocess.Popen(consumer, stdin=read_end, stdout=file, stderr=file)
        os.close(read_end)
        try:
            _run(producer, write_end, scratch, log, append=True)
        except BaseException:
            sink.kill()
            raise
        finally:
            os.close(write_end)
            sink.wait()
    if sink.returncode != 0:
        raise _failure(consumer, sink.returncode, log)


def _run(command: list[str], output: int, scratch: Path, log: Path, append: bool = False) -> None:
    with log.open("ab" if append else "wb") as file:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=file, env=_environment(scratch)
        )
        try:
            code = process.wait()
        except BaseException:
            process.terminate()  # mmdebstrap removes its temporary tree on SIGTERM
            process.wait()
            raise
    if code != 0:
        raise _failure(command, code, log)


def _failure(command: list[str], code: int, log: Path) -> EngineError:
    what = "mmdebstrap" if "mmdebstrap" in command else command[0]
    text = log.read_text(encoding="utf-8", errors="replace")
    if is_disk_full(text):
        return EngineError(
            f"{what} ended with {code}: the disk is full; no tree was kept. Free space where the cache and "
            "$TMPDIR lie (about 1 GiB each), or set TIERLAB_CACHE and TMPDIR to a larger disk"
        )
    return EngineError(
        f"{what} ended with {code}: {log_failure(log)}; no tree was kept. The whole log is {log}"
    )
