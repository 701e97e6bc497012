# SPDX-License-Identifier: MIT
"""The toolchain image inside a Docker engine: found by its recipe's hash, else built."""

from __future__ import annotations

import io
import tarfile
from typing import TYPE_CHECKING, Any, BinaryIO

import docker.errors

from tierlab.errors import EngineError
from tierlab.toolchain.cache import built_whole, is_disk_full, locked, require_space, sweep_partials
from tierlab.toolchain.docker_client import TROUBLE, short, told
from tierlab.toolchain.image import (
    IMAGE_BYTES,
    MANIFEST_PATH,
    RECIPE_FILES,
    RELEASE,
    Recipe,
    log_failure,
    parse_manifest,
)
from tierlab.toolchain.rootfs_image import make_base_archive

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from docker import DockerClient

    from tierlab.toolchain.engine import Say

RECIPE_LABEL = "tierlab.recipe"
BASE_REPOSITORY = "tierlab-base"
BUILD_SECONDS = 3600
PROXY_VARIABLES = ("http_proxy", "https_proxy", "no_proxy")


def find_image(client: DockerClient, recipe: Recipe) -> str | None:
    """The id of the image that this very recipe made, or None."""
    with told("looking for the toolchain image"):
        try:
            image = client.images.get(recipe.tag)
        except docker.errors.ImageNotFound:
            return None
    return image.id if image.labels.get(RECIPE_LABEL) == recipe.digest else None


def make_image(client: DockerClient, cache: Path, recipe: Recipe, say: Say) -> str:
    """The id of the recipe's image, built if it is not there. The tag appears only after success."""
    found = find_image(client, recipe)
    if found:
        return found
    with locked(cache / "lock", lambda: say("another lab is making the toolchain; waiting for it")):
        found = find_image(client, recipe)
        if found:
            return found
        sweep_partials(cache)
        require_space(cache, IMAGE_BYTES // 4, "the base of the toolchain image")
        log = cache / f"docker-{recipe.short}.log"
        say(f"making the image {recipe.tag} (one to three minutes, once; log: {log})")
        with log.open("wb") as sink:
            base = _base(client, cache, recipe, say, sink)
            _build(client, recipe, base, sink, log)
    made = find_image(client, recipe)
    if made is None:
        msg = f"the engine reports success but has no image {recipe.tag}; nothing can run. Read {log}"
        raise EngineError(msg)
    return made


def _base(client: DockerClient, cache: Path, recipe: Recipe, say: Say, sink: BinaryIO) -> str:
    """A base image: the recipe's, if it is here or can be pulled, else one made with mmdebstrap."""
    own = f"{BASE_REPOSITORY}:{RELEASE}"
    for name in (recipe.base, own):
        if _exists(client, name):
            return name
    try:
        _note(sink, f"pulling {recipe.base}")
        client.images.pull(recipe.base)
    except TROUBLE as error:
        notice = f"{recipe.base} cannot be pulled ({short(error)}): its like is made with mmdebstrap"
        say(notice)
        _note(sink, notice)
        _import_base(client, cache, own, say)
        return own
    return recipe.base


def _exists(client: DockerClient, name: str) -> bool:
    try:
        client.images.get(name)
    except docker.errors.ImageNotFound:
        return False
    return True


def _import_base(client: DockerClient, cache: Path, name: str, say: Say) -> None:
    repository, tag = name.split(":")
    with built_whole(cache / "docker-base") as directory:
        archive = directory / "base.tar"
        make_base_archive(archive, cache / "docker-base.log", say)
        with told("importing the base image"):
            client.api.import_image_from_file(str(archive), repository=repository, tag=tag)
        archive.unlink()


def _build(client: DockerClient, recipe: Recipe, base: str, sink: BinaryIO, log: Path) -> None:
    _note(sink, f"building {recipe.tag} from {base}")
    with told("building the toolchain image"):
        events = client.api.build(
            fileobj=_context(recipe),
            custom_context=True,
            tag=recipe.tag,
            buildargs={"BASE": base},
            labels={RECIPE_LABEL: recipe.digest},
            # The engine's own network cannot always resolve names; the host's can if anything can.
            network_mode="host",
            rm=True,
            forcerm=True,
            decode=True,
            timeout=BUILD_SECONDS,
        )
        failure = _follow(events, sink)
    if failure is not None:
        raise _build_error(failure, log)


def _follow(events: Iterable[Any], sink: BinaryIO) -> str | None:
    """Write the build's output to the log; its error message, or None."""
    failure = None
    for event in events:
        failure = event.get("error", failure)
        sink.write(str(event.get("stream", "")).encode())
        sink.flush()
    if failure is not None:
        _note(sink, failure)
    return failure


def _build_error(failure: str, log: Path) -> EngineError:
    text = log.read_text(encoding="utf-8", errors="replace")
    if is_disk_full(text):
        return EngineError(
            "the disk is full where the docker engine keeps its images; no image was kept. Free about 3 GiB "
            "there (docker system df tells what takes the room) and start again"
        )
    reason = log_failure(log) if "recipe error: " in text else failure.strip()
    return EngineError(f"the toolchain image was not built: {reason}; none was kept. The whole log is {log}")


def _note(sink: BinaryIO, line: str) -> None:
    sink.write(f"tierlab: {line}\n".encode())
    sink.flush()


def _context(recipe: Recipe) -> BinaryIO:
    """The build context: the recipe's files, nothing else, with no trace of who owns them."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in RECIPE_FILES:
            data = (recipe.directory / name).read_bytes()
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            entry.mode = 0o644
            archive.addfile(entry, io.BytesIO(data))
    buffer.seek(0)
    return buffer


def read_manifest(client: DockerClient, cache: Path, image: str) -> dict[str, str]:
    """The image's manifest; kept in the cache under the image's id, which never names another content."""
    kept = cache / f"docker-{image.removeprefix('sha256:')[:24]}.manifest"
    if kept.is_file():
        return parse_manifest(kept.read_text())
    with told("reading the image's manifest"):
        container = client.containers.create(image, ["true"], network_mode="none")
        try:
            chunks, _ = container.get_archive(MANIFEST_PATH)
            archive = io.BytesIO(b"".join(chunks))
        finally:
            container.remove(force=True)
    with tarfile.open(fileobj=archive) as opened:
        file = opened.extractfile(MANIFEST_PATH.rsplit("/", 1)[1])
        text = file.read().decode() if file is not None else ""
    manifest = parse_manifest(text)
    partial = kept.with_suffix(".new")
    partial.write_text(text)
    partial.rename(kept)
    return manifest
