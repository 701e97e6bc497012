# SPDX-License-Identifier: MIT
"""Records of the wire as values and back. Pure: no socket, no clock.

Nothing here trusts the other side: whatever does not follow docs/protocol.md raises HarnessError.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from tierlab.errors import HarnessError
from tierlab.harness.messages import PROTOCOL_VERSION, Answer, Hello, Request, Span, TypeInfo

MAX_RECORD_BYTES = 1 << 20
"""Longer than any record: a hello lists some forty types, an answer the kernels that ran."""

Lines = Sequence[tuple[str, str]]
T = TypeVar("T")


class RecordReader:
    """Collects bytes from the socket and cuts them into records."""

    def __init__(self) -> None:
        self._pending = b""
        self._lines: list[tuple[str, str]] = []
        self._bytes = 0

    def feed(self, data: bytes) -> list[Lines]:
        """Take bytes as they come; return the records that are now complete (often none)."""
        records: list[Lines] = []
        *lines, self._pending = (self._pending + data).split(b"\n")
        for line in lines:
            self._bytes += len(line) + 1
            if line == b"end":
                records.append(tuple(self._lines))
                self._lines, self._bytes = [], 0
            else:
                self._lines.append(_split(line))
        if self._bytes + len(self._pending) > MAX_RECORD_BYTES:
            msg = f"a record of more than {MAX_RECORD_BYTES} bytes"
            raise _nonsense(msg)
        return records


def format_request(request: Request) -> bytes:
    """The request as the bytes of one record; keys at their default value are left out."""
    lines = [f"cell {request.cell}", f"op {request.op}", f"wtype {request.weight_type}"]
    lines.append("shape " + " ".join(map(str, request.shape)))
    if request.activation_type != "f32":
        lines.append(f"atype {request.activation_type}")
    if request.batch != (1, 1, 1, 1):
        lines.append("batch " + " ".join(map(str, request.batch)))
    if request.experts is not None:
        lines.append("experts " + " ".join(map(str, request.experts)))
    lines += [f"path {request.path}", f"threads {request.threads}"]
    if request.repeat != 1:
        lines.append(f"repeat {request.repeat}")
    if request.row_stride is not None:
        lines.append(f"row_stride {request.row_stride}")
    for key in ("weights", "activations", "ids", "output"):
        span: Span | None = getattr(request, key)
        if span is not None:
            lines.append(f"{key} {span.offset} {span.nbytes}")
    if request.fault:
        lines.append(f"fault {request.fault}")
    if any("\n" in line for line in lines):
        msg = f"a value of request {request.cell} holds a line break; it was not sent. Fix the caller"
        raise HarnessError(msg)
    return ("\n".join([*lines, "end"]) + "\n").encode("ascii")


def parse_hello(lines: Lines) -> Hello:
    """The first record of a session; HarnessError for another protocol or a missing or bad value."""
    fields = _Fields("hello", lines)
    protocol = fields.take("protocol", _integer)
    if protocol != PROTOCOL_VERSION:
        msg = (
            f"the harness speaks protocol {protocol}, the lab {PROTOCOL_VERSION}: nothing was run. "
            "Rebuild the harness with this version of the lab"
        )
        raise HarnessError(msg)
    return Hello(
        protocol=protocol,
        build=fields.take("build", str),
        arch=fields.take("arch", str),
        variant=fields.take("variant", str),
        hwcap=fields.take("hwcap", _hexadecimal),
        hwcap2=fields.take("hwcap2", _hexadecimal),
        features=frozenset(fields.take("features", str).split()),
        vector_bits=fields.take("vector_bits", _integer),
        streaming_bits=fields.take("streaming_bits", _integer),
        fa64=fields.take("fa64", _flag),
        sme_version=fields.take("sme_version", _integer),
        kernels=fields.take("kernels", _integer),
        scores=tuple(fields.take_all("score", _counted)),
        buffer_types=tuple(fields.take_all("buft", str)),
        types=tuple(fields.take_all("type", _type_info)),
        counters_error=fields.take("counters_error", str, default=""),
        uncounted=tuple(fields.take_all("uncounted", _reason)),
        banner=tuple(fields.take_all("banner", _reason)),
        objects=tuple(fields.take_all("object", str)),
    )


def parse_answer(lines: Lines) -> Answer:
    """An answer record; HarnessError for a missing or bad value."""
    fields = _Fields("answer", lines)
    status = fields.take("status", str)
    if status not in ("ok", "unclaimed", "error"):
        msg = f"status {status!r}"
        raise _nonsense(msg)
    return Answer(
        cell=fields.take("cell", _integer),
        status=status,
        claimed=fields.take("claimed", _flag, default=False),
        message=fields.take("message", str, default=""),
        ran=dict(fields.take_all("ran", _counted)),
        unwritten=fields.take("unwritten", _integer, default=0),
        unstable=fields.take("unstable", _integer, default=0),
        guard=fields.take("guard", str, default=""),
        kernel_ns=fields.take("kernel_ns", _integer, default=0),
    )


class _Fields:
    """The values of one record by key; unknown keys are none of our business."""

    def __init__(self, record: str, lines: Lines) -> None:
        self._record = record
        self._values: dict[str, list[str]] = {}
        for key, value in lines:
            self._values.setdefault(key, []).append(value)

    def take(self, key: str, convert: Callable[[str], T], default: T | None = None) -> T:
        values = self._values.get(key, [])
        if not values and default is not None:
            return default
        if len(values) != 1:
            msg = f"{len(values)} lines {key!r} in its {self._record} where one belongs"
            raise _nonsense(msg)
        return self._convert(key, values[0], convert)

    def take_all(self, key: str, convert: Callable[[str], T]) -> list[T]:
        return [self._convert(key, value, convert) for value in self._values.get(key, [])]

    def _convert(self, key: str, value: str, convert: Callable[[str], T]) -> T:
        try:
            return convert(value)
        except ValueError:
            msg = f"{value!r} as {key} of its {self._record}"
            raise _nonsense(msg) from None


def _nonsense(what: str) -> HarnessError:
    return HarnessError(
        f"the harness said {what}, which the protocol does not allow: its answers cannot be trusted. "
        "Rebuild the harness with this version of the lab"
    )


def _split(line: bytes) -> tuple[str, str]:
    try:
        key, _, value = line.decode("utf-8").partition(" ")
    except UnicodeDecodeError:
        msg = f"{line[:40]!r}"
        raise _nonsense(msg) from None
    if not key or not key.replace("_", "").isalnum() or key != key.lower():
        msg = f"{line[:40]!r}"
        raise _nonsense(msg)
    return key, value


def _integer(text: str) -> int:
    if not text.removeprefix("-").isdecimal():
        raise ValueError(text)
    return int(text)


def _hexadecimal(text: str) -> int:
    if not text.startswith("0x"):
        raise ValueError(text)
    return int(text, 16)


def _flag(text: str) -> bool:
    return {"0": False, "1": True}[text] if text in ("0", "1") else _refuse(text)


def _refuse(text: str) -> bool:
    raise ValueError(text)


def _counted(text: str) -> tuple[str, int]:
    name, blank, count = text.rpartition(" ")
    if not blank or not name:
        raise ValueError(text)
    return name, _integer(count)


def _reason(text: str) -> tuple[str, str]:
    name, _, reason = text.partition(" ")
    return name, reason


def _type_info(text: str) -> TypeInfo:
    name, number, block, nbytes, vec_dot, from_float = text.split(" ")
    return TypeInfo(
        name=name,
        number=_integer(number),
        block=_integer(block),
        nbytes=_integer(nbytes),
        vec_dot=None if vec_dot == "-" else vec_dot,
        from_float=_flag(from_float),
    )
