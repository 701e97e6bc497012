# SPDX-License-Identifier: MIT
"""Executions that must agree: threads, paths, and the two oracles."""

from __future__ import annotations

import numpy as np
from budget_kernels import activations, rows_of

from tierlab.judge.consistency import agree, differing, odd_ones_out
from tierlab.judge.scheme import Machine, schemes
from tierlab.oracle.product import expect

X86 = Machine("x86_64", "static", frozenset())


def test_odd_ones_out() -> None:
    assert odd_ones_out({1: "a", 2: "a", 4: "a"}) == ()
    assert odd_ones_out({1: "a", 2: "b", 4: "a"}) == (2,)
    assert odd_ones_out({1: "a", 2: "b"}) == (2,)
    assert odd_ones_out({}) == ()


def test_differing_compares_bits() -> None:
    a = np.array([1.0, 0.0, np.nan], np.float32)
    assert differing(a, a.copy()) == 0
    assert differing(a, np.array([1.0, -0.0, np.nan], np.float32)) == 1


def test_two_oracles_agree_or_say_where_not() -> None:
    raw, x = rows_of("q4_K".lower(), 6, 256), activations(3, 256)
    (scheme,) = schemes("default", "q4_K", X86, m=3)
    e = expect("q4_K", raw[None, None], x[None, None], scheme.operands)
    reference = e.y.astype(np.float32)
    assert agree(e, reference, scheme) is None
    reference[1, 2] *= np.float32(1.001)
    text = agree(e, reference, scheme)
    assert text is not None
    assert text.startswith("the two oracles disagree: row 1 column 2")
    assert agree(e, reference[:2], scheme) == "the reference gave 12 elements, the oracle 18"
