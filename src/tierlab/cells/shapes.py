# SPDX-License-Identifier: MIT
"""Shapes as text: `m5n64k512`, or `m5n64K2` with K counted in blocks of the weight type."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from tierlab.cells.model import Shape

_SHAPE = re.compile(
    r"m(?P<m>\d+)n(?P<n>\d+)(?P<unit>[kK])(?P<k>\d+)"
    r"(?:b(?P<b2>\d+)x(?P<b3>\d+)w(?P<w2>\d+)x(?P<w3>\d+))?"
    r"(?:e(?P<experts>\d+)u(?P<used>\d+)i(?P<idle>\d+))?"
    r"(?P<strided>s)?"
)


@dataclass(frozen=True)
class ShapeText:
    """A shape whose K may be counted in blocks (`in_blocks`), to be made exact for one weight type."""

    shape: Shape
    in_blocks: bool

    def of(self, block: int) -> Shape:
        """The exact shape for a type with `block` weights a block."""
        return replace(self.shape, k=self.shape.k * block) if self.in_blocks else self.shape


def parse_shape(text: str) -> ShapeText:
    """Reads `m<M>n<N>k<K>[b<ne2>x<ne3>w<ne02>x<ne03>][e<experts>u<used>i<idle>][s]`.

    Raises ValueError with one plain sentence about what is wrong.
    """
    match = _SHAPE.fullmatch(text)
    if match is None:
        msg = f"shape {text!r} is not of the form m5n64k512, m5n64K2, …b4x1w2x1, …e8u2i3, …s"
        raise ValueError(msg)
    part = {name: int(value) for name, value in match.groupdict(default="0").items() if value.isdigit()}
    batched = match["b2"] is not None
    shape = Shape(
        m=part["m"],
        n=part["n"],
        k=part["k"],
        batch=(part["b2"], part["b3"]) if batched else (1, 1),
        weight_batch=(part["w2"], part["w3"]) if batched else (1, 1),
        experts=part["experts"],
        used=part["used"],
        idle=part["idle"],
        strided=match["strided"] is not None,
    )
    problem = _impossible(shape, batched=batched, with_experts=match["experts"] is not None)
    if problem:
        msg = f"shape {text!r} {problem}"
        raise ValueError(msg)
    return ShapeText(shape, match["unit"] == "K")


def _impossible(shape: Shape, *, batched: bool, with_experts: bool) -> str:
    if min(shape.m, shape.n, shape.k) < 1:
        return "has a size of 0"
    if batched:
        if shape.batch == (1, 1) and shape.weight_batch == (1, 1):
            return "spells out a batch of one; leave b…w… away"
        if min(*shape.batch, *shape.weight_batch) < 1:
            return "has a batch of 0"
        if any(have % weight for have, weight in zip(shape.batch, shape.weight_batch, strict=True)):
            return "has weight planes that do not divide the activation planes"
    if with_experts:
        if batched:
            return "has experts and a batch; MUL_MAT_ID takes one plane of tokens"
        if shape.experts < 1 or shape.used < 1 or shape.used > shape.experts - shape.idle:
            return "must have an expert and use at most those that are not idle"
    return ""
