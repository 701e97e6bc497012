# SPDX-License-Identifier: MIT
"""`--require`: a sentence about a file's contents that is true or false, `ffn>=90% iq4_xs`."""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tierlab.cells.positions import nearest
from tierlab.errors import UsageError
from tierlab.gguf.roles import ATTENTION, EMBEDDING, EXPERTS, FFN, NORMS, OTHER, ROLES, multiplied, role
from tierlab.gguf.types import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Callable

    from tierlab.gguf.census import Census
    from tierlab.gguf.header import Tensor

SCOPES: dict[str, tuple[str, ...]] = {
    "all": ROLES,
    "attention": (ATTENTION,),
    "ffn": (FFN, EXPERTS),
    "experts": (EXPERTS,),
    "embedding": (EMBEDDING,),
    "norms": (NORMS,),
    "other": (OTHER,),
    "matmul": (),
}
"""Scope → roles. `ffn` is the feed-forward part of a layer, dense or by expert. `matmul` is every tensor that
a matmul takes, the embedding too if it is tied."""

GRAMMAR = "SCOPE OP SHARE% TYPE[|TYPE…], like 'ffn>=90% iq4_xs' or 'matmul = 100% q4_0|q8_0'"
_SENTENCE = re.compile(
    r"\s*(?P<scope>[A-Za-z]+)\s*(?P<op>>=|<=|=|>|<)\s*(?P<share>[0-9]+(?:\.[0-9]+)?)\s*%\s*"
    r"(?P<types>[A-Za-z0-9_]+(?:\s*\|\s*[A-Za-z0-9_]+)*)\s*"
)
_COMPARE: dict[str, Callable[[int, int], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "=": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}


@dataclass(frozen=True)
class Requirement:
    """`share` is in millionths: shares are compared as whole numbers, so 90 % is exactly 90 %."""

    text: str
    scope: str
    op: str
    millionths: int
    types: tuple[str, ...]


@dataclass(frozen=True)
class Answer:
    """Bytes of the required types and of the scope. `met` is False for a scope without bytes."""

    requirement: Requirement
    nbytes: int
    total: int
    met: bool


def parse_requirement(text: str) -> Requirement:
    """Read one sentence; UsageError says what is wrong with it."""
    found = _SENTENCE.fullmatch(text)
    if found is None:
        msg = f"--require {text!r} is not understood; nothing was judged. Write {GRAMMAR}"
        raise UsageError(msg)
    scope = found["scope"].lower()
    if scope not in SCOPES:
        msg = f"--require {text!r}: unknown scope {scope!r}; nothing was judged: {nearest(scope, SCOPES)}"
        raise UsageError(msg)
    types = tuple(part.strip().lower() for part in found["types"].split("|"))
    for kind in types:
        if kind not in BY_NAME:
            msg = f"--require {text!r}: unknown type {kind!r}; nothing was judged: {nearest(kind, BY_NAME)}"
            raise UsageError(msg)
    return Requirement(text.strip(), scope, found["op"], _millionths(text, found["share"]), types)


def _millionths(text: str, share: str) -> int:
    whole, _, fraction = share.partition(".")
    millionths = int(whole[:9]) * 10_000 + int(fraction.ljust(4, "0")[:4])
    if len(fraction) > 4 or millionths > 1_000_000:
        msg = f"--require {text!r}: {share} is no share; nothing was judged. Write 0 to 100, at most four "
        raise UsageError(msg + "digits after the point")
    return millionths


def judge(requirement: Requirement, found: Census) -> Answer:
    """Whether the census meets the requirement, by bytes."""
    inside = [tensor for tensor in found.model.tensors if _in_scope(tensor, requirement.scope, found.tied)]
    total = sum(tensor.nbytes for tensor in inside)
    nbytes = sum(tensor.nbytes for tensor in inside if tensor.type.name in requirement.types)
    met = total > 0 and _COMPARE[requirement.op](nbytes * 1_000_000, requirement.millionths * total)
    return Answer(requirement, nbytes, total, met)


def _in_scope(tensor: Tensor, scope: str, is_tied: bool) -> bool:
    return multiplied(tensor, is_tied) if scope == "matmul" else role(tensor) in SCOPES[scope]
