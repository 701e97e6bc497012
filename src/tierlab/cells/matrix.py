# SPDX-License-Identifier: MIT
"""`matrix.yaml` as frozen values: what the rest of the lab reads instead of YAML.

Made by `tierlab.cells.load.load_matrix`, which has checked everything; nothing here is checked twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tierlab.cells.builds import compiled_in, family, missing

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tierlab.cells.model import Cell, Profile
    from tierlab.cells.shapes import ShapeText


@dataclass(frozen=True)
class Field:
    """A part of a block: `size` bytes at byte `at`; `kind` says which bit patterns are valid.

    `exponent` is the binade range (low, high) of a scale: magnitudes in [2^low, 2^(high+1)).
    """

    name: str
    at: int
    size: int
    kind: str
    exponent: tuple[int, int] | None = None


@dataclass(frozen=True)
class WeightType:
    """A ggml tensor type: `block` weights in `bytes` bytes, multiplied with activations in `codes`.

    `quantizer` says how float32 becomes this type: `cast` (float types), `gguf` (the gguf package),
    `native` (the harness, built for this machine). `activations` are the activation types that
    ggml accepts beside it; `symbol` is the name as ggml's functions spell it.
    """

    name: str
    symbol: str
    family: str
    block: int
    bytes: int
    codes: str
    quantizer: str
    activations: tuple[str, ...]
    fields: tuple[Field, ...]

    def row_bytes(self, k: int) -> int:
        """Bytes of one row of `k` weights; `k` is a multiple of `block`."""
        return k // self.block * self.bytes


@dataclass(frozen=True)
class CodeType:
    """A type that ggml converts activations to before it multiplies; `symbol` as in `WeightType`."""

    name: str
    symbol: str
    block: int
    bytes: int


@dataclass(frozen=True)
class Variant:
    """A loadable CPU backend and the features it was compiled for (and therefore demands)."""

    name: str
    needs: frozenset[str]


@dataclass(frozen=True)
class Kernels:
    """Patterns of kernel symbols (fnmatch): of each list at least one must run.

    `{type}`, `{codes}` and `{layout}` stand for the symbols of the cell's weight type and its code type,
    and for the rule's layout.
    """

    gemv: tuple[str, ...]
    gemm: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rule:
    """One case in which a path must take an operation; of a path's rules the first that fits counts.

    `variant` features are those the loaded backend was compiled with, `cpu` features those the CPU has.
    Vector lengths are in bits: `vector_bits` is the only one that fits, `…_from` the shortest that does.
    With `from_patch` the rule holds for builds with at least that many patches of the series.
    """

    types: frozenset[str]
    kernels: Kernels
    layout: str = ""
    ops: frozenset[str] = frozenset({"mul_mat", "mul_mat_id"})
    activations: frozenset[str] = frozenset()
    variant: frozenset[str] = frozenset()
    cpu: frozenset[str] = frozenset()
    vector_bits: int | None = None
    vector_bits_from: int = 0
    streaming_bits_from: int = 0
    n_multiple: int = 1
    m: tuple[int, int] | None = None
    threads: tuple[int, int] | None = None
    planes_3: bool = True
    from_patch: int = 0


@dataclass(frozen=True)
class PathInfo:
    """A way to a kernel: the buffer type that holds the weights, and when it takes an operation.

    `weight_planes` is `one` where the path takes only a plain matrix of at least two rows (or one
    matrix an expert); `activations` are the activation types it takes, empty for all. From `gemm_from`
    rows of activations on the GEMM kernels run; with `gemm_step`, rows left over run GEMV.
    `row_at_a_time` operations use GEMV alone.
    """

    name: str
    buffer: str
    weight_planes: str
    activations: frozenset[str]
    gemm_from: int
    gemm_step: int
    row_at_a_time: frozenset[str]
    rules: tuple[Rule, ...]


@dataclass(frozen=True)
class Suite:
    """A family of operations under test; `op` is the wire operation of its cells."""

    name: str
    op: str


@dataclass(frozen=True)
class Selector:
    """A set of cells: for each axis named, the values that belong to it; other axes are free."""

    axes: Mapping[str, frozenset[str] | frozenset[int]]
    features: frozenset[str] = frozenset()
    line: int = 0


@dataclass(frozen=True)
class Exclusion:
    """Cells that are not run, and why."""

    selector: Selector
    reason: str


@dataclass(frozen=True)
class Expectation:
    """Cells whose known verdict is not `pass`, and the evidence for it.

    With `undefined_bytes` the faulty output holds memory that nobody wrote, so that no two runs of it agree.
    """

    selector: Selector
    verdict: str
    evidence: str
    undefined_bytes: bool = False


@dataclass(frozen=True)
class Row:
    """One line of a preset's plan: the product of its lists, minus what the paths do not take."""

    suite: Suite
    types: tuple[str, ...]
    activation_types: tuple[str, ...]
    shapes: tuple[ShapeText, ...]
    weights: tuple[str, ...]
    activations: tuple[str, ...]
    paths: tuple[str, ...]
    threads: tuple[int, ...]
    profiles: tuple[str, ...]


