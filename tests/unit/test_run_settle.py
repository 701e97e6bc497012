# SPDX-License-Identifier: MIT
"""What a declaration does to a record: the expected verdict, and bytes that identify nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tierlab.cells.cell_id import parse_cell_id
from tierlab.cells.load import load_matrix
from tierlab.cells.matrix import Expectation, Matrix, Selector
from tierlab.judge.verdict import Judgement, Verdict
from tierlab.run.record import CellRecord
from tierlab.run.settle import Settler

CELL = "ggml.mul_mat/q2_k/m5n64k512/blocks.gauss/default/t1/stock/neoverse-n2"


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    return load_matrix(Path(__file__).parents[2] / "matrix.yaml")


def settled(matrix: Matrix, verdict: Verdict, *, undefined: bool) -> CellRecord:
    known = Expectation(Selector({"types": frozenset({"q2_k"})}), "fail", "seen", undefined)
    changed = replace(matrix, expected=(known,))
    cell = parse_cell_id(changed, CELL)
    return Settler(changed).settle(cell, CellRecord.of(cell, Judgement(verdict), digest="d"))


def test_undefined_bytes_have_no_digest(matrix: Matrix) -> None:
    record = settled(matrix, Verdict.FAIL, undefined=True)
    assert (record.digest, record.expected, record.reason) == ("", Verdict.FAIL, "seen")
    assert settled(matrix, Verdict.FAIL, undefined=False).digest == "d"


def test_a_cell_that_is_not_as_declared_keeps_its_bytes(matrix: Matrix) -> None:
    """Mended, or faulty in another way: then its bytes may well say something."""
    assert settled(matrix, Verdict.PASS, undefined=True).digest == "d"
    assert settled(matrix, Verdict.CRASH, undefined=True).digest == "d"


@pytest.mark.parametrize(
    ("cell", "undefined"),
    [
        ("ggml.mul_mat/q2_k/m5n61k512/blocks.gauss/default/t1/stock/sve2-384", True),
        ("ggml.mul_mat/q4_k/m5n61k512/blocks.gauss/default/t1/stock/sve2-384", False),
        ("ggml.mul_mat/q2_k/m5n61k512/blocks.gauss/default/t1/stock/neoverse-n2", None),
    ],
)
def test_what_the_matrix_declares(matrix: Matrix, cell: str, undefined: bool | None) -> None:
    found = matrix.expectation_of(parse_cell_id(matrix, cell))
    assert (found.undefined_bytes if found else None) is undefined
