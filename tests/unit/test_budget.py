# SPDX-License-Identifier: MIT
"""Counts, the shape of the bound, and that the promised false-alarm rate holds for lambda."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tierlab.errors import ConfigError
from tierlab.judge.budget import Counts, bound, counts
from tierlab.oracle.expectation import Expectation
from tierlab.oracle.formats import FORMATS


def plain(s: np.ndarray, k: int = 512, **more: np.ndarray) -> Expectation:
    return Expectation(np.zeros_like(s), s, k, np.zeros((0, 0)), **more)


@pytest.mark.parametrize("name", FORMATS)
def test_every_type_has_a_count_for_ggmls_own_kernels(name: str) -> None:
    for family in ("vec_dot", "generic"):
        count = counts(family, name)
        assert 1 <= count.chain(512) <= 64
        assert count.factor(512) <= 64 * 2.0**-24 * 1.001


def test_integer_inside_means_blocks_not_elements() -> None:
    assert counts("vec_dot", "q4_0").chain(4096) == 4096 // 32 + 5
    assert counts("vec_dot", "iq4_xs").chain(4096) == 4096 // 256 + 5
    assert counts("kleidiai", "qai8dxp").chain(4096) == counts("kleidiai", "qai8dxp").chain(64)


def test_scalar_tail_counts_for_float() -> None:
    count = counts("vec_dot", "f32")
    assert count.chain(512) == 32 + 6
    assert count.chain(527) == 33 + 6 + 15


def test_short_chains_use_the_worst_case_and_long_ones_the_probable() -> None:
    count = Counts(block=1, each=1, fixed=0, tail=0, unit=2.0**-24, gain=None, headroom=0, lam=8.0)
    assert count.factor(10) == pytest.approx(10 * 2.0**-24, rel=1e-6)
    assert count.factor(6400) == pytest.approx(8 * 80 * 2.0**-24)


def test_budget_is_zero_where_s_is_zero() -> None:
    s = np.array([[0.0, 1.0]])
    for family, name in (("vec_dot", "q4_k"), ("kleidiai", "bf16p"), ("vec_dot", "f16_half")):
        more = {"chain": s * 9, "chain_squares": s * 9} if name == "f16_half" else {}
        limits = bound(plain(s, **more), counts(family, name)).budget
        assert limits[0, 0] == 0
        assert limits[0, 1] > 0


def test_ties_add_to_the_budget() -> None:
    s = np.ones((1, 1))
    count = counts("vec_dot", "q8_0")
    without = bound(plain(s), count).budget[0, 0]
    assert bound(plain(s, tie=np.full((1, 1), 0.25)), count).budget[0, 0] == without + 0.25


def test_binary16_accumulators_may_overflow_and_others_may_not() -> None:
    s = np.array([[7e4, 6e4]])
    half = bound(plain(s, chain=s, chain_squares=s * s), counts("vec_dot", "f16_half"))
    assert half.may_overflow is not None
    assert half.may_overflow.tolist() == [[True, False]]
    assert bound(plain(s), counts("vec_dot", "f16")).may_overflow is None
    assert bound(plain(s * 1e34), counts("vec_dot", "f16")).may_overflow is not None


def test_lambda_keeps_the_promised_rate() -> None:
    """2 n exp(-lambda^2 / 2) for an element; docs/budget.md allows one false alarm in fifty years."""
    lam = counts("vec_dot", "f32").lam
    elements_with_long_chains, chain, nights = 3e6, 200, 365
    assert 2 * chain * math.exp(-lam * lam / 2) * elements_with_long_chains * nights < 0.02


def test_a_missing_count_says_what_to_do() -> None:
    with pytest.raises(ConfigError, match="no count for 'q9_9' in family 'repack'"):
        counts("repack", "q9_9")
