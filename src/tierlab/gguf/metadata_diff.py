# SPDX-License-Identifier: MIT
"""Metadata of two models: what was added, removed, changed; whether the tokenizers are the same."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np

from tierlab.gguf.cursor import SCALARS
from tierlab.gguf.model import raw_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tierlab.gguf.header import Header, Value
    from tierlab.gguf.model import Model

TOKENIZER = "tokenizer.ggml."
_SPLIT = "split."


@dataclass(frozen=True)
class Change:
    """One key: as text what it is in A and in B, empty where it is not there."""

    key: str
    a: str
    b: str


@dataclass(frozen=True)
class MetadataDiff:
    """`same_tokenizer` is None where neither model has one."""

    changes: tuple[Change, ...]
    equal: int
    same_tokenizer: bool | None


def metadata_diff(a: Model, b: Model) -> MetadataDiff:
    """Compare by value: byte order, version and place in the file do not count; nor do the keys of split
    files."""
    changes, equal = [], 0
    for key in dict.fromkeys((*a.head.metadata, *b.head.metadata)):
        if key.startswith(_SPLIT):
            continue
        left, right = a.head.metadata.get(key), b.head.metadata.get(key)
        if left is None or right is None:
            changes.append(Change(key, _shown(left), _shown(right)))
        elif change := _changed(a.head, left, b.head, right):
            changes.append(Change(key, *change))
        else:
            equal += 1
    keys = {key for model in (a, b) for key in model.head.metadata if key.startswith(TOKENIZER)}
    differing = any(change.key.startswith(TOKENIZER) for change in changes)
    return MetadataDiff(tuple(changes), equal, None if not keys else not differing)


def _changed(a: Header, left: Value, b: Header, right: Value) -> tuple[str, str] | None:
    """Both as text if the values differ."""
    if left.kind != right.kind or left.count != right.count:
        return _shown(left), _shown(right)
    if left.value is not None and right.value is not None:
        equal = left.value == right.value or (left.value != left.value and right.value != right.value)
        return None if equal else (_shown(left), _shown(right))
    pairs = zip_longest(items(a, left), items(b, right))
    at = next((index for index, (one, other) in enumerate(pairs) if one != other), None)
    return None if at is None else (_shown(left), f"{_shown(right)}, differs from item {at} on")


def _shown(value: Value | None) -> str:
    if value is None:
        return ""
    if value.value is None:
        return (
            f"{value.kind}, {value.count:,} items"
            if value.count > 1
            else f"{value.kind}, {value.nbytes:,} bytes"
        )
    return str(value.value)


def items(header: Header, value: Value) -> Iterator[bytes | int | float | bool]:
    """The items of an array (strings as bytes), or the one long string, in the host's byte order."""
    data = raw_value(header, value)
    if value.kind == "str":
        yield data
        return
    kind = value.kind.removeprefix("arr[").removesuffix("]")
    if kind == "str":
        unpack, at = struct.Struct(f"{header.order}Q").unpack_from, 0
        for _ in range(value.count):
            (length,) = unpack(data, at)
            yield data[at + 8 : at + 8 + length]
            at += 8 + length
        return
    code = next(code for name, code in SCALARS.values() if name == kind)
    # As whole numbers of their bits: a NaN is equal to itself here.
    size = struct.calcsize(f"={code}")
    yield from np.frombuffer(data, f"{header.order}u{size}").tolist()
