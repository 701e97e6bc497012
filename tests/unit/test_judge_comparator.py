# SPDX-License-Identifier: MIT
"""The comparator is itself under test: everything a float can be, and every pattern of a wrong output."""

from __future__ import annotations

import numpy as np
import pytest

from tierlab.judge.budget import Bound
from tierlab.judge.comparator import Comparison, compare
from tierlab.judge.patterns import describe
from tierlab.oracle.expectation import Expectation, Rule

BUDGET = 1e-5


def expectation(y: np.ndarray, s: np.ndarray | None = None, rule: np.ndarray | None = None) -> Expectation:
    magnitude = np.ones_like(y) if s is None else s
    return Expectation(y, magnitude, 64, np.zeros((0, 0)), rule=rule)


def check(out: np.ndarray, e: Expectation, budget: np.ndarray | None = None) -> Comparison:
    limits = np.where(e.s > 0, BUDGET, 0.0) if budget is None else budget
    return compare(np.asarray(out, np.float32), e, Bound(limits, None))


def grid(rows: int = 6, columns: int = 8) -> np.ndarray:
    """Values whose neighbours differ by far more than the budget, exact in float32."""
    return (np.arange(rows * columns, dtype=np.float64).reshape(rows, columns) ** 2 % 97) + 0.5


def test_equal_outputs_have_share_zero() -> None:
    found = check(grid(), expectation(grid()))
    assert found.share == 0
    assert not found.over.any()
    assert (found.max_abs, found.nmse, found.ulp) == (0, 0, 0)
    assert found.compared == 48


def test_share_is_the_largest_error_in_budgets() -> None:
    y = np.zeros((2, 3))
    out = np.array([[0, 2.0**-18, 0], [0, 0, -(2.0**-17)]])
    found = check(out, expectation(y))
    assert found.share == pytest.approx(2.0**-17 / BUDGET)
    assert found.worst == 5
    assert found.over.sum() == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, np.float32(3e38), 0.0])
def test_one_wrong_element_is_found_whatever_it_is(bad: float) -> None:
    out = grid()
    out[3, 5] = bad
    found = check(out, expectation(grid()))
    assert found.over.sum() == 1
    assert found.over[3, 5]
    assert found.worst == 3 * 8 + 5
    assert found.share > 1


def test_nan_is_right_only_where_nan_is_demanded() -> None:
    y = np.array([[np.nan, 1.0, np.inf, -np.inf]])
    assert not check(y, expectation(y)).over.any()
    for wrong in ([[1.0, 1, np.inf, -np.inf]], [[np.nan, 1, -np.inf, -np.inf]], [[np.nan, 1, 3e38, -np.inf]]):
        assert check(np.array(wrong), expectation(y)).over.sum() == 1


def test_reference_zero_must_be_exactly_zero_and_either_zero_will_do() -> None:
    e = expectation(np.zeros((1, 3)), s=np.zeros((1, 3)))
    assert not check(np.array([[0.0, -0.0, 0.0]]), e).over.any()
    found = check(np.array([[0.0, 1e-45, 0.0]]), e)
    assert found.over.tolist() == [[False, True, False]]
    assert found.share == np.inf


def test_denormals_are_compared_like_any_number() -> None:
    y = np.array([[1e-40, 3e-45]])
    e = expectation(y, s=np.abs(y))
    budget = np.full((1, 2), 2.0**-148)
    assert not check(y.astype(np.float32), e, budget).over.any()
    assert check(np.array([[0.0, 3e-45]]), e, budget).over.tolist() == [[True, False]]


def test_rules_nonfinite_and_undefined() -> None:
    rule = np.array([[Rule.NONFINITE, Rule.NONFINITE, Rule.UNDEFINED, Rule.BOUND]], np.uint8)
    e = expectation(np.array([[1.0, 2.0, 3.0, 4.0]]), rule=rule)
    found = check(np.array([[np.inf, np.nan, -77.0, 4.0]]), e)
    assert not found.over.any()
    assert found.compared == 3
    assert check(np.array([[np.inf, 2.0, 3.0, 4.0]]), e).over.tolist() == [[False, True, False, False]]


def test_nothing_compared_is_visible() -> None:
    rule = np.full((1, 2), Rule.UNDEFINED, np.uint8)
    found = check(np.zeros((1, 2)), expectation(np.ones((1, 2)), rule=rule))
    assert found.compared == 0
    assert np.isnan(found.share)


def test_overflow_is_excused_only_where_the_accumulator_cannot_hold_the_sum() -> None:
    e = expectation(np.array([[7e4, 7e4]]))
    may = np.array([[True, False]])
    found = compare(np.array([[np.inf, np.inf]], np.float32), e, Bound(np.full((1, 2), BUDGET), may))
    assert found.over.tolist() == [[False, True]]


def corrupt(name: str) -> tuple[np.ndarray, np.ndarray, str]:
    y = grid()
    out = y.copy()
    if name == "zeros":
        return np.zeros_like(y), y, "all zeros"
    if name == "nan":
        return np.full_like(y, np.nan), y, "all NaN"
    if name == "some nan":
        out[1, 2:5] = np.nan
        return out, y, "all wrong elements are NaN, only row 1 is wrong"
    if name == "infinite":
        out[1, 2] = np.inf
        return out, y, "all wrong elements are infinite, exactly one element is wrong"
    if name == "stored transposed":
        return y.T.reshape(y.shape), y, "stored transposed"
    if name == "transposed":
        square = grid(6, 6)
        return square.T, square, "transposed"
    if name == "shifted":
        return np.roll(y, 1, axis=1), y, "shifted by one column"
    if name == "shifted rows":
        return np.roll(y, -1, axis=0), y, "shifted by one row"
    if name == "swapped":
        out[[2, 3]] = out[[3, 2]]
        return out, y, "adjacent rows are swapped (rows 2 and 3 first)"
    if name == "swapped everywhere":
        return y.reshape(3, 2, 8)[:, ::-1].reshape(6, 8), y, "adjacent rows are swapped"
    if name == "last column":
        out[:, -1] *= 2
        return out, y, "only column 7 (the last) is wrong"
    if name == "tail":
        out[:, 5:] += 1 + np.arange(3)
        return out, y, "only the columns from 5 on are wrong"
    if name == "last row":
        out[-1, [0, 3]] += 1
        return out, y, "only row 5 (the last) is wrong"
    if name == "one":
        out[4, 4] += 1
        return out, y, "exactly one element is wrong"
    return y * 0.5, y, "0.5 times what they should be"


@pytest.mark.parametrize(
    "name",
    ["zeros", "nan", "some nan", "infinite", "stored transposed", "transposed", "shifted", "shifted rows",
     "swapped", "swapped everywhere", "last column", "tail", "last row", "one", "half"],
)  # fmt: skip
def test_each_fault_is_caught_and_named(name: str) -> None:
    out, y, text = corrupt(name)
    e = expectation(y)
    found = check(out, e)
    assert found.over.any()
    assert text in describe(np.asarray(out, np.float32), e, found)


def test_ulp_and_nmse_are_figures_beside_the_verdict() -> None:
    y = np.array([[1.0, 2.0]])
    found = check(np.array([[1 + 2.0**-22, 2.0]]), expectation(y))
    assert found.ulp == 2
    assert found.max_abs == 2.0**-22
    assert found.nmse == pytest.approx(2.0**-44 / 5)
