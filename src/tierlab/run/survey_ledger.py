# SPDX-License-Identifier: MIT
"""The rows of a ledger: products executed on profiles, beside what was announced and what is compiled in."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tierlab.dispatch.advertised import Advertised, advertised, table_line
from tierlab.dispatch.compiled import Compiled, class_totals, compiled
from tierlab.dispatch.divergence import Layers, divergence
from tierlab.dispatch.executed_families import ran
from tierlab.dispatch.facts import facts_of
from tierlab.dispatch.predictions import Observation, examine, slot_of
from tierlab.dispatch.products import product_kernels
from tierlab.dispatch.rules import predict
from tierlab.errors import HarnessError, ProbeError
from tierlab.judge.verdict import UNDETERMINED, Verdict
from tierlab.run.figures import Figures
from tierlab.run.ledger_rows import OWN, Row, Told
from tierlab.run.survey import claim, product
from tierlab.run.survey_chip import paths_in_order
from tierlab.toolchain.cache import cache_root

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tierlab.cells.matrix import Matrix
    from tierlab.cells.model import Cell
    from tierlab.dispatch.rules import Rule
    from tierlab.harness.messages import Hello
    from tierlab.run.ledger_binaries import Binaries
    from tierlab.run.record import CellRecord
    from tierlab.run.survey import Survey
    from tierlab.toolchain.engine import Say

LOADER_COLUMNS = 512
"""llama.cpp asks with so many columns which buffer type takes a weight, before it places it."""

SAME_QUESTION = frozenset({Verdict.VACUOUS, Verdict.DRIFT})
"""Verdicts on which path or kernel it was by the rules of the matrix: the ledger's own rules answer that."""


@dataclass(frozen=True)
class Ask:
    """Which rows: `shapes` are (columns, rows); `paths` empty stands for the program's own choice.

    Products that two slots share are executed `repeat` times: which slot gets which part is a matter of
    timing.
    """

    profiles: tuple[str, ...]
    kinds: tuple[str, ...]
    threads: tuple[int, ...]
    shapes: tuple[tuple[int, int], ...]
    k: int
    paths: tuple[str, ...] = ()
    repeat: int = 1


@dataclass(frozen=True)
class Stage:
    """A profile whose session could be opened: what it said, and what is compiled into what it loaded."""

    profile: str
    hello: Hello
    said: Advertised
    file: Compiled


