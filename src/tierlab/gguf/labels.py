# SPDX-License-Identifier: MIT
"""Label against contents: what the file's name and `general.file_type` promise, and what is there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tierlab.gguf.roles import ATTENTION, EXPERTS, FFN, role
from tierlab.gguf.types import FALLBACKS, SUPER_BLOCK, file_type_label, label_in_name, promised_types

if TYPE_CHECKING:
    from tierlab.gguf.header import Tensor
    from tierlab.gguf.model import Model

BODY = (ATTENTION, FFN, EXPERTS)
"""The roles that a label speaks of. Embedding and output get other types in most mixes, on purpose."""


@dataclass(frozen=True)
class Label:
    """What one label says.

    `share` is that of the promised types, in bytes of attention and ffn weights (0 to 1); `main` is the type
    with most of these bytes. `holds` is None where the label names no known type or layers are absent.
    """

    source: str
    text: str
    promised: tuple[str, ...]
    main: str
    share: float
    holds: bool | None

    @property
    def lies(self) -> bool:
        return self.holds is False


def labels(model: Model) -> tuple[Label, ...]:
    """The labels of a model, judged by its contents."""
    totals: dict[str, int] = {}
    for tensor in model.tensors:
        if role(tensor) in BODY:
            totals[tensor.type.name] = totals.get(tensor.type.name, 0) + tensor.nbytes
    found = []
    name = label_in_name(model.stem)
    if name:
        found.append(_judged("file name", name, totals))
    number = model.integer("general.file_type")
    if number is not None:
        found.append(_judged("general.file_type", file_type_label(number) or f"number {number}", totals))
    return tuple(found)


def _judged(source: str, text: str, totals: dict[str, int]) -> Label:
    promised = promised_types(text)
    total = sum(totals.values())
    main = max(totals, key=lambda kind: totals[kind], default="")
    share = sum(totals.get(kind, 0) for kind in promised) / total if total else 0.0
    return Label(source, text, promised, main, share, main in promised if promised and total else None)


def fallbacks(model: Model, found: tuple[Label, ...]) -> tuple[Tensor, ...]:
    """Tensors that have a smaller type than a label promises because their rows are no multiple of 256.

    A guess from what is there: the type must be one that llama.cpp's quantiser puts in the place of a type
    that the label's mix may hold.
    """
    meant = {kind for label in found for kind in label.promised if kind in FALLBACKS}
    if not meant:
        return ()
    # A mix gives some tensors a larger type of the same kind; that one falls back too.
    meant |= {"q2_k", "q3_k", "q4_k", "q5_k", "q6_k"}
    replaced = {kind for wanted in meant for kind in FALLBACKS[wanted]}
    return tuple(
        tensor
        for tensor in model.tensors
        if tensor.row % SUPER_BLOCK and len(tensor.shape) > 1 and tensor.type.name in replaced
    )
