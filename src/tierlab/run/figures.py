# SPDX-License-Identifier: MIT
"""How far outputs lie from the product of the operands as given, kept by the outputs' own digests.

A cell's record tells the error against the operands that its kernel really multiplies. Two kernels that round
activations differently both pass by that, and still give different numbers: what that costs shows against one
answer for all of them, float64 over the decoded weights and the activations as they came.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np

from tierlab.oracle.product import Operands
from tierlab.run.appendlog import AppendLog
from tierlab.run.keys import ORACLE_SOURCES, digest_of, source_digest
from tierlab.run.outcomes import digest_of_output

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from tierlab.cells.model import Cell
    from tierlab.run.problems import Problems

AS_GIVEN = Operands("f32")
"""Decoded weights, activations without any rounding."""


class Figures:
    """NMSE of outputs by (problem, digest); `note` is to be called with each output while it is there."""

    def __init__(self, root: Path, problems: Problems, seed: int) -> None:
        self._problems = problems
        self._path = root / f"{digest_of([source_digest(ORACLE_SOURCES), seed])}.jsonl"
        self._known: dict[tuple[str, str], float] = {}
        root.mkdir(parents=True, exist_ok=True)
        self._load()
        self._log = AppendLog(self._path)

    def note(self, cell: Cell, output: NDArray[np.uint8]) -> None:
        """Compute and keep the figure of a product's output (its bytes, float32)."""
        key = (cell.problem.id, digest_of_output(output))
        if key in self._known:
            return
        y = self._problems.expectation(cell.problem, AS_GIVEN).y.reshape(-1)
        nmse = nmse_of(output.view(np.float32).astype(np.float64), y)
        self._known[key] = nmse
        value = {"problem": key[0], "output": key[1], "nmse": nmse if np.isfinite(nmse) else None}
        self._log.append(json.dumps(value, separators=(",", ":")).encode() + b"\n")

    def nmse(self, problem: str, digest: str) -> float | None:
        """The figure of an output that was noted at any time, or None."""
        return self._known.get((problem, digest))

    def close(self) -> None:
        self._log.close()

    def _load(self) -> None:
        try:
            lines = self._path.read_bytes().splitlines()
        except FileNotFoundError:
            return
        for line in lines:
            try:
                value = json.loads(line)
                nmse = float("inf") if value["nmse"] is None else float(value["nmse"])
                self._known[str(value["problem"]), str(value["output"])] = nmse
            except (ValueError, KeyError, TypeError):
                continue  # torn: it is computed again


def nmse_of(output: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Squared error over squared answer; inf where the output is not finite."""
    if not np.isfinite(output).all():
        return float("inf")
    power = float(np.dot(y, y))
    error = output - y
    noise = float(np.dot(error, error))
    return noise / power if power else (0.0 if noise == 0 else float("inf"))