@dataclass
class LedgerSurvey:
    """Asks one build; `told` and `rows` grow as profiles are done."""

    survey: Survey
    rules: Sequence[Rule]
    binaries: Binaries
    run: str
    told: list[Told] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    def ask(self, asked: Ask, say: Say) -> None:
        """Ask every profile. What a profile does not answer is told as its `problem`."""
        figures = Figures(cache_root() / "figures", self.survey.bench.problems, self.survey.plan.seed)
        self.survey.bench.witness = figures.note
        try:
            for at, profile in enumerate(asked.profiles, 1):
                say(f"ledger {self.survey.name}: {profile} ({at} of {len(asked.profiles)})")
                self._profile(profile, asked, figures)
        finally:
            self.survey.bench.witness = None
            figures.close()

    def _profile(self, name: str, asked: Ask, figures: Figures) -> None:
        survey = self.survey
        profile = survey.matrix.profiles[name]
        try:
            hello, text = survey.greeting(name)
        except (HarnessError, ProbeError) as error:
            self.told.append(Told(name, profile.cpu, profile.emulator, problem=str(error)))
            return
        said = advertised(text, hello.banner)
        file = survey.build.backend_dir / hello.variant
        stage = Stage(name, hello, said, compiled(file if file.is_file() else survey.build.harness))
        self.told.append(self._told(stage))
        cells = dict(self._cells(stage, asked))
        records = survey.answers(cells.values())
        unseen = self._unseen(cells.values(), records, figures)
        records |= survey.again(unseen)
        shared = [cell for cell in cells.values() if _shared(records[cell.id])]
        passes = [records, *(survey.again(shared) for _ in range(asked.repeat - 1))]
        for (asked_path, _), cell in cells.items():
            nmse = figures.nmse(cell.problem.id, records[cell.id].digest)
            row = self._row(stage, asked_path, cell, records[cell.id], nmse)
            self.rows.append(_with_passes(row, [each[cell.id] for each in passes if cell.id in each]))

    def _told(self, stage: Stage) -> Told:
        profile, hello, said = self.survey.matrix.profiles[stage.profile], stage.hello, stage.said
        families: dict[str, int] = {}
        for kernel in stage.file.kernels:
            for family in stage.file.code_of(kernel):
                families[family] = families.get(family, 0) + 1
        return Told(
            profile=profile.name,
            cpu=profile.cpu,
            emulator=profile.emulator,
            variant=hello.variant,
            features=tuple(sorted(hello.features)),
            vector_bits=hello.vector_bits,
            streaming_bits=hello.streaming_bits,
            hwcap=hex(hello.hwcap),
            hwcap2=hex(hello.hwcap2),
            lines=said.lines,
            banner=tuple(f"{name} = {value}" for name, value in said.banner),
            cap=said.cap,
            compiled=families,
            instructions=class_totals(stage.file.kernels.values()),
            binaries=self.binaries.of(self.survey.build, profile, hello),
        )

    def _cells(self, stage: Stage, asked: Ask) -> Iterator[tuple[tuple[str, str], Cell]]:
        """((asked path, cell id), cell) of every row; paths that do not take a type have none."""
        for kind in asked.kinds:
            for columns, rows in asked.shapes:
                for asked_path, path in self._paths(stage, kind, rows, asked):
                    for threads in asked.threads:
                        shape = f"m{columns}n{rows}k{asked.k}"
                        cell = product(stage.profile, kind, shape, path, threads, self.survey.name)
                        yield (asked_path, cell.id), cell

    def _paths(self, stage: Stage, kind: str, rows: int, asked: Ask) -> list[tuple[str, str]]:
        ordered = paths_in_order(self.survey.matrix, stage.hello)
        shape = f"m{LOADER_COLUMNS}n{rows}k{asked.k}"
        claims = {path: claim(stage.profile, kind, shape, path, self.survey.name) for path in ordered}
        said = self.survey.answers(claims.values())
        taking = [path for path in ordered if said[claims[path].id].claimed]
        if not asked.paths:
            return [(OWN, next(iter(taking), "default"))]
        return [(path, path) for path in asked.paths if path == "default" or path in taking]

    @staticmethod
    def _unseen(cells: Iterable[Cell], records: Mapping[str, CellRecord], figures: Figures) -> list[Cell]:
        """Cells that the cache answered without their output ever having been looked at."""
        return [
            cell
            for cell in cells
            if records[cell.id].digest and figures.nmse(cell.problem.id, records[cell.id].digest) is None
        ]

    def _row(self, stage: Stage, asked: str, cell: Cell, record: CellRecord, nmse: float | None) -> Row:
        problem, shape = cell.problem, cell.problem.shape
        kind = problem.weight_type
        names = names_of(self.survey.matrix, kind)
        calls = product_kernels(record.ran)
        executed = ran(calls, getattr(record, "classes", None))
        choice = stage.said.choice(cell.path, kind)
        seen = Observation(cell.path, calls, choice, stage.said.cap, executed)
        facts = facts_of(
            kind=kind,
            path=cell.path,
            own=asked == OWN,
            columns=shape.m,
            rows=shape.n,
            threads=cell.threads,
            cpu=stage.hello.features,
            built=stage.said.built,
            vector_bits=stage.hello.vector_bits,
            streaming_bits=stage.hello.streaming_bits,
            environment=self.survey.plan.environment,
        )
        determined = record.verdict not in UNDETERMINED
        checks = examine(predict(self.rules, facts, names), seen) if determined else ()
        return Row(
            run=self.run,
            profile=stage.profile,
            type=kind,
            columns=shape.m,
            rows=shape.n,
            k=shape.k,
            threads=cell.threads,
            asked=asked,
            path=cell.path,
            choice=choice,
            line=table_line(stage.said, cell.path, kind),
            compiled=stage.file.families(cell.path, kind, names),
            calls=calls,
            families=executed.together,
            classes=executed.classes,
            divergence=divergence(Layers(choice, stage.said.families, executed.together)),
            checks=checks,
            verdict=str(record.verdict),
            as_expected=record.as_expected or record.verdict in SAME_QUESTION,
            detail=record.detail,
            output=record.digest,
            nmse=_finite(record.nmse),
            nmse_given=_finite(nmse),
            cell=cell.id,
        )


def _shared(record: CellRecord) -> bool:
    return slot_of(product_kernels(record.ran)) == "both"


def _with_passes(row: Row, records: Sequence[CellRecord]) -> Row:
    outputs = {record.digest for record in records}
    splits = {tuple(product_kernels(record.ran).items()) for record in records}
    return replace(row, executions=len(records), outputs=len(outputs), splits=len(splits))


def names_of(matrix: Matrix, kind: str) -> dict[str, str]:
    """What fills the patterns of rules: the type and its code type as ggml's functions spell them."""
    info = matrix.types[kind]
    return {"type": info.symbol, "codes": matrix.codes[info.codes].symbol}


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)
