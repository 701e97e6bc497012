# SPDX-License-Identifier: MIT
"""What a wrong output looks like: the pattern tells the fault's kind before anyone opens a debugger."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tierlab.judge.comparator import Comparison
    from tierlab.oracle.expectation import Expectation

Matrix = np.ndarray


def describe(output: NDArray[np.float32], expectation: Expectation, comparison: Comparison) -> str:
    """One line: the worst element, how many are over, and the pattern if one is recognised."""
    y = expectation.y
    out = output.reshape(y.shape).astype(np.float64)
    row, column = np.unravel_index(comparison.worst, y.shape)
    got, want = out[row, column], y[row, column]
    share = comparison.shares[row, column]
    text = f"row {row} column {column}: got {got:.9g}, want {want:.9g}"
    text += f", {share:.3g} budgets" if np.isfinite(share) else ", no error is allowed there"
    text += _neighbours(comparison.shares, int(row), int(column))
    text += f"; {int(comparison.over.sum())} of {y.size} elements over budget"
    kind = recognise(out, y, comparison.over)
    return f"{text}; {kind}" if kind else text


def _neighbours(shares: Matrix, row: int, column: int) -> str:
    """The shares of the elements beside the worst one: is the fault one element, or its whole lane?"""
    beside = [shares[row, c] for c in (column - 1, column + 1) if 0 <= c < shares.shape[1]]
    return f" (beside it {', '.join(f'{share:.2g}' for share in beside)})" if beside else ""


def recognise(out: Matrix, y: Matrix, over: NDArray[np.bool_]) -> str:
    """What explains the elements over budget: their kind and their place, or an empty string."""
    whole = _uniform(out, y) or _moved(out, y, over)
    return whole or ", ".join(text for text in (_kind(out, over), _region(out, y, over)) if text)


def _uniform(out: Matrix, y: Matrix) -> str:
    if not out.any() and y.any():
        return "the output is all zeros"
    return "the output is all NaN" if np.isnan(out).all() else ""


def _kind(out: Matrix, over: NDArray[np.bool_]) -> str:
    wrong = out[over]
    for test, text in ((np.isnan, "NaN"), (np.isinf, "infinite"), (lambda x: x == 0, "zero")):
        if test(wrong).all():
            return f"all wrong elements are {text}"
    return ""


def _close(a: Matrix, b: Matrix) -> bool:
    scale = np.abs(b).max(initial=0.0)
    if not scale or not np.isfinite(scale) or a.shape != b.shape or not np.isfinite(a).all():
        return False
    return bool(np.abs(a - b).max() <= 1e-3 * scale)


def _moved(out: Matrix, y: Matrix, over: NDArray[np.bool_]) -> str:
    """Right numbers in wrong places."""
    rows, columns = y.shape
    if rows == columns and rows > 1 and _close(out, y.T):
        return "the output is transposed"
    if rows > 1 and columns > 1 and _close(out.reshape(columns, rows).T, y):
        return "the output is stored transposed"
    for axis, size, name in ((1, columns, "column"), (0, rows, "row")):
        if size < 3:
            continue
        for shift in (1, -1):
            moved = np.roll(y, shift, axis)
            inner = np.s_[:, 1:-1] if axis else np.s_[1:-1]
            if _close(out[inner], moved[inner]) and not _close(out[inner], y[inner]):
                return f"the output is shifted by one {name}"
    return _swapped(out, y, over)


def _swapped(out: Matrix, y: Matrix, over: NDArray[np.bool_]) -> str:
    for axis, name in ((0, "row"), (1, "column")):
        wrong = np.flatnonzero(over.any(axis=1 - axis))
        if len(wrong) < 2 or len(wrong) % 2:
            continue
        pairs = wrong.reshape(-1, 2)
        first, second = pairs[:, 0], pairs[:, 1]
        got = np.take(out, np.concatenate([first, second]), axis)
        want = np.take(y, np.concatenate([second, first]), axis)
        if (second - first == 1).all() and _close(got, want):
            return f"adjacent {name}s are swapped ({name}s {first[0]} and {second[0]} first)"
    return ""


def _region(out: Matrix, y: Matrix, over: NDArray[np.bool_]) -> str:
    """Where the wrong elements lie."""
    count = int(over.sum())
    rows, columns = np.flatnonzero(over.any(axis=1)), np.flatnonzero(over.any(axis=0))
    if count == 1:
        return "exactly one element is wrong"
    if len(columns) == 1 and y.shape[1] > 1:
        last = " (the last)" if columns[0] == y.shape[1] - 1 else ""
        return f"only column {columns[0]}{last} is wrong"
    if len(rows) == 1 and y.shape[0] > 1:
        last = " (the last)" if rows[0] == y.shape[0] - 1 else ""
        return f"only row {rows[0]}{last} is wrong"
    if columns[0] > 0 and columns[-1] == y.shape[1] - 1 and len(columns) == columns[-1] - columns[0] + 1:
        return f"only the columns from {columns[0]} on are wrong"
    if rows[0] > 0 and rows[-1] == y.shape[0] - 1 and len(rows) == rows[-1] - rows[0] + 1:
        return f"only the rows from {rows[0]} on are wrong"
    return _ratio(out, y, over)


def _ratio(out: Matrix, y: Matrix, over: NDArray[np.bool_]) -> str:
    usable = over & (y != 0) & np.isfinite(out)
    if usable.sum() < 3:
        return ""
    ratio = out[usable] / y[usable]
    middle = float(np.median(ratio))
    if middle and np.abs(ratio - middle).max() < 1e-3 * abs(middle) and abs(middle - 1) > 1e-3:
        return f"the wrong elements are {middle:.6g} times what they should be"
    return ""
