# SPDX-License-Identifier: MIT
"""Files that are not GGUF, refused by name: a person who sees what the file is knows what to do."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_OLD = "a format before GGUF, which llama.cpp stopped reading in August 2023; convert the model again"
_SOURCE = "convert it to GGUF first, or give it to `invoke gguf diff` beside a GGUF file"

KNOWN: tuple[tuple[bytes, str], ...] = (
    (b"FUGG", "a GGUF file with its first four bytes swapped; no writer makes such files: it is damaged"),
    (b"lmgg", f"an unversioned GGML file, {_OLD}"),
    (b"fmgg", f"a GGMF file, {_OLD}"),
    (b"tjgg", f"a GGJT file, {_OLD}"),
    (b"algg", f"a GGLA adapter file, {_OLD}"),
    (b"version https://git-lfs", "a Git LFS pointer, not the file itself; fetch it with `git lfs pull`"),
    (b"PK\x03\x04", "a zip archive (PyTorch's .bin and .pt are); convert the model to GGUF"),
    (b"\x80\x02", "a Python pickle (older PyTorch); convert the model to GGUF"),
    (b"\x1f\x8b", "a gzip file; unpack it first"),
    (b"\x28\xb5\x2f\xfd", "a Zstandard file; unpack it first"),
    (b"\xfd7zXZ", "an xz file; unpack it first"),
    (b"\x89HDF", "an HDF5 file; convert the model to GGUF"),
    (b"\x7fELF", "a program or library; `invoke scan` reads those"),
    (b"<", "a text of markup, perhaps the error page of a download; fetch the file again"),
    (b"{", "a JSON text; name the model file"),
)
"""First bytes → what such a file is and what to do. The old magics are numbers, so they read backwards."""

MARKS_BYTES = 64


def refusal(path: Path, handle: int, size: int) -> str:
    """One message for a file that does not begin with `GGUF`."""
    if size == 0:
        return f"{path}: the file is empty; nothing can be said of it. Fetch or write it again"
    begin = os.pread(handle, MARKS_BYTES, 0)
    for mark, what in KNOWN:
        if begin.startswith(mark):
            return f"{path}: this is not GGUF but {what}"
    # Eight bytes of length, then JSON.
    if begin[8:9] == b"{" and size > 9:
        return f"{path}: this is not GGUF but a safetensors file; {_SOURCE}"
    if not begin.strip(b"\0"):
        return f"{path}: the file begins with zeros: a download that was never filled. Fetch it again"
    return f"{path}: this is no GGUF file (it begins with {begin[:4]!r}); name a model file"
