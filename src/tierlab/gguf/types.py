# SPDX-License-Identifier: MIT
"""Tensor types by number, and what a file's label (its name, `general.file_type`) promises."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, LlamaFileType


@dataclass(frozen=True)
class TensorType:
    """A ggml tensor type: `block` elements in `nbytes` bytes. `name` is ggml's, in lower case."""

    number: int
    name: str
    block: int
    nbytes: int

    @property
    def quantised(self) -> bool:
        return self.block > 1


TYPES: dict[int, TensorType] = {
    **{
        int(kind): TensorType(int(kind), kind.name.lower(), *GGML_QUANT_SIZES[kind])
        for kind in GGMLQuantizationType
    },
    # Younger than the newest release of the package; ggml-common.h, block_q2_0.
    42: TensorType(42, "q2_0", 64, 18),
}

BY_NAME = {kind.name: kind for kind in TYPES.values()}

REMOVED_TYPES = {
    4: "q4_2",
    5: "q4_3",
    31: "q4_0_4_4",
    32: "q4_0_4_8",
    33: "q4_0_8_8",
    36: "iq4_nl_4_4",
    37: "iq4_nl_4_8",
    38: "iq4_nl_8_8",
}
"""Numbers that ggml gave to types and took back: no program of today reads them."""

FLOATS = frozenset({"f32", "f16", "bf16", "f64"})
INTEGERS = frozenset({"i8", "i16", "i32", "i64"})

SUPER_BLOCK = 256
"""Weights in a block of the K and IQ types (and TQ): rows that are no multiple of it cannot have them."""

FALLBACKS = {
    **dict.fromkeys(
        ("iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq4_xs"), ("iq4_nl", "f16")
    ),
    **dict.fromkeys(("q2_k", "q3_k", "tq1_0", "tq2_0"), ("iq4_nl", "q4_0", "f16")),
    "q4_k": ("q5_0", "f16"),
    "q5_k": ("q5_1", "f16"),
    "q6_k": ("q8_0", "f16"),
}
"""Type that was meant → what llama.cpp's quantiser puts in its place for rows that it does not divide. (It
once gave `iq4_nl` for the small K types too.)"""

_MIXES = {
    "iq2_s": ("iq2_xs",),
    "iq2_m": ("iq2_s",),
    "iq3_xs": ("iq3_s", "iq3_xxs"),
    "iq3_m": ("iq3_s",),
    "mxfp4_moe": ("mxfp4",),
}
"""Labels that are not the name of the type that most weights have."""

_SIZES = re.compile(r"_(xl|l|m|s)$")
_WORD = re.compile(
    r"(?<![a-z0-9])((?:iq4_nl|q4_0)_[48]_[48]|iq[1-4]_(?:xxs|xs|nl|s|m)|q[1-8]_k(?:_(?:xl|[sml]))?|q[1-8]_[01]|"
    r"tq[12]_0|mxfp4(?:_moe)?|nvfp4|bf16|f16|f32|fp16|fp32)(?![a-z0-9])"
)


def promised_types(label: str) -> tuple[str, ...]:
    """The types one of which a file with this label must mostly consist of; empty if the label names none.

    `q4_k_m` → `q4_k`; `iq3_xs` → `iq3_s` or `iq3_xxs`: llama.cpp mixes both under that name.
    """
    label = label.lower()
    if label in _MIXES:
        return _MIXES[label]
    if label in BY_NAME:
        return (label,)
    short = _SIZES.sub("", label)
    return (short,) if short in BY_NAME else ()


def label_in_name(stem: str) -> str:
    """The last word of a file's name that names a type, in lower case; empty if none does."""
    found = _WORD.findall(stem.lower())
    return found[-1].replace("fp16", "f16").replace("fp32", "f32") if found else ""


def file_type_label(number: int) -> str:
    """The label of a `general.file_type`, in lower case; empty for a number without one."""
    extra = {4: "q4_1_some_f16", 33: "q4_0_4_4", 34: "q4_0_4_8", 35: "q4_0_8_8", 39: "nvfp4", 41: "q2_0"}
    try:
        return LlamaFileType(number).name.lower().removeprefix("mostly_").removeprefix("all_")
    except ValueError:
        return extra.get(number, "")
