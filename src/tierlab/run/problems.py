# SPDX-License-Identifier: MIT
"""Inputs and expectations of problems, made once and kept on disk for every lane, worker and later run."""

from __future__ import annotations

import contextlib
import hashlib
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from tierlab.cells import inputs as made
from tierlab.judge.consistency import agree
from tierlab.judge.scheme import machine_of, schemes
from tierlab.oracle.expectation import Expectation
from tierlab.oracle.product import expect
from tierlab.run import arrays as files
from tierlab.run.keys import AGREEMENT_SOURCES, INPUT_SOURCES, ORACLE_SOURCES, digest_of, source_digest
from tierlab.run.requests import Inputs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tierlab.cells.matrix import Matrix
    from tierlab.cells.model import Problem
    from tierlab.oracle.product import Operands
    from tierlab.run.arrays import Arrays
    from tierlab.run.reference import Reference

T = TypeVar("T")

IN_MEMORY = 6
"""Problems whose tensors stay in memory: a lane's cells of one problem follow each other."""

FORMAT = 2
"""Version of what the files hold; part of their names."""

PRODUCTS = ("mul_mat", "mul_mat_id")


class Agreement(NamedTuple):
    """Whether the two oracles agree: empty `text` if so. `operands` are those of the portable build."""

    text: str
    operands: str


class Problems:
    """The inputs and the oracle's answers for problems under one seed.

    `root` is the cache directory, `reference` the native harness, `reference_digest` names its binaries.
    """

    def __init__(
        self, root: Path, matrix: Matrix, seed: int, reference: Reference, reference_digest: str
    ) -> None:
        self._root = root
        self._matrix = matrix
        self._seed = seed
        self._reference = reference
        self._keys = {
            "inputs": digest_of([FORMAT, source_digest(INPUT_SOURCES), reference_digest, seed]),
            "oracle": digest_of([FORMAT, source_digest(ORACLE_SOURCES), reference_digest, seed]),
            # Whether two answers agree is for the judge's budgets to say.
            "agreement": digest_of(
                [FORMAT, source_digest(AGREEMENT_SOURCES), reference_digest, seed, matrix.budgets.lam]
            ),
        }
        self._inputs: OrderedDict[str, Inputs] = OrderedDict()
        self._expected: OrderedDict[str, Expectation] = OrderedDict()
        self._agreed: dict[str, Agreement] = {}

    def inputs(self, problem: Problem) -> Inputs:
        """The problem's tensors. Raises HarnessError if the native quantiser is needed and fails."""
        return self._remembered(self._inputs, problem.id, lambda: self._load_inputs(problem))

    def expectation(self, problem: Problem, operands: Operands) -> Expectation:
        """The oracle's answer for the operands that a path really uses."""
        key = f"{problem.id}|{operands.key}"
        return self._remembered(self._expected, key, lambda: self._load_expectation(problem, operands))

    def disagreement(self, problem: Problem) -> str:
        """Empty if NumPy and the portable build agree on the problem, else how they differ."""
        if problem.op not in PRODUCTS:
            return ""
        if problem.id not in self._agreed:
            self._load_agreement(problem)
        return self._agreed[problem.id].text

    def _load_agreement(self, problem: Problem) -> Expectation:
        """The comparison of the oracles and, from the same file, the answer that was compared."""
        arrays = self._cached("agreement", problem.id, lambda: self._compare_oracles(problem))
        agreement = Agreement(str(arrays["text"]), str(arrays["operands"]))
        self._agreed[problem.id] = agreement
        key = f"{problem.id}|{agreement.operands}"
        return self._remembered(self._expected, key, lambda: Expectation.from_arrays(arrays))

    def _compare_oracles(self, problem: Problem) -> Arrays:
        hello = self._reference.hello
        machine = machine_of(hello.arch, hello.variant, hello.features)
        (scheme,) = schemes(
            "default",
            problem.weight_type,
            machine,
            op=problem.op,
            m=problem.shape.m,
            activation_type=problem.activation_type,
            ran=None,
        )
        output = self._reference.product(problem, self.inputs(problem))
        expectation = self._expect(problem, scheme.operands)
        text = agree(expectation, output, scheme, self._matrix.budgets.lam) or ""
        return {
            "text": np.array(text),
            "operands": np.array(scheme.operands.key),
            **expectation.to_arrays(),
        }

    def _load_inputs(self, problem: Problem) -> Inputs:
        arrays = self._cached("inputs", problem.id, lambda: self._make_inputs(problem))
        activations = arrays.get("activations")
        values = None if activations is None else made.as_float32(problem.activation_type, activations)
        return Inputs(arrays.get("weights"), activations, values, arrays.get("ids"))

    def _make_inputs(self, problem: Problem) -> Arrays:
        arrays: Arrays = {}
        matrix, seed = self._matrix, self._seed
        if problem.op in (*PRODUCTS, "dequantize"):
            arrays["weights"] = made.weights(
                matrix, problem, seed, lambda name, values: self._reference.quantize(name, values).tobytes()
            )
        if problem.op in (*PRODUCTS, "quantize"):
            arrays["activations"] = made.activations(matrix, problem, seed)
        if problem.op == "mul_mat_id":
            arrays["ids"] = made.ids(problem, seed)
        return arrays

    def _load_expectation(self, problem: Problem, operands: Operands) -> Expectation:
        agreement = self._agreed.get(problem.id)
        if agreement is not None and agreement.operands == operands.key:
            return self._load_agreement(problem)
        name = f"{problem.id}|{operands.key}"
        make = self._expect
        return Expectation.from_arrays(
            self._cached("oracle", name, lambda: make(problem, operands).to_arrays())
        )

    def _expect(self, problem: Problem, operands: Operands) -> Expectation:
        inputs = self.inputs(problem)
        assert inputs.weights is not None
        assert inputs.values is not None
        return expect(problem.weight_type, inputs.weights, inputs.values, operands, inputs.ids)

    def _cached(self, kind: str, name: str, make: Callable[[], Arrays]) -> Arrays:
        """Arrays from disk, or made and kept there. A damaged or unwritable file only costs time."""
        key = hashlib.sha256(f"{self._keys[kind]}|{name}".encode()).hexdigest()
        path = self._root / kind / key
        arrays = files.load(path)
        if arrays is None:
            arrays = make()
            with contextlib.suppress(OSError):
                files.save(path, arrays)
        return arrays

    @staticmethod
    def _remembered(memory: OrderedDict[str, T], key: str, load: Callable[[], T]) -> T:
        if key in memory:
            memory.move_to_end(key)
            return memory[key]
        value = memory[key] = load()
        while len(memory) > IN_MEMORY:
            memory.popitem(last=False)
        return value
