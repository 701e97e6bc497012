# SPDX-License-Identifier: MIT
"""Shapes as text, there and back."""

from __future__ import annotations

import pytest

from tierlab.cells.model import Shape
from tierlab.cells.shapes import parse_shape


@pytest.mark.parametrize(
    ("text", "block", "shape"),
    [
        ("m5n64k512", 256, Shape(5, 64, 512)),
        ("m5n64K2", 256, Shape(5, 64, 512)),
        ("m5n64K3", 1, Shape(5, 64, 3)),
        ("m4n8k256b2x3w1x3", 32, Shape(4, 8, 256, (2, 3), (1, 3))),
        ("m7n64K1e8u2i3", 256, Shape(7, 64, 256, experts=8, used=2, idle=3)),
        ("m7n64k33s", 1, Shape(7, 64, 33, strided=True)),
    ],
)
def test_parse(text: str, block: int, shape: Shape) -> None:
    exact = parse_shape(text).of(block)
    assert exact == shape
    assert parse_shape(exact.id).of(block) == shape


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("m5n64", "is not of the form"),
        ("m5n64k5 12", "is not of the form"),
        ("m0n64k512", "has a size of 0"),
        ("m5n8k32b1x1w1x1", "spells out a batch of one"),
        ("m5n8k32b4x1w3x1", "do not divide"),
        ("m5n8k32b0x1w1x1", "has a batch of 0"),
        ("m5n8k32e0u0i0", "must have an expert"),
        ("m5n8k32e4u3i2", "use at most those that are not idle"),
        ("m5n8k32b2x1w1x1e4u1i0", "has experts and a batch"),
    ],
)
def test_refused(text: str, fact: str) -> None:
    with pytest.raises(ValueError, match=r"^shape '") as caught:
        parse_shape(text)
    assert fact in str(caught.value)
