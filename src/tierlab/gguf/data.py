# SPDX-License-Identifier: MIT
"""Values of tensors, read through small maps of the file, so that no tensor has to fit into memory."""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tierlab.errors import ModelFileError
from tierlab.gguf.header import shown
from tierlab.gguf.types import BY_NAME, INTEGERS, TensorType
from tierlab.oracle.formats import FORMATS
from tierlab.oracle.weights import decode_rows

if TYPE_CHECKING:
    from pathlib import Path

    from tierlab.gguf.header import Tensor
    from tierlab.gguf.model import Model

U8 = NDArray[np.uint8]
F64 = NDArray[np.float64]

CHUNK = 1 << 18
"""Elements that are decoded at once: a multiple of every block, some 2 MB in float64."""

SWAPPED: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("q4_0", "q8_0", "q1_0", "q2_0", "iq4_nl"), (0,)),
    **dict.fromkeys(("q4_1", "q4_k", "q5_k", "q5_1"), (0, 2)),
    "q5_0": (0,),
    "q2_k": (80, 82),
    "q3_k": (108,),
    "q6_k": (208,),
    "iq4_xs": (0, 2),
    "mxfp4": (),
}
"""Where the 16-bit numbers of a block begin, which a big-endian file holds the other way round. The other
quantised types hold larger fields whose order there nobody has fixed; their values are not read."""

INEXACT = {"q5_0", "q5_1"}
"""Their high bits are four bytes that programs copy into a number: nothing says in which order."""


@dataclass(frozen=True)
class Stored:
    """A tensor of a file, of whatever kind: `shape` with the row length first, `order` as in `struct`."""

    name: str
    type: TensorType
    shape: tuple[int, ...]
    path: Path
    offset: int
    nbytes: int
    order: str = "<"

    @property
    def elements(self) -> int:
        return self.nbytes // self.type.nbytes * self.type.block

    @property
    def readable(self) -> bool:
        """Whether the values can be had: of some types and byte orders only the bytes can."""
        if self.type.name == "f64" or self.type.name in INTEGERS:
            return True
        if self.type.name not in FORMATS:
            return False
        swappable = self.type.block == 1 or (self.type.name in SWAPPED and self.type.name not in INEXACT)
        return self.order == "<" or swappable

    def raw(self, begin: int, count: int) -> U8:
        """Bytes of the elements [begin, begin + count), whole blocks, as they lie in the file."""
        block, nbytes = self.type.block, self.type.nbytes
        return mapped(self.path, self.offset + begin // block * nbytes, count // block * nbytes)

    def values(self, begin: int, count: int) -> tuple[F64, F64]:
        """Exact values and the smallest steps of their codes (for floats: of the last place)."""
        raw = self._native(self.raw(begin, count))
        if self.type.name == "f64":
            wide = raw.view("<f8").astype(np.float64)
            return wide, np.abs(wide) * 2.0**-52
        if self.type.name in INTEGERS:
            whole = raw.view(f"<i{self.type.nbytes}").astype(np.float64)
            return whole, np.zeros_like(whole)
        decoded = decode_rows(self.type.name, raw.reshape(-1, self.type.nbytes))
        return decoded.value.reshape(-1), decoded.step.reshape(-1)

    def _native(self, raw: U8) -> U8:
        if self.order == "<" or self.type.nbytes == 1:
            return raw
        if self.type.block == 1:
            return raw.reshape(-1, self.type.nbytes)[:, ::-1].reshape(-1)
        blocks = raw.reshape(-1, self.type.nbytes).copy()
        for at in SWAPPED[self.type.name]:
            blocks[:, [at, at + 1]] = blocks[:, [at + 1, at]]
        return blocks.reshape(-1)


def stored(model: Model, tensor: Tensor) -> Stored:
    """The tensor with the file that it lies in."""
    part = model.parts[tensor.part]
    return Stored(
        tensor.name, tensor.type, tensor.shape, part.path, tensor.offset, tensor.nbytes, part.order
    )  # fmt: skip


def float_type(name: str) -> TensorType:
    return BY_NAME[name]


def mapped(path: Path, offset: int, nbytes: int) -> U8:
    """A copy of a piece of a file. ModelFileError if the file has become shorter than its header said."""
    if not nbytes:
        return np.zeros(0, np.uint8)
    begin = offset // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
    try:
        with path.open("rb") as stream:
            if os.fstat(stream.fileno()).st_size < offset + nbytes:
                msg = f"{path}: it became shorter while it was read; nothing can be said of it. Try again"
                raise ModelFileError(msg)
            with mmap.mmap(
                stream.fileno(), offset + nbytes - begin, offset=begin, access=mmap.ACCESS_READ
            ) as view:
                return np.frombuffer(view[offset - begin :], np.uint8)
    except OSError as problem:
        msg = f"{path}: {shown(path.name)} cannot be read ({problem.strerror or problem})"
        raise ModelFileError(msg) from problem
