# SPDX-License-Identifier: MIT
"""Sizes of ggml's weight formats and the activation format its default kernels pair them with."""

from __future__ import annotations

from dataclasses import dataclass

from tierlab.errors import UsageError


@dataclass(frozen=True)
class Format:
    """A weight format: `block` weights lie in `nbytes` bytes; `partner` is the vec_dot activation format."""

    block: int
    nbytes: int
    partner: str


FORMATS: dict[str, Format] = {
    "f32": Format(1, 4, "f32"),
    "f16": Format(1, 2, "f16"),
    "bf16": Format(1, 2, "bf16"),
    "q1_0": Format(128, 18, "q8_0"),
    "q2_0": Format(64, 18, "q8_0"),
    "q4_0": Format(32, 18, "q8_0"),
    "q4_1": Format(32, 20, "q8_1"),
    "q5_0": Format(32, 22, "q8_0"),
    "q5_1": Format(32, 24, "q8_1"),
    "q8_0": Format(32, 34, "q8_0"),
    "iq4_nl": Format(32, 18, "q8_0"),
    "mxfp4": Format(32, 17, "q8_0"),
    "nvfp4": Format(64, 36, "q8_0"),
    "q2_k": Format(256, 84, "q8_k"),
    "q3_k": Format(256, 110, "q8_k"),
    "q4_k": Format(256, 144, "q8_k"),
    "q5_k": Format(256, 176, "q8_k"),
    "q6_k": Format(256, 210, "q8_k"),
    "tq1_0": Format(256, 54, "q8_k"),
    "tq2_0": Format(256, 66, "q8_k"),
    "iq1_s": Format(256, 50, "q8_k"),
    "iq1_m": Format(256, 56, "q8_k"),
    "iq2_xxs": Format(256, 66, "q8_k"),
    "iq2_xs": Format(256, 74, "q8_k"),
    "iq2_s": Format(256, 82, "q8_k"),
    "iq3_xxs": Format(256, 98, "q8_k"),
    "iq3_s": Format(256, 110, "q8_k"),
    "iq4_xs": Format(256, 136, "q8_k"),
}


def format_of(name: str) -> Format:
    """The format that ggml calls `name` (`q4_K` or `q4_k`); UsageError if the oracle has none."""
    try:
        return FORMATS[name.lower()]
    except KeyError:
        msg = (
            f"the oracle knows no weight format '{name}', so nothing of that type can be judged; "
            f"known are {', '.join(FORMATS)}"
        )
        raise UsageError(msg) from None
