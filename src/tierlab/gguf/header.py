# SPDX-License-Identifier: MIT
"""The header of one GGUF file: metadata and tensor table, versions 2 and 3, either byte order."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tierlab.errors import ModelFileError
from tierlab.gguf.cursor import SCALARS, Cursor
from tierlab.gguf.foreign import refusal
from tierlab.gguf.types import REMOVED_TYPES, TYPES, TensorType

if TYPE_CHECKING:
    from pathlib import Path

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
STRING, ARRAY = 8, 9

MOST_TENSORS = 1 << 17
MOST_KEYS = 1 << 16
KEY_BYTES = 1 << 16
NAME_BYTES = 1 << 10
KEPT_BYTES = 1 << 16
"""Longer strings stay in the file; only where they lie is kept."""
STRING_BYTES = 16 << 20
MOST_DIMENSIONS = 4
MOST_ELEMENTS = 1 << 62


@dataclass(frozen=True, slots=True)
class Value:
    """One metadata value. `kind` is like `u32`, `str` or `arr[str]`.

    `value` is the number, truth or short string; None for arrays and long strings, which lie at `offset`
    (`nbytes` long, `count` items) in the file.
    """

    kind: str
    offset: int
    nbytes: int
    count: int
    value: int | float | bool | str | None


@dataclass(frozen=True, slots=True)
class Tensor:
    """One line of the tensor table. `shape` is ggml's: the row length first. `offset` counts from the file's
    start."""

    name: str
    type: TensorType
    shape: tuple[int, ...]
    offset: int
    nbytes: int
    part: int = 0

    @property
    def row(self) -> int:
        return self.shape[0] if self.shape else 1

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def rows(self) -> int:
        return math.prod(self.shape[1:])


@dataclass(frozen=True)
class Header:
    """What stands before the data.

    `order` is `<` or `>`; the data begin at `begin`; `hole` counts bytes between tensors that belong to
    none and are more than padding.
    """

    path: Path
    version: int
    order: str
    size: int
    alignment: int
    begin: int
    metadata: dict[str, Value]
    tensors: tuple[Tensor, ...]
    hole: int


def read_header(path: Path, handle: int) -> Header:
    """Read the header of the open file. Raises ModelFileError, and nothing else that its bytes can cause."""
    cursor = Cursor(path, handle, "<", 0)
    if cursor.size < len(MAGIC) or _magic(cursor) != MAGIC:
        raise ModelFileError(refusal(path, handle, cursor.size))
    version = _version(cursor)
    count = cursor.number("Q", "the number of tensors")
    if count > MOST_TENSORS:
        msg = f"{count:,} tensors are claimed; {MOST_TENSORS:,} at most are read"
        raise cursor.error(msg)
    metadata = _metadata(cursor)
    alignment = _alignment(cursor, metadata)
    table = _table(cursor, count)
    begin = -(-cursor.at // alignment) * alignment
    tensors, hole = _placed(cursor, table, begin, alignment)
    return Header(
        path, version, cursor.order, cursor.size, alignment, begin, metadata, tensors, hole
    )  # fmt: skip


def _magic(cursor: Cursor) -> bytes:
    return struct.pack("<I", cursor.number("I", "the first four bytes"))


def _version(cursor: Cursor) -> int:
    version: int = cursor.number("I", "the version")
    if version & 0xFFFF == 0 and version:
        # The magic reads the same in either order; the version tells. Byte orders are swapped as a whole.
        cursor.at -= 4
        cursor.order = ">"
        version = cursor.number("I", "the version")
    if version == 1:
        msg = "this is GGUF version 1 (August 2023, 32-bit lengths), which llama.cpp does not read either; "
        msg += "convert the model again"
        raise cursor.error(msg, 4)
    if version not in VERSIONS:
        msg = f"this is GGUF version {version:,}; versions 2 and 3 are read"
        raise cursor.error(msg, 4)
    return version


def _metadata(cursor: Cursor) -> dict[str, Value]:
    count = cursor.number("Q", "the number of metadata keys")
    if count > MOST_KEYS:
        msg = f"{count:,} metadata keys are claimed; {MOST_KEYS:,} at most are read"
        raise cursor.error(msg)
    found: dict[str, Value] = {}
    for index in range(count):
        begin = cursor.at
        key = _decoded(cursor.text(KEY_BYTES, f"metadata key {index + 1}"))
        if not key:
            msg = f"metadata key {index + 1} is empty"
            raise cursor.error(msg, begin)
        if key in found:
            msg = f"the metadata key {shown(key)} stands there twice"
            raise cursor.error(msg, begin)
        found[key] = _value(cursor, key)
    return found


def _value(cursor: Cursor, key: str) -> Value:
    what = f"the value of {shown(key)}"
    begin = cursor.at
    number = cursor.number("I", f"the type of {shown(key)}")
    if number == STRING:
        return _string(cursor, what)
    if number == ARRAY:
        return _array(cursor, what)
    if number not in SCALARS:
        msg = f"{what} has the type {number}, which does not exist"
        raise cursor.error(msg, begin)
    kind, code = SCALARS[number]
    at = cursor.at
    value = cursor.number(code, what)
    return Value(kind, at, cursor.at - at, 1, value)


def _string(cursor: Cursor, what: str) -> Value:
    begin = cursor.at
    length = cursor.number("Q", f"the length of {what}")
    if length > KEPT_BYTES:
        if length > STRING_BYTES:
            msg = f"{what} claims {length:,} bytes and may have {STRING_BYTES:,} at most"
            raise cursor.error(msg, begin)
        cursor.skip(length, what)
        return Value("str", begin + 8, length, 1, None)
    cursor.at = begin
    return Value("str", begin + 8, length, 1, _decoded(cursor.text(KEPT_BYTES, what)))


def _array(cursor: Cursor, what: str) -> Value:
    begin = cursor.at
    number = cursor.number("I", f"the type of the items of {what}")
    if number == ARRAY:
        msg = f"{what} is an array of arrays, which llama.cpp does not read either"
        raise cursor.error(msg, begin)
    if number != STRING and number not in SCALARS:
        msg = f"{what} has items of the type {number}, which does not exist"
        raise cursor.error(msg, begin)
    count = cursor.number("Q", f"the number of items of {what}")
    at = cursor.at
    if number == STRING:
        cursor.skip_strings(count, what)
        return Value("arr[str]", at, cursor.at - at, count, None)
    kind, code = SCALARS[number]
    cursor.skip(count * struct.calcsize(f"={code}"), what)
    return Value(f"arr[{kind}]", at, cursor.at - at, count, None)


def _alignment(cursor: Cursor, metadata: dict[str, Value]) -> int:
    value = metadata.get("general.alignment")
    if value is None:
        return DEFAULT_ALIGNMENT
    number = value.value
    if value.kind != "u32" or not isinstance(number, int) or number < 1 or number & (number - 1):
        msg = f"general.alignment is {number} ({value.kind}) and must be a power of two (u32)"
        raise cursor.error(msg, value.offset)
    return number


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of the tensor table at byte `at`; `relative` is the offset from the start of the data."""

    name: str
    type: TensorType
    shape: tuple[int, ...]
    relative: int
    at: int


