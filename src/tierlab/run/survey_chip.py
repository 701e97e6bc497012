# SPDX-License-Identifier: MIT
"""What a profile does with each weight type, from executed cells: path and kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tierlab.dispatch.products import product_kernels
from tierlab.run.survey import claim, product

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tierlab.cells.matrix import Matrix
    from tierlab.harness.messages import Hello
    from tierlab.run.record import CellRecord
    from tierlab.run.survey import Survey

LOADER_SHAPE = "m512n64k256"
"""llama.cpp asks with 512 columns which buffer type takes a weight, before it places it."""

WORKLOADS = {"decode": "m1n64k256", "prefill": "m128n64k256"}
MORE_THREADS = 4
"""With an SME unit the thread count decides which kernel runs, so those profiles are asked twice."""


@dataclass(frozen=True)
class Observation:
    """One executed cell: how often each product kernel ran, and the cell's verdict."""

    workload: str
    threads: int
    kernels: Mapping[str, int]
    verdict: str
    expected: bool
    cell: str


@dataclass(frozen=True)
class TypeAnswer:
    """What became of a weight type: `path` is the first of ggml's buffer types that takes it."""

    kind: str
    path: str
    observations: tuple[Observation, ...]


def paths_in_order(matrix: Matrix, hello: Hello) -> list[str]:
    """Paths in the order in which the library lists their buffer types; `default` last."""
    by_buffer = {info.buffer: name for name, info in matrix.paths.items() if info.buffer}
    return [by_buffer[name] for name in hello.buffer_types if name in by_buffer]


def type_answers(survey: Survey, profile: str, hello: Hello) -> list[TypeAnswer]:
    """For each weight type of the matrix: claims first, then decode and prefill on the path that took it."""
    matrix = survey.matrix
    ordered = paths_in_order(matrix, hello)
    claims = {
        (kind, path): claim(profile, kind, LOADER_SHAPE, path) for kind in matrix.types for path in ordered
    }
    said = survey.answers(claims.values())

    def path_of(kind: str) -> str:
        taking = (path for path in ordered if said[claims[kind, path].id].claimed)
        return next(taking, "default")

    paths = {kind: path_of(kind) for kind in matrix.types}
    threads = (1, MORE_THREADS) if "sme" in hello.features else (1,)
    cells = {
        (kind, workload, count): product(profile, kind, shape, paths[kind], count)
        for kind in matrix.types
        for workload, shape in WORKLOADS.items()
        for count in threads
    }
    ran = survey.answers(cells.values())
    return [
        TypeAnswer(
            kind,
            paths[kind],
            tuple(
                observation(workload, count, ran[cells[kind, workload, count].id])
                for workload in WORKLOADS
                for count in threads
            ),
        )
        for kind in matrix.types
    ]


def observation(workload: str, threads: int, record: CellRecord) -> Observation:
    """The product kernels of a record, under their source names."""
    kernels = product_kernels(record.ran)
    return Observation(workload, threads, kernels, str(record.verdict), record.as_expected, record.cell)
