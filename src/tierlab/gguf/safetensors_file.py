# SPDX-License-Identifier: MIT
"""Safetensors files, single or sharded, checked by the library made for them.

The library validates the header, so that the tensors fill the data without holes in the order that it
tells; from that order their places follow. Its NumPy front end has no bfloat16, hence the values are read
here.
"""

from __future__ import annotations

import json
import math
import os
import stat
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from safetensors import SafetensorError, safe_open

from tierlab.errors import ModelFileError, UsageError
from tierlab.gguf.data import Stored
from tierlab.gguf.types import BY_NAME

if TYPE_CHECKING:
    from pathlib import Path

INDEX = "model.safetensors.index.json"
_TYPES = {
    "F64": "f64",
    "F32": "f32",
    "F16": "f16",
    "BF16": "bf16",
    "I64": "i64",
    "I32": "i32",
    "I16": "i16",
    "I8": "i8",
    "U8": "i8",
    "BOOL": "i8",
}
"""Element types that are read. Bytes and truths are compared as bytes; which sign they have does not
matter."""


@dataclass(frozen=True)
class Checkpoint:
    """The tensors of one or more safetensors files by name."""

    path: Path
    files: tuple[Path, ...]
    tensors: dict[str, Stored]

    @property
    def size(self) -> int:
        return sum(file.stat().st_size for file in self.files)


def is_safetensors(path: Path) -> bool:
    """Whether the path names such a file, an index of several, or a folder that holds some."""
    if path.is_dir():
        return any(path.glob("*.safetensors"))
    return path.name.endswith((".safetensors", ".safetensors.index.json"))


def open_checkpoint(path: Path) -> Checkpoint:
    """Read the headers. ModelFileError for damage and types that are not read; UsageError for no such
    file."""
    files = _files(path)
    tensors: dict[str, Stored] = {}
    for file in files:
        for tensor in _tensors(file):
            if tensor.name in tensors:
                msg = f"{file}: the tensor {tensor.name} stands in two files; they do not belong together"
                raise ModelFileError(msg)
            tensors[tensor.name] = tensor
    return Checkpoint(path, files, tensors)


def _files(path: Path) -> tuple[Path, ...]:
    if path.is_dir():
        index = path / INDEX
        return _indexed(index) if index.exists() else tuple(sorted(path.glob("*.safetensors")))
    if path.name.endswith(".index.json"):
        return _indexed(path)
    return (path,)


def _indexed(path: Path) -> tuple[Path, ...]:
    try:
        names = sorted(set(json.loads(path.read_text("utf-8"))["weight_map"].values()))
        files = tuple(path.with_name(name) for name in names)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        msg = f"{path}: it is no index of safetensors files ({problem}); nothing was compared"
        raise ModelFileError(msg) from problem
    missing = [file.name for file in files if not file.is_file()]
    if missing or any(file.parent != path.parent for file in files):
        msg = (
            f"{path}: it names files that are not beside it ({', '.join(missing[:4])}); nothing was compared"
        )
        raise ModelFileError(msg)
    return files


def _tensors(path: Path) -> list[Stored]:
    try:
        kind = os.stat(path)
    except OSError as problem:
        msg = f"{path}: no such file; nothing was read. Check the name"
        raise UsageError(msg) from problem
    if not stat.S_ISREG(kind.st_mode):
        msg = f"{path}: it is no regular file; nothing was read. Name the model file itself"
        raise UsageError(msg)
    try:
        return _listed(path)
    except (SafetensorError, OSError, struct.error) as problem:
        msg = f"{path}: this is no sound safetensors file ({problem}); nothing of it was used"
        raise ModelFileError(msg) from problem


def _listed(path: Path) -> list[Stored]:
    with path.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
    at, found = 8 + length, []
    with safe_open(path, framework="numpy") as opened:
        for name in opened.offset_keys():
            piece = opened.get_slice(name)
            if piece.get_dtype() not in _TYPES:
                msg = f"{path}: tensor {name} has the type {piece.get_dtype()}, which is not read here; "
                raise ModelFileError(msg + "nothing was compared")
            kind = BY_NAME[_TYPES[piece.get_dtype()]]
            shape = tuple(reversed(piece.get_shape()))
            nbytes = math.prod(shape) * kind.nbytes
            found.append(Stored(name, kind, shape, path, at, nbytes))
            at += nbytes
    if at != path.stat().st_size:
        msg = f"{path}: its tensors end at byte {at:,} and the file at {path.stat().st_size:,}; it is damaged"
        raise ModelFileError(msg)
    return found
