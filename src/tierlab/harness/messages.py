# SPDX-License-Identifier: MIT
"""What the lab and the harness say to each other, as frozen values (docs/protocol.md)."""

from __future__ import annotations

from dataclasses import dataclass, field

PROTOCOL_VERSION = 1

SENTINEL_BITS = 0x7FC0DEAD
"""The float (by its bits) with which the harness fills an output before the kernel runs."""


@dataclass(frozen=True)
class Span:
    """A piece of the arena: offset from its start and length, both in bytes."""

    offset: int
    nbytes: int


@dataclass(frozen=True)
class TypeInfo:
    """A ggml type of the loaded tree.

    `name` is in lower case; a block of `block` elements takes `nbytes` bytes. `vec_dot` is the type to
    which the default path converts activations, None for a type that cannot be multiplied;
    `from_float` tells whether the backend itself quantises to this type.
    """

    name: str
    number: int
    block: int
    nbytes: int
    vec_dot: str | None
    from_float: bool


@dataclass(frozen=True)
class Hello:
    """The harness's first record: its build, the CPU it found and the backend that ggml chose.

    `scores` holds every loadable backend and what its own probe gave (0: not eligible). `kernels` is the
    number of functions under call counting: 0 where counters do not exist, -1 where they failed
    (`counters_error` says why). `uncounted` maps functions that cannot be counted to the reason. `banner` is
    what the backend says of itself (name, value), `objects` the shared objects of the process, as its loader
    names them.
    """

    protocol: int
    build: str
    arch: str
    variant: str
    hwcap: int
    hwcap2: int
    features: frozenset[str]
    vector_bits: int
    streaming_bits: int
    fa64: bool
    sme_version: int
    kernels: int
    scores: tuple[tuple[str, int], ...] = ()
    buffer_types: tuple[str, ...] = ()
    types: tuple[TypeInfo, ...] = ()
    counters_error: str = ""
    uncounted: tuple[tuple[str, str], ...] = ()
    banner: tuple[tuple[str, str], ...] = ()
    objects: tuple[str, ...] = ()


@dataclass(frozen=True)
class Request:
    """One thing to compute; the fields are those of docs/protocol.md.

    `shape` is (m, n, k), `batch` (ne2, ne3, ne02, ne03), `experts` (total, used) or None. `row_stride` is in
    bytes, None for rows without padding. `fault` asks tierlab-harness-faulty for a deliberate fault; the
    real harness refuses it.
    """

    cell: int
    op: str
    weight_type: str
    shape: tuple[int, int, int]
    activation_type: str = "f32"
    batch: tuple[int, int, int, int] = (1, 1, 1, 1)
    experts: tuple[int, int] | None = None
    path: str = "default"
    threads: int = 1
    repeat: int = 1
    weights: Span | None = None
    activations: Span | None = None
    ids: Span | None = None
    output: Span | None = None
    row_stride: int | None = None
    fault: str = ""


@dataclass(frozen=True)
class Answer:
    """What the harness says of one request.

    `status` is `ok`, `unclaimed` or `error` (then `message` says why). `ran` maps kernel symbols to exact
    numbers of calls. `guard` is empty, or names an overwritten canary: `write output +4`. `unwritten` counts
    output elements that still hold the sentinel, `unstable` those that differ between repetitions.
    `kernel_ns` is time inside the computation: a share of wall time, never a speed.
    """

    cell: int
    status: str
    claimed: bool = False
    message: str = ""
    ran: dict[str, int] = field(default_factory=dict)
    unwritten: int = 0
    unstable: int = 0
    guard: str = ""
    kernel_ns: int = 0


@dataclass(frozen=True)
class Crash:
    """The harness died while it worked on `request`.

    `returncode` is 128 + signal after a death by signal. `symbol`, `offset`, `instruction` and `address` come
    from its own last words and are empty or None where it left none; so does `signal`, which is that of the
    return code then. `guard` is not empty if it died of an access to a guard page: `read activations +0`.
    `stderr` is the end of what it said. `unanswered` are the requests behind this one: they never ran.
    """

    request: Request
    returncode: int
    signal: int | None = None
    symbol: str = ""
    offset: int = 0
    instruction: int | None = None
    address: int | None = None
    guard: str = ""
    stderr: str = ""
    unanswered: tuple[Request, ...] = ()


@dataclass(frozen=True)
class Timeout:
    """No answer to `request` within `seconds`; the harness was killed. `unanswered` as in Crash."""

    request: Request
    seconds: float
    stderr: str = ""
    unanswered: tuple[Request, ...] = ()


Outcome = Answer | Crash | Timeout
