# SPDX-License-Identifier: MIT
"""The engine on a Docker daemon, through the Docker SDK (a Podman socket works too)."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import docker.errors
from docker.types import Mount as BindMount
from docker.types import Ulimit

from tierlab.errors import EngineError
from tierlab.toolchain import owner
from tierlab.toolchain.cache import toolchain_cache
from tierlab.toolchain.docker_client import TROUBLE, connect, hang_up, told
from tierlab.toolchain.docker_image import find_image, make_image, read_manifest
from tierlab.toolchain.docker_process import DockerProcess
from tierlab.toolchain.engine import (
    BASE_ENVIRONMENT,
    BUILD_LIMITS,
    HOUSEKEEPING_PROCESSES,
    TMP_BYTES,
    Limits,
    Mount,
    check_mounts,
    killed_at_end,
)
from tierlab.toolchain.image import Recipe, identity_of, load_recipe

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from docker import DockerClient

    from tierlab.toolchain.engine import Say

KEEPER = ["env", "--ignore-signal=CHLD", "cat"]
"""A container's first process: it ends when the lab, which holds its standard input, closes it or dies.
Because it ignores SIGCHLD, the kernel clears away orphans when they end: no zombie counts as a process."""


def runner(merged: bool) -> list[str]:
    """Words in front of a command that clear away all it left behind, once it ended.

    Everything but the keeper is killed again and again until the kernel finds nothing more to kill. The
    shell's own words about a death by signal stay out of the command's standard error. `merged` sends both
    streams down one pipe, so that a log has their true order.
    """
    streams = "2>&1 3>&-" if merged else "2>&3 3>&-"
    clear = "while kill -KILL -1; do :; done"
    script = f'exec 3>&2 2> /dev/null; (exec {streams}; exec "$@"); code=$?; {clear}; exit $code'
    return ["sh", "-c", script, "sh"]


class DockerSandbox:
    """One container that waits, and processes executed in it; made anew after a kill."""

    def __init__(self, client: DockerClient, image: str, settings: Mapping[str, Any], limits: Limits) -> None:
        self.client = client
        self._image = image
        self._settings = settings
        self._limits = limits
        self.container: str | None = None
        self._lifeline: Any = None
        self._current: DockerProcess | None = None

    def open(self) -> None:
        """Create and start the container, its standard input held by this process."""
        api = self.client.api
        with ExitStack() as undo, told("starting a container"):
            undo.callback(self.close)
            config = api.create_host_config(**self._settings["host"])
            self.container = api.create_container(
                self._image, KEEPER, host_config=config, stdin_open=True, **self._settings["own"]
            )["Id"]
            self._lifeline = api.attach_socket(self.container, params={"stdin": 1, "stream": 1})
            api.start(self.container)
            undo.pop_all()

    def spawn(
        self,
        argv: Sequence[str],
        env: Mapping[str, str] | None = None,
        *,
        workdir: str = "/",
        log: Path | None = None,
    ) -> DockerProcess:
        if self._current is not None and self._current.poll() is None:
            msg = "a process still runs in this sandbox, and it holds one at a time; kill it or open another"
            raise EngineError(msg)
        if self.container is None:
            self.open()
        limit = ["prlimit", f"--data={self._limits.memory_bytes}", "--core=0", "--"]
        environment = {**BASE_ENVIRONMENT, **(env or {})}
        self._current = DockerProcess(
            self.client,
            str(self.container),
            [*runner(merged=log is not None), *limit, *argv],
            environment,
            workdir,
            log,
            self.close,
        )
        return self._current

    def close(self) -> None:
        """Kill and remove the container with all that runs in it; no error if it is gone already."""
        container, self.container = self.container, None
        lifeline, self._lifeline = self._lifeline, None
        if lifeline is not None:
            hang_up(lifeline)
        if container is not None:
            with suppress(*TROUBLE):
                self.client.api.remove_container(container, force=True)


def container_settings(mounts: Sequence[Mount], limits: Limits, network: bool, user: str) -> dict[str, Any]:
    """What a container may do, as arguments for the SDK: those of the host configuration and its own."""
    host = {
        "mounts": [
            BindMount(mount.target, str(mount.source.absolute()), type="bind", read_only=not mount.writable)
            for mount in mounts
        ],
        "network_mode": "host" if network else "none",
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true", "label=disable"],
        "read_only": True,
        "tmpfs": {"/tmp": f"size={TMP_BYTES},mode=1777,exec"},
        "mem_limit": limits.memory_bytes,
        "memswap_limit": limits.memory_bytes,
        "pids_limit": limits.processes + HOUSEKEEPING_PROCESSES,
        "ulimits": [Ulimit(name="core", soft=0, hard=0)],
        "auto_remove": True,
    }
    own = {"user": user, "labels": owner.labels(), "environment": dict(BASE_ENVIRONMENT)}
    return {"host": host, "own": own}


def user_of(client: DockerClient) -> str:
    """The user inside who is the caller outside: in a rootless engine that is root (without capabilities)."""
    with told("telling about itself"):
        options = client.info().get("SecurityOptions") or []
    if any("rootless" in option for option in options):
        return "0:0"
    return f"{os.getuid()}:{os.getgid()}"


class DockerEngine:
    """See engine.Engine. `say` is told what takes long; logs and manifests lie below `cache`."""

    name = "docker"
    emulated = True

    def __init__(
        self,
        say: Say = print,
        cache: Path | None = None,
        recipe: Recipe | None = None,
        client: DockerClient | None = None,
    ) -> None:
        self.client = client if client is not None else connect()
        self._say = say
        self._cache = cache if cache is not None else toolchain_cache()
        self._recipe = recipe if recipe is not None else load_recipe()
        self._image: str | None = None
        self._user = ""

    @property
    def is_made(self) -> bool:
        """Whether the image is there already."""
        return find_image(self.client, self._recipe) is not None

    def close(self) -> None:
        self.client.close()

    def prepare(self) -> None:
        if self._image is None:
            image = make_image(self.client, self._cache, self._recipe, self._say)
            sweep_containers(self.client)
            self._user = user_of(self.client)
            self._image = image

    def _made(self) -> str:
        self.prepare()
        if self._image is None:
            msg = "the toolchain image is not there; nothing can run. Make it with: invoke image"
            raise EngineError(msg)
        return self._image

    def manifest(self) -> Mapping[str, str]:
        return read_manifest(self.client, self._cache, self._made())

    def identity(self) -> str:
        return identity_of(self._recipe, self.manifest())

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
            process = sandbox.spawn(argv, env, workdir=workdir, log=log)
            with killed_at_end(process):
                return process.wait(timeout)

    @contextmanager
    def sandbox(self, mounts: Sequence[Mount] = (), limits: Limits | None = None) -> Iterator[DockerSandbox]:
        with self._open(mounts, limits or Limits(), network=False) as sandbox:
            yield sandbox

    @contextmanager
    def _open(self, mounts: Sequence[Mount], limits: Limits, network: bool) -> Iterator[DockerSandbox]:
        check_mounts(mounts)
        image = self._made()
        settings = container_settings(mounts, limits, network, self._user)
        sandbox = DockerSandbox(self.client, image, settings, limits)
        sandbox.open()
        try:
            yield sandbox
        finally:
            sandbox.close()


def sweep_containers(client: DockerClient) -> int:
    """Remove containers of labs that are dead; returns how many there were."""
    swept = 0
    with told("listing the containers of dead labs"):
        for container in client.containers.list(all=True, filters={"label": owner.LAB_LABEL}):
            if owner.is_dead(container.labels):
                with suppress(docker.errors.APIError):
                    container.remove(force=True)
                    swept += 1
    return swept
