# SPDX-License-Identifier: MIT
"""What each path must take, and which kernels must then run, computed from the matrix's rules.

The rules mirror ggml's own selection (`ggml_repack_get_optimal_repack_type`, KleidiAI's kernel
tables) as data, so that a change upstream shows as `drift` instead of going unseen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierlab.cells.builds import patches_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tierlab.cells.matrix import Matrix, PathInfo, Rule, Variant
    from tierlab.cells.model import Cell, Problem, Profile


def loaded_variant(variants: tuple[Variant, ...], profile: Profile) -> Variant | None:
    """The backend that ggml loads on this CPU: of those whose needs are met, the last listed.

    `variants` stand in the order of ggml's score, which grows with the features compiled in.
    """
    eligible = [variant for variant in variants if variant.needs <= profile.features]
    return eligible[-1] if eligible else None


def operation(problem: Problem) -> str:
    """The ggml operation asked about: `mul_mat_id` for shapes with experts, else `mul_mat`."""
    return "mul_mat_id" if problem.shape.experts else "mul_mat"


def rule_of(matrix: Matrix, cell: Cell) -> Rule | None:
    """The rule by which the cell's path must take the cell's operation, or None if it must not."""
    return next(_rules(matrix, cell), None)


def _rules(matrix: Matrix, cell: Cell) -> Iterator[Rule]:
    """All rules of the path that fit the cell; the first one counts."""
    path = matrix.paths[cell.path]
    problem = cell.problem
    if not _path_fits(path, problem):
        return
    profile = matrix.profiles[cell.profile]
    variant = matrix.variant(cell)
    for rule in path.rules:
        if (
            problem.weight_type in rule.types
            and rule.from_patch <= patches_in(cell.build)
            and _cpu_fits(rule, profile, variant)
            and _problem_fits(rule, problem)
            and (rule.threads is None or rule.threads[0] <= cell.threads <= rule.threads[1])
        ):
            yield rule


def expected_claim(matrix: Matrix, cell: Cell) -> bool:
    """Whether the cell's path must take the cell's operation on the cell's profile."""
    return rule_of(matrix, cell) is not None


Patterns = tuple[tuple[str, ...], ...]


def expected_kernels(
    matrix: Matrix, cell: Cell, exist: Callable[[Patterns], bool] = lambda _: True
) -> Patterns:
    """Sets of symbol patterns (fnmatch); of each set at least one must have run.

    Empty for operations that run no matmul kernel (`quantize`, `dequantize`, `claim`) and where the
    path does not take the operation. In a tree of another time `exist` tells whether it has such kernels at
    all: the first rule counts whose kernels it has; without any the first one stands, and is not met.
    """
    if cell.problem.op not in ("mul_mat", "mul_mat_id"):
        return ()
    wanted = [_kernels(matrix, cell, rule) for rule in _rules(matrix, cell)]
    return next((patterns for patterns in wanted if exist(patterns)), wanted[0] if wanted else ())


def _kernels(matrix: Matrix, cell: Cell, rule: Rule) -> Patterns:
    problem = cell.problem
    path = matrix.paths[cell.path]
    kind = matrix.types[problem.weight_type]
    names = {"type": kind.symbol, "codes": matrix.codes[kind.codes].symbol, "layout": rule.layout}
    gemv = _filled(rule.kernels.gemv, names)
    gemm = _filled(rule.kernels.gemm, names) or gemv
    m = problem.shape.m
    if operation(problem) in path.row_at_a_time or m < path.gemm_from:
        return (gemv,)
    if path.gemm_step > 1 and m % path.gemm_step:
        return (gemm, gemv)
    return (gemm,)


def _filled(patterns: Iterable[str], names: dict[str, str]) -> tuple[str, ...]:
    return tuple(pattern.format_map(names) for pattern in patterns)


def _path_fits(path: PathInfo, problem: Problem) -> bool:
    """The path's own conditions; `one` is ggml_n_dims(weights) == 2, or 3 with experts.

    ggml counts no dimension of one at the end: a single row has one, a single expert's matrix two.
    """
    if path.activations and problem.activation_type not in path.activations:
        return False
    if path.weight_planes == "any" or problem.shape.experts > 1:
        return True
    if problem.shape.experts == 1:
        return False
    return problem.shape.weight_batch == (1, 1) and problem.shape.n > 1


def _cpu_fits(rule: Rule, profile: Profile, variant: Variant) -> bool:
    if not rule.cpu <= profile.features or not rule.variant <= variant.needs:
        return False
    if (profile.vector_bits or 0) < rule.vector_bits_from:
        return False
    if (profile.streaming_bits or 0) < rule.streaming_bits_from:
        return False
    return rule.vector_bits is None or rule.vector_bits == profile.vector_bits


def _problem_fits(rule: Rule, problem: Problem) -> bool:
    shape = problem.shape
    if operation(problem) not in rule.ops or shape.n % rule.n_multiple:
        return False
    if rule.activations and problem.activation_type not in rule.activations:
        return False
    if rule.m is not None and not rule.m[0] <= shape.m <= rule.m[1]:
        return False
    return rule.planes_3 or shape.batch[1] == 1
