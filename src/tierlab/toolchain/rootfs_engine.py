# SPDX-License-Identifier: MIT
"""The engine without a daemon: a Debian tree in the cache, entered through bubblewrap."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tierlab.errors import EngineError
from tierlab.toolchain import cgroup, host_tools
from tierlab.toolchain.bubblewrap import BubblewrapProcess, arguments, limited
from tierlab.toolchain.cache import toolchain_cache
from tierlab.toolchain.engine import BUILD_LIMITS, Limits, Mount, check_mounts, killed_at_end
from tierlab.toolchain.image import MANIFEST_PATH, Recipe, identity_of, load_recipe, parse_manifest
from tierlab.toolchain.rootfs_image import is_finished, make_tree, tree_directory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tierlab.toolchain.engine import Process, Say


class RootfsSandbox:
    """An open sandbox: every spawned process gets fresh namespaces over the same mounts."""

    def __init__(
        self, root: Path, mounts: Sequence[Mount], limits: Limits, groups: Sequence[Path], network: bool
    ) -> None:
        self._root = root
        self._mounts = mounts
        self._limits = limits
        self._groups = groups
        self._network = network
        self._current: BubblewrapProcess | None = None

    def spawn(
        self,
        argv: Sequence[str],
        env: Mapping[str, str] | None = None,
        *,
        workdir: str = "/",
        log: Path | None = None,
    ) -> BubblewrapProcess:
        if self._current is not None and self._current.poll() is None:
            msg = "a process still runs in this sandbox, and it holds one at a time; kill it or open another"
            raise EngineError(msg)
        options = arguments(self._root, self._mounts, env or {}, workdir, self._network)
        self._current = BubblewrapProcess(options, limited(argv, self._limits), self._groups, log)
        return self._current

    def close(self) -> None:
        if self._current is not None:
            self._current.kill()


class RootfsEngine:
    """See engine.Engine. `say` is told what takes long; the tree lies below `cache`."""

    name = "rootfs"
    emulated = True

    def __init__(self, say: Say = print, cache: Path | None = None, recipe: Recipe | None = None) -> None:
        self._say = say
        self._cache = cache if cache is not None else toolchain_cache()
        self._recipe = recipe if recipe is not None else load_recipe()
        self._root: Path | None = None

    @property
    def tree(self) -> Path:
        """Where the tree is or will be."""
        return tree_directory(self._cache, self._recipe) / "root"

    @property
    def is_made(self) -> bool:
        """Whether the tree is there already."""
        return is_finished(self.tree.parent)

    def obstacle(self) -> str | None:
        """What keeps this engine from working here, as far as can be told without changing anything."""
        tools = (
            host_tools.TO_ENTER_TREE if self.is_made else host_tools.TO_MAKE_TREE + host_tools.TO_ENTER_TREE
        )
        try:
            if not host_tools.can_install():
                host_tools.ensure(tools, self._say)
            if not (self.is_made or host_tools.is_root()):
                host_tools.ensure_ordinary_user_can_make_trees()
        except EngineError as error:
            return str(error)
        return None

    def close(self) -> None:
        """Nothing is held between two uses."""

    def prepare(self) -> None:
        if self._root is None:
            host_tools.ensure(host_tools.TO_ENTER_TREE, self._say)
            root = make_tree(self._cache, self._recipe, self._say)
            check_entry(root)
            cgroup.sweep_groups()
            self._root = root

    def manifest(self) -> Mapping[str, str]:
        return parse_manifest((self._tree() / MANIFEST_PATH.lstrip("/")).read_text("utf-8", "replace"))

    def identity(self) -> str:
        return identity_of(self._recipe, self.manifest())

    def _tree(self) -> Path:
        self.prepare()
        if self._root is None or not self._root.is_dir():
            msg = "the toolchain's tree vanished from the cache; nothing can run. Start again to make it anew"
            raise EngineError(msg)
        return self._root

    def run(
        self,
        argv: Sequence[str],
        *,
        mounts: Sequence[Mount] = (),
        env: Mapping[str, str] | None = None,
        workdir: str = "/",
        log: Path,
        network: bool = False,
        limits: Limits | None = None,
        timeout: float | None = None,
    ) -> int:
        with self._open(mounts, limits or BUILD_LIMITS, network) as sandbox:
            process: Process = sandbox.spawn(argv, env, workdir=workdir, log=log)
            with killed_at_end(process):
                return process.wait(timeout)

    @contextmanager
    def sandbox(self, mounts: Sequence[Mount] = (), limits: Limits | None = None) -> Iterator[RootfsSandbox]:
        with self._open(mounts, limits or Limits(), network=False) as sandbox:
            yield sandbox

    @contextmanager
    def _open(self, mounts: Sequence[Mount], limits: Limits, network: bool) -> Iterator[RootfsSandbox]:
        check_mounts(mounts)
        root = self._tree()
        with cgroup.group(limits) as groups:
            sandbox = RootfsSandbox(root, mounts, limits, groups, network)
            try:
                yield sandbox
            finally:
                sandbox.close()


def check_entry(root: Path) -> None:
    """Raise EngineError, with what to do, unless bubblewrap can enter the tree here."""
    command = ["bwrap", *arguments(root, (), {}, "/"), "--", "true"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode == 0:
        return
    said = done.stderr.decode(errors="replace").strip() or f"code {done.returncode}"
    remedy = "Use another engine (--engine docker), or allow user namespaces on this machine"
    if Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").exists():
        remedy += ": sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0"
    msg = f"bubblewrap cannot enter the toolchain's tree ({said}); the rootfs engine cannot work. {remedy}"
    raise EngineError(msg)
