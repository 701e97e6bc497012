# SPDX-License-Identifier: MIT
"""A model as a whole: one GGUF file, or all parts of a split one."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import struct
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tierlab.errors import ModelFileError, UsageError
from tierlab.gguf.cursor import SCALARS
from tierlab.gguf.header import STRING_BYTES, Header, Tensor, Value, read_header

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

PART = re.compile(r"(?P<stem>.+)-(?P<number>[0-9]{5})-of-(?P<count>[0-9]{5})\.gguf")
READ_BYTES = 1 << 20


@dataclass(frozen=True)
class Model:
    """A model: `parts` in order (one for a file that is not split), and the tensors of all of them."""

    parts: tuple[Header, ...]
    tensors: tuple[Tensor, ...]

    @property
    def head(self) -> Header:
        """The part that carries the metadata: the first."""
        return self.parts[0]

    @property
    def name(self) -> str:
        """The path as reports show it: of the first part, and how many there are."""
        more = f" (+ {len(self.parts) - 1} parts)" if len(self.parts) > 1 else ""
        return f"{self.head.path}{more}"

    @property
    def stem(self) -> str:
        """The file's name without `.gguf` and without the number of the part."""
        found = PART.fullmatch(self.head.path.name)
        return found["stem"] if found else self.head.path.name.removesuffix(".gguf")

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)

    def text(self, key: str) -> str:
        """The string value of a metadata key; empty if there is none or it is no string."""
        value = self.head.metadata.get(key)
        return value.value if value is not None and isinstance(value.value, str) else ""

    def integer(self, key: str) -> int | None:
        """The integer value of a metadata key."""
        value = self.head.metadata.get(key)
        number = value.value if value is not None else None
        return number if isinstance(number, int) and not isinstance(number, bool) else None

    def items(self, key: str) -> list[int] | None:
        """The integers of a key, of a scalar too. None if it is missing or holds something else."""
        value = self.head.metadata.get(key)
        if value is None:
            return None
        if isinstance(value.value, int):
            return [int(value.value)]
        kind = value.kind.removeprefix("arr[").removesuffix("]")
        code = next((code for name, code in SCALARS.values() if name == kind and kind[0] in "iu"), "")
        if not code or value.nbytes > STRING_BYTES:
            return None
        data = raw_value(self.head, value)
        return [int(item) for (item,) in struct.iter_unpack(self.head.order + code, data)]


def open_model(path: Path) -> Model:
    """Read the header of `path`, and of the other parts if it is one of several.

    UsageError where there is no such file; ModelFileError for damaged, incomplete or foreign files.
    """
    first = _header(path)
    count = first.metadata.get("split.count")
    if count is None or not isinstance(count.value, int) or count.value < 2:
        return Model((first,), first.tensors)
    return _joined(path, int(count.value))


def open_models(paths: Iterable[Path]) -> Iterator[tuple[Path, Model | ModelFileError]]:
    """Each model once, however many of its parts are named; an error stands in the place of its model."""
    seen: set[str] = set()
    for path in paths:
        if os.path.realpath(path) in seen:
            continue
        try:
            model = open_model(path)
        except ModelFileError as error:
            yield path, error
            continue
        seen |= {os.path.realpath(part.path) for part in model.parts}
        yield path, model


def raw_value(header: Header, value: Value) -> bytes:
    """The bytes of a value as they lie in the file (for strings in arrays: with their lengths)."""
    with _opened(header.path) as handle:
        return os.pread(handle, value.nbytes, value.offset)


def file_sha256(path: Path) -> str:
    """SHA-256 (hex) of the whole file, read in pieces."""
    with _opened(path) as handle, os.fdopen(os.dup(handle), "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _header(path: Path) -> Header:
    with _opened(path) as handle:
        try:
            return read_header(path, handle)
        except OSError as problem:
            msg = f"{path}: it cannot be read ({problem.strerror or problem}); nothing can be said of it"
            raise ModelFileError(msg) from problem


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    try:
        # Without blocking: opening a pipe that nobody writes to would wait forever.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError, ValueError) as problem:
        msg = f"{path}: no such file; nothing was read. Check the name"
        raise UsageError(msg) from problem
    except OSError as problem:
        msg = f"{path}: it cannot be opened ({problem.strerror}); nothing can be said of it. Let it be read"
        raise ModelFileError(msg) from problem
    try:
        kind = os.fstat(handle).st_mode
        if not stat.S_ISREG(kind):
            what = "a directory" if stat.S_ISDIR(kind) else "no regular file"
            msg = f"{path}: it is {what}; nothing was read. Name the model file itself"
            raise UsageError(msg)
        yield handle
    finally:
        os.close(handle)


def _joined(path: Path, count: int) -> Model:
    """All parts of a split model, checked to belong together."""
    found = PART.fullmatch(path.name)
    if found is None or int(found["count"]) != count:
        msg = (
            f"{path}: it is one of {count} parts, and its name does not say so; the others cannot be found. "
            f"Name the parts NAME-00001-of-{count:05}.gguf and so on"
        )
        raise ModelFileError(msg)
    paths = [path.with_name(f"{found['stem']}-{index + 1:05}-of-{count:05}.gguf") for index in range(count)]
    missing = [other.name for other in paths if not other.exists()]
    if missing:
        named = ", ".join(missing[:4]) + (f" and {len(missing) - 4} more" if len(missing) > 4 else "")
        msg = f"{path}: of its {count} parts these are missing: {named}; nothing can be said of the model"
        raise ModelFileError(msg)
    parts = tuple(_header(other) for other in paths)
    for index, part in enumerate(parts):
        stated = [_stated(part, key) for key in ("split.no", "split.count")]
        if stated != [index, count]:
            msg = (
                f"{part.path}: by its metadata it is part {stated[0]} of {stated[1]} (counted from 0), by "
                f"its name part {index} of {count}; the files were mixed up"
            )
            raise ModelFileError(msg)
    tensors = tuple(replace(tensor, part=at) for at, part in enumerate(parts) for tensor in part.tensors)
    _complete(parts, tensors)
    return Model(parts, tensors)


def _complete(parts: tuple[Header, ...], tensors: tuple[Tensor, ...]) -> None:
    names = {tensor.name for tensor in tensors}
    if len(names) != len(tensors):
        msg = f"{parts[0].path}: a tensor stands in two parts; the files do not belong together"
        raise ModelFileError(msg)
    wanted = _stated(parts[0], "split.tensors.count")
    if wanted is not None and wanted != len(tensors):
        msg = f"{parts[0].path}: the parts hold {len(tensors):,} tensors, not {wanted:,}; one is another's"
        raise ModelFileError(msg)


def _stated(part: Header, key: str) -> Any:
    value = part.metadata.get(key)
    return value.value if value is not None else None
