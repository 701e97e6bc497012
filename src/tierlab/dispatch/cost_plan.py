# SPDX-License-Identifier: MIT
"""What is modelled: cores, types, kernels, the ratios expected and measured. Data: cost.yaml."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tierlab.cells.claims import expected_kernels, rule_of
from tierlab.cells.model import Cell, Problem, Shape
from tierlab.dispatch.block_loop import Work
from tierlab.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tierlab.cells.matrix import Matrix

PLAN = Path(__file__).with_name("cost.yaml")
SUPER_BLOCK, SUPER_BLOCKS = 256, 5
"""K is five super-blocks: a loop of five (ten, twenty, forty) is about blocks, for no tile has five parts."""

_BUFFERS = tuple(number << 40 for number in range(1, 4))
"""Addresses of operands: far apart, so that no two are taken for one."""


@dataclass(frozen=True)
class Kernel:
    """A kind of kernel: the pattern of its symbol, the path that runs it, the product to follow."""

    symbol: str
    path: str
    rows: int
    columns: int


@dataclass(frozen=True)
class Ratio:
    """How much faster one kernel is than another on a core: expected at least, or measured."""

    model: str
    kernel: str
    of: str
    ratio: float
    what: str = ""
    source: str = ""


@dataclass(frozen=True)
class CostPlan:
    """All of cost.yaml. `models` are cores by llvm-mca's names, with the profile that stands for each."""

    models: Mapping[str, str]
    types: tuple[str, ...]
    base: str
    kernels: Mapping[str, Kernel]
    vector_bytes: tuple[str, ...]
    expected: tuple[Ratio, ...]
    measured: tuple[Ratio, ...]


@dataclass(frozen=True)
class Call:
    """A kernel function to follow: its symbol, its arguments, what it must compute.

    `expected` are patterns of the kernels that receipts demand there: one of them must be on the way, for a
    function may hand its work to others by what the CPU has.
    """

    symbol: str
    arguments: tuple[int, ...]
    work: Work
    expected: tuple[str, ...]


def load_plan(path: Path = PLAN) -> CostPlan:
    """Read the plan. Raises ConfigError where it does not hold what it must."""
    try:
        value: dict[str, Any] = yaml.safe_load(path.read_text("utf-8"))
        return CostPlan(
            models=value["models"],
            types=tuple(value["types"]),
            base=value["base"],
            kernels={kind: Kernel(**entry) for kind, entry in value["kernels"].items()},
            vector_bytes=tuple(value["vector_bytes"]),
            expected=tuple(
                Ratio(entry["model"], entry["kernel"], entry["of"], float(entry["at_least"]))
                for entry in value["expected"]
            ),
            measured=tuple(Ratio(**entry) for entry in value["measured"]),
        )
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError) as error:
        msg = f"{path} cannot be used ({error}); nothing was modelled. Restore it from version control"
        raise ConfigError(msg) from error


def call_of(plan: CostPlan, matrix: Matrix, build: str, model: str, kind: str, kernel: str) -> Call | None:
    """The kernel function of a type on a core, by the rules of the matrix; None where they give none.

    `kind` is the weight type, `kernel` a key of the plan's kernels.
    """
    entry = plan.kernels[kernel]
    weights = matrix.types[kind]
    k = SUPER_BLOCK * SUPER_BLOCKS
    shape = Shape(entry.rows, max(entry.columns, 2), k)
    problem = Problem("ggml.mul_mat", "mul_mat", kind, "f32", shape, "blocks", "gauss")
    cell = Cell(problem, entry.path, 1, build, plan.models[model])
    rule = rule_of(matrix, cell)
    if rule is None:
        return None
    codes = matrix.codes[weights.codes].symbol
    symbol = entry.symbol.format(type=weights.symbol, layout=rule.layout, codes=codes)
    output, weight, activation = _BUFFERS
    # ggml_gemm_t and ggml_gemv_t: n, s, bs, vx, vy, nr, nc
    arguments: tuple[int, ...] = (k, output, entry.columns, weight, activation, entry.rows, entry.columns)
    if entry.columns == 1:
        # ggml_vec_dot_t: n, s, bs, vx, bx, vy, by, nrc
        arguments = (k, output, 0, weight, 0, activation, 0, 1)
    work = Work(weights.block, k // weights.block, entry.rows, entry.columns)
    return Call(symbol, arguments, work, expected_kernels(matrix, cell)[0])
