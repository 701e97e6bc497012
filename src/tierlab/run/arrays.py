# SPDX-License-Identifier: MIT
"""Named arrays in one file: a line of JSON, then the arrays' bytes.

A run reads thousands of such files, most of them of a few kilobytes; NumPy's zip archives take ten times as
long.
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

Arrays = dict[str, "NDArray[Any]"]

ALIGNMENT = 16
"""Arrays start at multiples of this many bytes, those of every type that is stored."""


def save(path: Path, arrays: Arrays) -> None:
    """Write the file in one step; a reader sees all of it or nothing. Raises OSError."""
    parts = [_padded(np.ascontiguousarray(array).tobytes()) for array in arrays.values()]
    body = b"".join(parts)
    entries = [[name, array.dtype.str, list(array.shape)] for name, array in arrays.items()]
    head = json.dumps({"crc": zlib.crc32(body), "arrays": entries}).encode()
    draft = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(_padded(head + b"\n") + body)
        draft.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise


def load(path: Path) -> Arrays | None:
    """The arrays of a file, read-only; None if it is missing, damaged or of another kind."""
    try:
        data = path.read_bytes()
        end = data.index(b"\n") + 1
        head = json.loads(data[:end])
        at = _rounded(end)
        if zlib.crc32(memoryview(data)[at:]) != head["crc"]:
            return None
        arrays: Arrays = {}
        for name, kind, shape in head["arrays"]:
            dtype, count = np.dtype(kind), int(np.prod(shape, dtype=np.int64))
            arrays[name] = np.frombuffer(data, dtype, count, at).reshape(shape)
            at += _rounded(count * dtype.itemsize)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return arrays


def _rounded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _padded(data: bytes) -> bytes:
    return data.ljust(_rounded(len(data)), b"\0")
