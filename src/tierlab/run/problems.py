# SPDX-License-Identifier: MIT
"""Inputs and expectations of problems, made once and kept on disk for every lane, worker and later run."""

from __future__ import annotations

import contextlib
import os
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, TypeVar
from zipfile import BadZipFile

import numpy as np

from tierlab.cells import inputs as made
from tierlab.judge.consistency import agree
from tierlab.judge.scheme import machine_of, schemes
from tierlab.oracle.expectation import Expectation
from tierlab.oracle.product import expect
from tierlab.run.keys import INPUT_SOURCES, ORACLE_SOURCES, digest_of, source_digest
from tierlab.run.requests import Inputs, as_float32

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from tierlab.cells.matrix import Matrix
    from tierlab.cells.model import Problem
    from tierlab.oracle.product import Operands
    from tierlab.run.reference import Reference

T = TypeVar("T")
Arrays = dict[str, "NDArray[Any]"]

IN_MEMORY = 6
"""Problems whose tensors stay in memory: a lane's cells of one problem follow each other."""

PRODUCTS = ("mul_mat", "mul_mat_id")


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
            "inputs": [source_digest(INPUT_SOURCES), reference_digest, seed],
            "oracle": [source_digest(ORACLE_SOURCES), reference_digest, seed],
        }
        self._inputs: OrderedDict[str, Inputs] = OrderedDict()
        self._expected: OrderedDict[str, Expectation] = OrderedDict()
        self._agreed: dict[str, str] = {}

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
            arrays = self._cached(
                "oracle",
                f"{problem.id}|agreement",
                lambda: {"text": np.array(self._compare_oracles(problem))},
            )
            self._agreed[problem.id] = str(arrays["text"])
        return self._agreed[problem.id]

    def _compare_oracles(self, problem: Problem) -> str:
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
        inputs = self.inputs(problem)
        output = self._reference.product(problem, inputs)
        return agree(self.expectation(problem, scheme.operands), output, scheme) or ""

    def _load_inputs(self, problem: Problem) -> Inputs:
        arrays = self._cached("inputs", problem.id, lambda: self._make_inputs(problem))
        return Inputs(*(arrays.get(name) for name in ("weights", "activations", "values", "ids")))

    def _make_inputs(self, problem: Problem) -> Arrays:
        arrays: Arrays = {}
        matrix, seed = self._matrix, self._seed
        if problem.op in (*PRODUCTS, "dequantize"):
            arrays["weights"] = made.weights(
                matrix, problem, seed, lambda name, values: self._reference.quantize(name, values).tobytes()
            )
        if problem.op in (*PRODUCTS, "quantize"):
            arrays["activations"] = made.activations(matrix, problem, seed)
            arrays["values"] = as_float32(problem.activation_type, arrays["activations"])
        if problem.op == "mul_mat_id":
            arrays["ids"] = made.ids(problem, seed)
        return arrays

    def _load_expectation(self, problem: Problem, operands: Operands) -> Expectation:
        def make() -> Arrays:
            inputs = self.inputs(problem)
            assert inputs.weights is not None
            assert inputs.values is not None
            answer = expect(problem.weight_type, inputs.weights, inputs.values, operands, inputs.ids)
            return answer.to_arrays()

        return Expectation.from_arrays(self._cached("oracle", f"{problem.id}|{operands.key}", make))

    def _cached(self, kind: str, name: str, make: Callable[[], Arrays]) -> Arrays:
        """Arrays from disk, or made and kept there. A damaged or unwritable file only costs time."""
        key = digest_of([self._keys[kind], name])
        path = self._root / kind / key[:2] / f"{key}.npz"
        with (
            contextlib.suppress(OSError, ValueError, BadZipFile, KeyError, EOFError),
            np.load(path) as stored,
        ):
            return {name: stored[name] for name in stored.files}
        arrays = make()
        draft = path.with_suffix(f".{os.getpid()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with draft.open("wb") as stream:
                np.savez(stream, allow_pickle=False, **arrays)
            draft.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                draft.unlink()
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