def _table(cursor: Cursor, count: int) -> list[_Line]:
    lines: list[_Line] = []
    names: set[str] = set()
    for index in range(count):
        begin = cursor.at
        name = _decoded(cursor.text(NAME_BYTES, f"the name of tensor {index + 1}"))
        if name in names:
            msg = f"the tensor {shown(name)} stands there twice"
            raise cursor.error(msg, begin)
        names.add(name)
        what = f"tensor {shown(name)}"
        shape = _shape(cursor, what)
        kind = _type(cursor, what)
        if shape and shape[0] % kind.block:
            msg = f"{what} has rows of {shape[0]:,} elements, no multiple of {kind.name}'s {kind.block}"
            raise cursor.error(msg, begin)
        lines.append(_Line(name, kind, shape, cursor.number("Q", f"the offset of {what}"), begin))
    return lines


def _shape(cursor: Cursor, what: str) -> tuple[int, ...]:
    begin = cursor.at
    dimensions = cursor.number("I", f"the number of dimensions of {what}")
    if dimensions > MOST_DIMENSIONS:
        msg = f"{what} claims {dimensions:,} dimensions; ggml knows {MOST_DIMENSIONS}"
        raise cursor.error(msg, begin)
    shape = tuple(cursor.number("Q", f"the shape of {what}") for _ in range(dimensions))
    if math.prod(shape) > MOST_ELEMENTS or max(shape, default=0) > MOST_ELEMENTS:
        msg = (
            f"{what} claims {' × '.join(f'{size:,}' for size in shape)} elements, more than any file can hold"
        )
        raise cursor.error(msg, begin)
    return shape


def _type(cursor: Cursor, what: str) -> TensorType:
    begin = cursor.at
    number = cursor.number("I", f"the type of {what}")
    if number in REMOVED_TYPES:
        old = REMOVED_TYPES[number]
        msg = f"{what} has the type {old} ({number}), which ggml removed. Make the file again from its source"
        raise cursor.error(msg, begin)
    if number not in TYPES:
        msg = f"{what} has the type {number}, which ggml does not know (as of this lab's type table)"
        raise cursor.error(msg, begin)
    return TYPES[number]


def _placed(cursor: Cursor, table: list[_Line], begin: int, alignment: int) -> tuple[tuple[Tensor, ...], int]:
    """Tensors with their places in the file, all inside of it and none in another's place; bytes in holes."""
    placed = []
    for line in table:
        if line.relative % alignment:
            msg = f"tensor {shown(line.name)} begins at {line.relative:,}, against the alignment {alignment}"
            raise cursor.error(msg, line.at)
        nbytes = math.prod(line.shape) // line.type.block * line.type.nbytes
        offset = begin + line.relative
        if nbytes and offset + nbytes > cursor.size:
            msg = (
                f"tensor {shown(line.name)} lies at {offset:,} to {offset + nbytes:,} and the file ends at "
                f"{cursor.size:,}: it is cut or damaged"
            )
            raise cursor.error(msg, line.at)
        placed.append(Tensor(line.name, line.type, line.shape, offset, nbytes))
    return tuple(placed), _hole(cursor, placed, begin, alignment)


def _hole(cursor: Cursor, placed: list[Tensor], begin: int, alignment: int) -> int:
    hole, end, last = 0, begin, "the header"
    for tensor in sorted((t for t in placed if t.nbytes), key=lambda t: t.offset):
        if tensor.offset < end:
            msg = f"tensor {shown(tensor.name)} lies in the place of {last}"
            raise cursor.error(msg, tensor.offset)
        padded = -(-end // alignment) * alignment
        hole += max(tensor.offset - padded, 0)
        end, last = tensor.offset + tensor.nbytes, f"tensor {shown(tensor.name)}"
    return hole


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def shown(name: str) -> str:
    """A name from a file as messages show it: short, on one line, without control characters."""
    plain = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in name)
    return plain if len(plain) <= 80 else plain[:79] + "…"
