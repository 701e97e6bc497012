# SPDX-License-Identifier: MIT
"""GGUF files made by hand, so that every byte of them can be wrong on purpose."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CODES = {
    "u8": (0, "B"), "i8": (1, "b"), "u16": (2, "H"), "i16": (3, "h"), "u32": (4, "I"), "i32": (5, "i"),
    "f32": (6, "f"), "bool": (7, "?"), "u64": (10, "Q"), "i64": (11, "q"), "f64": (12, "d"),
}  # fmt: skip
SIZES = {
    0: (1, 4),
    1: (1, 2),
    2: (32, 18),
    3: (32, 20),
    8: (32, 34),
    14: (256, 210),
    20: (32, 18),
    23: (256, 136),
}
SIZES |= {6: (32, 22), 12: (256, 144), 30: (1, 2), 39: (32, 17)}
F32, F16, Q4_0, Q4_1, Q5_0, Q8_0, Q4_K, Q6_K, IQ4_NL, IQ4_XS, BF16 = 0, 1, 2, 3, 6, 8, 12, 14, 20, 23, 30


@dataclass(frozen=True)
class Made:
    """A tensor to write; without `data` its bytes are made up. `offset` overrides where it is said to lie."""

    name: str
    type: int
    shape: tuple[int, ...]
    data: bytes | None = None
    offset: int | None = None

    @property
    def content(self) -> bytes:
        if self.data is not None:
            return self.data
        block, nbytes = SIZES[self.type]
        size = int(np.prod(self.shape, dtype=object)) // block * nbytes
        seed = sum(self.name.encode()) % 251
        return bytes((seed + at * 7) % 256 for at in range(size))


def text(value: str | bytes, order: str = "<") -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack(f"{order}Q", len(data)) + data


def value(kind: str, content: Any, order: str = "<") -> bytes:
    """Type and value: kinds are `str`, a number's, or `[kind]` for an array."""
    if kind == "str":
        return struct.pack(f"{order}I", 8) + text(content, order)
    if kind.startswith("["):
        inner = kind[1:-1]
        number = 8 if inner == "str" else CODES[inner][0]
        begin = struct.pack(f"{order}IIQ", 9, number, len(content))
        if inner == "str":
            return begin + b"".join(text(item, order) for item in content)
        return begin + struct.pack(f"{order}{len(content)}{CODES[inner][1]}", *content)
    number, code = CODES[kind]
    return struct.pack(f"{order}I{code}", number, content)


def gguf_file(
    metadata: Mapping[str, tuple[str, Any]],
    tensors: Sequence[Made] = (),
    *,
    order: str = "<",
    version: int = 3,
    alignment: int = 32,
    counts: tuple[int, int] | None = None,
) -> bytes:
    """A whole file; `counts` overrides (tensors, keys)."""
    stated = counts or (len(tensors), len(metadata))
    out = bytearray(b"GGUF" + struct.pack(f"{order}IQQ", version, *stated))
    for key, (kind, content) in metadata.items():
        out += text(key, order) + value(kind, content, order)
    data = bytearray()
    for tensor in tensors:
        data += bytes(-len(data) % alignment)
        at = len(data) if tensor.offset is None else tensor.offset
        out += text(tensor.name, order) + struct.pack(f"{order}I", len(tensor.shape))
        out += struct.pack(f"{order}{len(tensor.shape)}Q", *tensor.shape)
        out += struct.pack(f"{order}IQ", tensor.type, at)
        data += tensor.content
    return bytes(out + bytes(-len(out) % alignment) + data)


LLAMA: dict[str, tuple[str, Any]] = {
    "general.architecture": ("str", "llama"),
    "general.file_type": ("u32", 2),
    "llama.block_count": ("u32", 1),
    "llama.attention.head_count": ("u32", 4),
    "llama.attention.head_count_kv": ("u32", 2),
    "tokenizer.ggml.tokens": ("[str]", ["a", "bc", "", "def"]),
    "tokenizer.ggml.scores": ("[f32]", [0.0, -1.0, 2.5, 3.0]),
    "tokenizer.chat_template": ("str", "{{ text }}"),
}


def layer(kind: int = Q4_0, row: int = 64, number: int = 0) -> list[Made]:
    """The tensors of one layer of a small llama."""
    names = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    made = [Made(f"blk.{number}.{name}.weight", kind, (row, 32)) for name in names]
    norms = [Made(f"blk.{number}.{name}.weight", F32, (row,)) for name in ("attn_norm", "ffn_norm")]
    return made + norms


def llama(kind: int = Q4_0, row: int = 64, label: int | None = 2, **options: Any) -> bytes:
    """A small llama of one layer with a tied Q8_0 embedding."""
    metadata = {**LLAMA, "general.file_type": ("u32", label)}
    if label is None:
        del metadata["general.file_type"]
    tensors = [
        Made("token_embd.weight", Q8_0, (row, 32)),
        *layer(kind, row),
        Made("output_norm.weight", F32, (row,)),
    ]
    return gguf_file(metadata, tensors, **options)
