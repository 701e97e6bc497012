# SPDX-License-Identifier: MIT
"""What a run leaves behind: one `CellRecord` a line of `results.jsonl`, one `RunInfo` in `run.json`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping  # noqa: TC003 (decode() resolves the annotations)
from dataclasses import dataclass, field, fields, replace
from sys import intern
from typing import TYPE_CHECKING, Any

from tierlab.errors import StoreError
from tierlab.judge.verdict import UNDETERMINED, Judgement, Verdict
from tierlab.run.decode import decode, encode
from tierlab.run.steps import Step  # noqa: TC001 (decode() resolves the annotations)

if TYPE_CHECKING:
    from tierlab.cells.model import Cell

SCHEMA = 1
"""Version of both files; a reader refuses another one."""

NAN = float("nan")

_TEXT = ("cell", "detail", "digest", "profile", "suite", "build", "path", "type", "shape", "inputs", "reason")
_REPEATED = ("profile", "suite", "build", "path", "type", "shape", "inputs", "reason")
_FIGURES = ("share", "max_abs", "nmse", "ulp", "resolution", "wall_ms", "kernel_ms")


@dataclass(frozen=True, slots=True)
class CellRecord:
    """The outcome of one cell.

    `expected` is the verdict that the matrix declares (`pass` unless a known fault is declared, with its
    `reason`). `share` is the largest error over its budget; `digest` the sha256 of the output's bytes;
    `ran` the exact calls of each kernel symbol; `claimed` whether the path took the operation (None if
    nobody asked). `wall_ms` and `kernel_ms` are the cost of the cell under emulation, never a speed;
    both are 0 for a record that came from the verdict cache (`cached`).
    """

    cell: str
    verdict: Verdict
    profile: str
    suite: str
    build: str
    path: str
    threads: int
    type: str
    shape: str
    inputs: str
    expected: Verdict = Verdict.PASS
    share: float = NAN
    max_abs: float = NAN
    nmse: float = NAN
    ulp: float = NAN
    resolution: float = NAN
    detail: str = ""
    digest: str = ""
    ran: Mapping[str, int] = field(default_factory=dict)
    claimed: bool | None = None
    cached: bool = False
    wall_ms: float = 0.0
    kernel_ms: float = 0.0
    reason: str = ""

    @property
    def as_expected(self) -> bool:
        return self.verdict is self.expected

    @property
    def undetermined(self) -> bool:
        """Nothing can be said of the kernel: neither a success nor a fault (exit code 2)."""
        return self.verdict in UNDETERMINED

    @property
    def lane(self) -> str:
        return f"{self.suite}/{self.build}/{self.profile}"

    def expecting(self, verdict: Verdict, reason: str = "") -> CellRecord:
        """The same outcome under another declaration: records in the cache outlive the matrix's text."""
        return replace(self, expected=verdict, reason=reason)

    @classmethod
    def of(cls, cell: Cell, judgement: Judgement, **more: Any) -> CellRecord:
        """The record of `cell`; `more` are the fields that neither the cell nor the judgement knows."""
        _, types, shape, inputs, *_ = cell.id.split("/")
        figures = {name: getattr(judgement, name) for name in _FIGURES[:5]}
        return cls(
            cell=cell.id,
            verdict=judgement.verdict,
            profile=cell.profile,
            suite=cell.problem.suite,
            build=cell.build,
            path=cell.path,
            threads=cell.threads,
            type=types,
            shape=shape,
            inputs=inputs,
            detail=judgement.detail,
            **figures,
            **more,
        )

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; NaN is null and the infinities are the texts `inf` and `-inf`."""
        made = {name: getattr(self, name) for name in _NAMES}
        made["verdict"], made["expected"] = self.verdict.value, self.expected.value
        made["ran"] = dict(self.ran)
        for name in _FIGURES:
            made[name] = _figure_out(made[name])
        return made

    def to_line(self) -> bytes:
        """One line of `results.jsonl`, with its newline."""
        text = json.dumps(self.to_json(), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        # A lone surrogate (bytes that a tool printed in no encoding) must not cost the record.
        return text.encode("utf-8", "backslashreplace") + b"\n"

    @classmethod
    def from_json(cls, value: object, where: str = "record") -> CellRecord:
        """The record of a parsed line. Raises StoreError naming `where` and the first wrong field."""
        if not isinstance(value, dict) or value.keys() != _NAME_SET:
            found = value.keys() if isinstance(value, dict) else set()
            odd = sorted(map(str, _NAME_SET ^ found))
            msg = (
                f"{where}: not a record of this version (missing or unknown: {', '.join(odd)}). "
                "Read it with the version of tierlab that wrote it."
            )
            raise StoreError(msg)
        made = dict(value)
        for name in _TEXT:
            _demand(isinstance(made[name], str), where, name, made[name])
        for name in _REPEATED:  # a few hundred distinct texts in tens of thousands of records
            made[name] = intern(made[name])
        for name in _FIGURES:
            made[name] = _figure_in(made[name], where, name)
        for name in ("verdict", "expected"):
            word = made[name]
            _demand(isinstance(word, str) and word in _VERDICTS, where, name, word)
            made[name] = _VERDICTS[word]
        _demand(type(made["threads"]) is int, where, "threads", made["threads"])
        _demand(type(made["cached"]) is bool, where, "cached", made["cached"])
        _demand(made["claimed"] in (None, True, False), where, "claimed", made["claimed"])
        ran = made["ran"]
        calls_are_counts = isinstance(ran, dict) and all(type(calls) is int for calls in ran.values())
        _demand(calls_are_counts, where, "ran", ran)
        made["ran"] = {intern(symbol): calls for symbol, calls in ran.items()}
        return cls(**made)

    @classmethod
    def from_line(cls, line: bytes | str, where: str = "record") -> CellRecord:
        """Parse one line. Raises ValueError if it is no JSON (torn), StoreError if it is no record."""
        return cls.from_json(json.loads(line), where)


_NAMES = tuple(entry.name for entry in fields(CellRecord))
_NAME_SET = frozenset(_NAMES)
_VERDICTS: dict[str, Verdict] = {verdict.value: verdict for verdict in Verdict}


def _demand(good: bool, where: str, name: str, value: object) -> None:
    if not good:
        msg = f"{where}: field {name!r} cannot be {value!r}; the file is damaged or of another version."
        raise StoreError(msg)


def _figure_out(value: float) -> float | str | None:
    if math.isnan(value):
        return None
    return float(value) if math.isfinite(value) else ("inf" if value > 0 else "-inf")


def _figure_in(value: object, where: str, name: str) -> float:
    if value is None:
        return NAN
    if value in ("inf", "-inf"):
        return float(str(value))
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    _demand(False, where, name, value)
    return NAN


@dataclass(frozen=True)
class BuildInfo:
    """What was under test: `source` is the pin or the user's tree, `path` that tree's place (user builds)."""

    name: str
    digest: str
    mode: str = ""
    flags: tuple[str, ...] = ()
    source: str = ""
    path: str = ""
    patches: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True)
class ProfileInfo:
    """What a profile promised, and (`hello`) what its probe found; empty if it never answered."""

    name: str
    emulator: str
    cpu: str
    features: tuple[str, ...] = ()
    vector_bits: int | None = None
    streaming_bits: int | None = None
    products: tuple[str, ...] = ()
    note: str = ""
    hello: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Exclusion:
    """Cells that the matrix leaves out: which (`rule`), why, and how many."""

    rule: str
    reason: str
    count: int


@dataclass(frozen=True)
class RunInfo:
    """The provenance of a run: everything needed to run it again and to trust it.

    `started`/`finished` are ISO 8601 in UTC; `finished` and `exit_code` are None while it runs (or if it
    was killed). `asked` counts the selected cells; `shard` is (index from 1, count) of a sharded run;
    `missing_shards` and `merged_from` are set by a merge; `comparisons` are the builds that the run holds
    against each other.
    """

    run_id: str
    seed: int
    asked: int
    started: str
    version: str = ""
    commit: str = ""
    dirty: bool = False
    preset: str = ""
    selection: tuple[str, ...] = ()
    command: str = ""
    engine: str = ""
    engine_identity: str = ""
    emulators: Mapping[str, str] = field(default_factory=dict)
    builds: tuple[BuildInfo, ...] = ()
    profiles: tuple[ProfileInfo, ...] = ()
    host: Mapping[str, str] = field(default_factory=dict)
    exclusions: tuple[Exclusion, ...] = ()
    notes: tuple[str, ...] = ()
    finished: str | None = None
    exit_code: int | None = None
    shard: tuple[int, ...] | None = None
    missing_shards: tuple[int, ...] = ()
    merged_from: tuple[str, ...] = ()
    comparisons: tuple[Step, ...] = ()
    schema: int = SCHEMA

    def to_json(self) -> dict[str, Any]:
        return encode(self)

    @classmethod
    def from_json(cls, value: object, where: str = "run.json") -> RunInfo:
        """Strict parse; raises StoreError naming the wrong key, or the foreign schema version."""
        found = value.get("schema") if isinstance(value, dict) else None
        if found != SCHEMA:
            msg = f"{where}: schema {found!r}, this tierlab reads {SCHEMA}. Use the version that wrote it."
            raise StoreError(msg)
        return decode(cls, value, where)
