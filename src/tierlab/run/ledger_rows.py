# SPDX-License-Identifier: MIT
"""What a ledger records: one run, its profiles as they announced themselves, and one row a product.

Plain values that survive JSON: a ledger is read again years later.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 (decode() resolves the annotations)
from dataclasses import dataclass, field

from tierlab.dispatch.predictions import BROKEN, Check
from tierlab.dispatch.rules import KERNELS

SCHEMA = 1
"""Version of the lines of a ledger file; a reader refuses another one."""

OWN = "own"
"""`asked` of a row whose path is the program's own choice."""

PRODUCTS_NOTE = "weights and activations are drawn from the seed; no model file takes part"


@dataclass(frozen=True)
class Binary:
    """A file that took part; `path` is that inside the sandbox.

    `role` is emulator, harness, backend, library, or probed: a backend that was asked for its score, was not
    chosen, and stayed mapped.
    """

    role: str
    path: str
    sha256: str
    bytes: int


@dataclass(frozen=True)
class Model:
    """A model file that took part (none does yet)."""

    path: str
    sha256: str
    bytes: int


@dataclass(frozen=True)
class Told:
    """One profile: what its process announced (`lines`, `banner`, `cap`), probed, and has compiled in.

    `compiled` maps a family to the number of product kernels in the loaded file that hold code of it,
    `instructions` the instruction class to the number of instructions in them. `problem` stands alone where
    no session could be opened.
    """

    profile: str
    cpu: str = ""
    emulator: str = ""
    variant: str = ""
    features: tuple[str, ...] = ()
    vector_bits: int = 0
    streaming_bits: int = 0
    hwcap: str = ""
    hwcap2: str = ""
    lines: tuple[str, ...] = ()
    banner: tuple[str, ...] = ()
    cap: int | None = None
    compiled: Mapping[str, int] = field(default_factory=dict)
    instructions: Mapping[str, int] = field(default_factory=dict)
    binaries: tuple[Binary, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class Place:
    """Where the tree decides a rule: `at` is file:line with its `text`, or `missing` says what is."""

    rule: str
    at: str = ""
    text: str = ""
    missing: str = ""


@dataclass(frozen=True)
class Row:
    """One product: `rows` × `k` weights of `type`, `columns` of activations, on `threads` threads.

    Advertised: `choice` with its log `line`, empty where nothing is announced for the type. Compiled:
    `compiled`, the families for this type and path in the loaded file. Executed: exact `calls` of product
    kernels, their `families` and `classes` (None: the instructions are not known). `nmse` is against the
    operands that the kernel multiplies, `nmse_given` against those that it was given (None: no figure).
    `executions` says how often the product was executed, `outputs` how many different outputs there were, and
    `splits` how many different sets of calls.
    """

    run: str
    profile: str
    type: str
    columns: int
    rows: int
    k: int
    threads: int
    asked: str
    path: str
    choice: str
    line: str
    compiled: tuple[str, ...]
    calls: Mapping[str, int]
    families: tuple[str, ...] | None
    classes: tuple[str, ...] | None
    divergence: str
    checks: tuple[Check, ...]
    verdict: str
    as_expected: bool
    detail: str
    output: str
    nmse: float | None
    nmse_given: float | None
    cell: str
    executions: int = 1
    outputs: int = 1
    splits: int = 1

    @property
    def key(self) -> tuple[str, str, int, int, int, int, str]:
        """The same for the same product in another run: what was asked, without what came of it."""
        return (self.profile, self.type, self.columns, self.rows, self.k, self.threads, self.asked)

    @property
    def broken(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.outcome == BROKEN)

    @property
    def predicted(self) -> bool:
        """Whether a rule says which kernels run."""
        return any(check.group.startswith(KERNELS) for check in self.checks)


@dataclass(frozen=True)
class LedgerRun:
    """The provenance of a run of the ledger. `environment` was set for the processes under test.

    `build_notes` say where the build is not as the tree asked, like KleidiAI left out.
    """

    run: str
    started: str
    finished: str
    command: str
    version: str
    commit: str
    dirty: bool
    seed: int
    engine: str
    engine_identity: str
    emulators: Mapping[str, str]
    host: Mapping[str, str]
    build: str
    tree: str
    tree_digest: str
    build_digest: str
    flags: tuple[str, ...]
    environment: Mapping[str, str]
    matrix_digest: str
    rules_digest: str
    profiles: tuple[Told, ...]
    places: tuple[Place, ...]
    models: tuple[Model, ...] = ()
    models_note: str = PRODUCTS_NOTE
    build_notes: tuple[str, ...] = ()
    rows: int = 0
    exit_code: int = 0
    schema: int = SCHEMA


@dataclass(frozen=True)
class Ledger:
    """A run with its rows."""

    run: LedgerRun
    rows: tuple[Row, ...]