@dataclass(frozen=True)
class Preset:
    """A named plan: builds × profiles × rows."""

    name: str
    builds: tuple[str, ...]
    profiles: tuple[str, ...]
    rows: tuple[Row, ...]
    note: str = ""


@dataclass(frozen=True)
class Budgets:
    """What the judge may allow: λ of the probabilistic bound, and the false alarms it was chosen for."""

    lam: float
    elements_per_run: float
    runs_per_year: float
    false_alarms_per_year: float


@dataclass(frozen=True)
class Timeouts:
    """Limits in seconds of wall time: one cell, and the start of one session."""

    cell_seconds: float
    start_seconds: float


@dataclass(frozen=True)
class Matrix:
    """Everything `matrix.yaml` says. `digest` is the sha256 of the file's bytes."""

    path: Path
    digest: str
    builds: Mapping[str, str]
    profiles: Mapping[str, Profile]
    variants: tuple[Variant, ...]
    codes: Mapping[str, CodeType]
    types: Mapping[str, WeightType]
    suites: Mapping[str, Suite]
    paths: Mapping[str, PathInfo]
    presets: Mapping[str, Preset]
    budgets: Budgets
    timeouts: Timeouts
    exclusions: tuple[Exclusion, ...] = ()
    expected: tuple[Expectation, ...] = ()
    thread_dependent: tuple[Exclusion, ...] = ()
    variant_of: Mapping[str, Variant] = field(default_factory=dict)

    def exclusion_of(self, cell: Cell) -> Exclusion | None:
        """The first exclusion that names the cell, or None.

        A build for one `-march` is left out where the CPU cannot run it; that stands on no line of the file.
        """
        lacks = missing(cell.build, self.profiles[cell.profile].features)
        if lacks:
            reason = f"code for {cell.build} needs {', '.join(sorted(lacks))}, which these CPUs lack"
            return Exclusion(Selector({"builds": frozenset({cell.build})}), reason)
        return next((item for item in self.exclusions if self.selects(item.selector, cell)), None)

    def expectation_of(self, cell: Cell) -> Expectation | None:
        """The declared verdict of the cell, or None: then it must pass."""
        return next((item for item in self.expected if self.selects(item.selector, cell)), None)

    def variant(self, cell: Cell) -> Variant:
        """The backend that a cell runs in: what its CPU loads or, in a build for one `-march`, that one,
        under the name of the richest listed variant that it holds."""
        features = compiled_in(cell.build)
        if features is None:
            return self.variant_of[cell.profile]
        nearest = [variant for variant in self.variants if variant.needs <= features]
        return replace(nearest[-1], needs=features) if nearest else Variant("", features)

    def thread_dependence_of(self, cell: Cell) -> str | None:
        """The declared reason why the cell's bytes may depend on the thread count, or None."""
        found = (item.reason for item in self.thread_dependent if self.selects(item.selector, cell))
        return next(found, None)

    def selects(self, selector: Selector, cell: Cell) -> bool:
        """Whether every axis that the selector names holds the cell's value."""
        if selector.features and not selector.features <= self.profiles[cell.profile].features:
            return False
        return all(self._axis(axis, cell) in values for axis, values in selector.axes.items())

    def _axis(self, axis: str, cell: Cell) -> str | int:
        if axis == "variants":
            return self.variant(cell).name
        return axis_value(axis, cell)


def axis_value(axis: str, cell: Cell) -> str | int:
    """The cell's value on an axis of selectors (`types`, `shapes`, `threads`, …)."""
    problem = cell.problem
    match axis:
        case "suites":
            return problem.suite
        case "types":
            return problem.weight_type
        case "activation_types":
            return problem.activation_type
        case "shapes":
            return problem.shape.id
        case "weights":
            return problem.weights
        case "activations":
            return problem.activations
        case "paths":
            return cell.path
        case "threads":
            return cell.threads
        case "builds":
            return family(cell.build)
        case "profiles":
            return cell.profile
    msg = f"no such axis: {axis}"
    raise KeyError(msg)
