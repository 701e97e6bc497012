# SPDX-License-Identifier: MIT
"""Cell ids read back: an id alone is enough to run its cell again, whatever the preset holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierlab.cells.builds import check_build, missing, parse_build
from tierlab.cells.claims import rule_of
from tierlab.cells.model import Cell, Problem
from tierlab.cells.positions import nearest
from tierlab.cells.schema import ACTIVATION_DISTRIBUTIONS, WEIGHT_DISTRIBUTIONS
from tierlab.cells.shapes import parse_shape
from tierlab.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tierlab.cells.matrix import Matrix
    from tierlab.cells.model import Shape

_FORM = "suite/type/shape/weights.activations/path/t<threads>/build/profile"


def parse_cell_id(matrix: Matrix, text: str) -> Cell:
    """The cell that an id names.

    Raises UsageError if the id is malformed, names something unknown, or names a combination that the
    matrix's rules make impossible.
    """
    parts = text.split("/")
    if len(parts) != 8:
        msg = f"{text!r} is neither a pattern nor a cell id; nothing was run. An id reads {_FORM}."
        raise UsageError(msg)
    suite, types, shape_text, inputs, path, threads, build, profile = parts
    op = matrix.suites[_known(text, "suite", suite, matrix.suites)].op
    weight_type, _, activation_type = types.partition(".")
    known_types: Iterable[str] = matrix.codes if op == "quantize" else matrix.types
    _known(text, "type", weight_type, known_types)
    weights, _, activations = inputs.partition(".")
    _known(text, "distribution of weights", weights, WEIGHT_DISTRIBUTIONS)
    _known(text, "distribution of activations", activations, ACTIVATION_DISTRIBUTIONS)
    if not (threads.startswith("t") and threads[1:].isdecimal() and int(threads[1:]) > 0):
        raise _refused(text, f"{threads!r} is no thread count; write t1, t2, …")
    cell = Cell(
        problem=Problem(
            suite=suite,
            op=op,
            weight_type=weight_type,
            activation_type=activation_type or "f32",
            shape=_shape(text, shape_text),
            weights=weights,
            activations=activations,
        ),
        path=_known(text, "path", path, matrix.paths),
        threads=int(threads[1:]),
        build=_build(matrix, text, build),
        profile=_known(text, "profile", profile, matrix.profiles),
    )
    _check_possible(matrix, cell, text)
    return cell


def _build(matrix: Matrix, text: str, build: str) -> str:
    try:
        check_build(build, matrix.builds)
    except UsageError as error:
        msg = f"cell id {text!r}: {error}"
        raise UsageError(msg) from error
    return parse_build(build).text


def _check_possible(matrix: Matrix, cell: Cell, text: str) -> None:
    problem = cell.problem
    codes = problem.op == "quantize"
    lacks = missing(cell.build, matrix.profiles[cell.profile].features)
    if lacks:
        raise _refused(text, f"{cell.profile} lacks {', '.join(sorted(lacks))}, which the build needs")
    block = matrix.codes[problem.weight_type].block if codes else matrix.types[problem.weight_type].block
    if problem.shape.k % block:
        msg = f"K={problem.shape.k} is no multiple of {problem.weight_type}'s block of {block}"
        raise _refused(text, msg)
    if not codes and problem.activation_type not in matrix.types[problem.weight_type].activations:
        raise _refused(text, f"{problem.weight_type} takes no {problem.activation_type} activations")
    if problem.op in ("mul_mat", "mul_mat_id"):
        if bool(problem.shape.experts) != (problem.op == "mul_mat_id"):
            raise _refused(text, f"the shape {problem.shape.id} does not fit {problem.op}")
        if rule_of(matrix, cell) is None:
            place = f"{cell.profile} in build {cell.build}"
            msg = f"path {cell.path} does not take it on {place} (see the path's rules in matrix.yaml)"
            raise _refused(text, msg)


def _shape(text: str, shape_text: str) -> Shape:
    try:
        shape = parse_shape(shape_text)
    except ValueError as problem:
        raise _refused(text, str(problem)) from problem
    if shape.in_blocks:
        raise _refused(text, "an id gives K in elements (k512), not in blocks")
    return shape.shape


def _known(text: str, kind: str, word: str, known: Iterable[str]) -> str:
    names = tuple(known)
    if word not in names:
        raise _refused(text, f"unknown {kind} {word!r}; {nearest(word, names)}")
    return word


def _refused(text: str, fact: str) -> UsageError:
    return UsageError(f"cell id {text!r}: {fact} (nothing was run; ids are listed by `invoke cells`)")
