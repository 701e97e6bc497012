# SPDX-License-Identifier: MIT
"""Choosing an engine: the one that is asked for, else the first that can work here."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from tierlab.errors import EngineError, UsageError
from tierlab.toolchain.cache import remove_tree, toolchain_cache
from tierlab.toolchain.docker_client import connect, told
from tierlab.toolchain.docker_engine import DockerEngine, sweep_containers
from tierlab.toolchain.docker_image import BASE_REPOSITORY
from tierlab.toolchain.image import extended_recipe, load_recipe
from tierlab.toolchain.native_engine import NativeEngine
from tierlab.toolchain.rootfs_engine import RootfsEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tierlab.toolchain.engine import Engine, Say
    from tierlab.toolchain.image import Recipe

ENGINES: Mapping[str, Callable[..., Engine]] = {
    "docker": DockerEngine,
    "rootfs": RootfsEngine,
    "native": NativeEngine,
}


def choose_engine(name: str | None = None, say: Say = print, packages: str = "") -> Engine:
    """The engine called `name`, or without a name: docker if a local daemon answers, else rootfs.

    `packages` names a list of the recipe (`llvm` for llvm.txt): the engine then enters an image of its own
    that holds those packages too. Nothing is made yet; `prepare` (or the first use) does that. UsageError for
    an unknown name, EngineError with instructions if none can work here.
    """
    recipe = extended_recipe(load_recipe(), packages, toolchain_cache()) if packages else None
    if name is not None:
        return _named(name, say, recipe)
    try:
        return DockerEngine(say, recipe=recipe)
    except EngineError as error:
        no_docker = str(error)
    engine = RootfsEngine(say, recipe=recipe)
    obstacle = engine.obstacle()
    if obstacle is not None:
        msg = f"no engine can work here. docker: {no_docker}. rootfs: {obstacle}"
        raise EngineError(msg)
    say("engine: rootfs (no local Docker engine answers)")
    return engine


def _named(name: str, say: Say, recipe: Recipe | None) -> Engine:
    make = ENGINES.get(name)
    if make is None:
        near = difflib.get_close_matches(name, ENGINES, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        msg = f"there is no engine {name!r}{hint} Engines: {', '.join(ENGINES)}"
        raise UsageError(msg)
    return make(say, recipe=recipe)


def remove_images(say: Say = print) -> None:
    """Remove every toolchain image and tree of every engine that answers, with their logs."""
    try:
        client = connect()
    except EngineError:
        client = None
    if client is not None:
        sweep_containers(client)
        with told("removing images"):
            for repository in ("tierlab-toolchain", BASE_REPOSITORY):
                for image in client.images.list(repository):
                    for tag in image.tags:
                        client.images.remove(tag, force=True)
                        say(f"removed the image {tag}")
        client.close()
    cache = toolchain_cache()
    for entry in cache.iterdir():
        if entry.name != "lock":
            remove_tree(entry)
            say(f"removed {entry}")
