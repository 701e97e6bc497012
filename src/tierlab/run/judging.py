# SPDX-License-Identifier: MIT
"""From a harness answer to a judgement: finds the right judge, oracle answer and expected kernels."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tierlab.cells.claims import expected_claim, expected_kernels
from tierlab.dispatch import plain_names, uncountable
from tierlab.errors import HarnessError
from tierlab.judge.codes import judge_codes, judge_dequantised
from tierlab.judge.judge import judge_claim, judge_product, precondition
from tierlab.judge.scheme import machine_of, schemes
from tierlab.judge.verdict import Judgement, Verdict

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tierlab.cells.claims import Patterns
    from tierlab.cells.matrix import Matrix
    from tierlab.cells.model import Cell
    from tierlab.harness.messages import Answer, Hello
    from tierlab.judge.scheme import Scheme
    from tierlab.run.problems import Problems

PRODUCTS = ("mul_mat", "mul_mat_id")


def with_plain_names(answer: Answer) -> Answer:
    """The answer with its calls under the names that the source has: no clone suffix, aliases apart."""
    ran: Counter[str] = Counter()
    for counted, calls in answer.ran.items():
        for name in dict.fromkeys(plain_names(counted)):
            ran[name] += calls
    return replace(answer, ran=dict(ran))


@dataclass(frozen=True)
class TreeFacts:
    """What is known of a build under test that its cells cannot tell.

    `f16_sums` says how its F16 dot product adds (`judge.scheme.Machine`). `symbols` are the kernels of the
    loaded backend where the matrix's rules may name others (a tree of another time), else None.
    """

    f16_sums: str = "wide"
    symbols: frozenset[str] | None = None

    def exist(self, expected: Patterns) -> bool:
        """Whether the backend has a kernel for each set of patterns."""
        if self.symbols is None:
            return True
        return all(len(uncountable(each, self.symbols)) < len(each) for each in expected)


class CellJudge:
    """Judges the cells of one harness session; `hello` says on what they ran."""

    def __init__(
        self, matrix: Matrix, problems: Problems, hello: Hello, facts: TreeFacts | None = None
    ) -> None:
        self._matrix = matrix
        self._problems = problems
        self._hello = hello
        self._facts = facts if facts is not None else TreeFacts()
        self._counting = hello.kernels > 0

    def judge(self, cell: Cell, answer: Answer, output: NDArray[np.uint8]) -> Judgement:
        """The judgement; `output` are the bytes the harness left."""
        op = cell.problem.op
        if op == "claim":
            return judge_claim(answer, expected_claim(self._matrix, cell))
        early = precondition(answer, expected_claim(self._matrix, cell) if op in PRODUCTS else None)
        if early is not None:
            return early
        inputs = self._problems.inputs(cell.problem)
        if op == "quantize":
            assert inputs.values is not None
            rows = inputs.values.reshape(-1, inputs.values.shape[-1])
            return judge_codes(cell.problem.weight_type, output, rows)
        if op == "dequantize":
            assert inputs.weights is not None
            rows_of_bytes = inputs.weights.reshape(-1, inputs.weights.shape[-1])
            return judge_dequantised(cell.problem.weight_type, rows_of_bytes, output.view(np.float32))
        return self._product(cell, with_plain_names(answer), output.view(np.float32))

    def _product(self, cell: Cell, answer: Answer, output: NDArray[np.float32]) -> Judgement:
        problem = cell.problem
        disagreement = self._problems.disagreement(problem)
        if disagreement:
            return Judgement(Verdict.UNTESTED, detail=disagreement)
        try:
            found = self._schemes(cell, answer)
        except HarnessError as error:
            return Judgement(Verdict.DRIFT, detail=str(error))
        candidates = [(scheme, self._problems.expectation(problem, scheme.operands)) for scheme in found]
        return judge_product(
            answer,
            output,
            candidates,
            expected_kernels=expected_kernels(self._matrix, cell, self._facts.exist),
            counting=self._counting,
            lam=self._matrix.budgets.lam,
        )

    def _schemes(self, cell: Cell, answer: Answer) -> tuple[Scheme, ...]:
        problem, hello = cell.problem, self._hello
        compiled = self._matrix.variant(cell).needs if hello.arch == "aarch64" else None
        machine = machine_of(
            hello.arch, hello.variant, hello.features, compiled=compiled, f16_sums=self._facts.f16_sums
        )
        return schemes(
            cell.path,
            problem.weight_type,
            machine,
            op=problem.op,
            m=problem.shape.m,
            threads=cell.threads,
            activation_type=problem.activation_type,
            ran=answer.ran if self._counting else None,
        )
