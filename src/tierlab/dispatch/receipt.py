# SPDX-License-Identifier: MIT
"""The receipt of a cell: what really ran."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from tierlab.dispatch.expected import ran_expected
from tierlab.errors import HarnessError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Counting(Protocol):
    """What a session's hello says of the call counters."""

    @property
    def arch(self) -> str: ...

    @property
    def kernels(self) -> int: ...

    @property
    def counters_error(self) -> str: ...


def check_counters(hello: Counting) -> None:
    """Raise HarnessError if an AArch64 session cannot count calls: no cell of it could be proven."""
    if hello.arch == "aarch64" and hello.kernels <= 0:
        why = hello.counters_error or "it was built without counters"
        msg = (
            f"the harness counts no kernel calls ({why}), so nothing would show which kernel ran; the lane "
            "ends. Build with TIERLAB_COUNTERS=ON and symbols that are not stripped"
        )
        raise HarnessError(msg)


@dataclass(frozen=True)
class Receipt:
    """Kernel functions that ran during a cell and how often (exact calls, all threads together).

    `kernels` is the number of functions under counting, from the session's hello; with 0 the counters are
    off (not AArch64) and `ran` says nothing.
    """

    kernels: int
    ran: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        if self.kernels < 0 or (self.ran and not self.kernels):
            msg = (
                f"a receipt of {len(self.ran)} kernels with {self.kernels} under counting is no proof "
                "of anything; the session ends. Read the harness's counters_error"
            )
            raise HarnessError(msg)

    @property
    def counting(self) -> bool:
        """Whether the counters are on."""
        return self.kernels > 0

    def calls(self, patterns: Iterable[str]) -> int:
        """Calls of the kernels that the patterns name."""
        return ran_expected(patterns, self.ran)

    @classmethod
    def parse(cls, kernels: int, lines: Iterable[str]) -> Receipt:
        """From the answer's `ran` values, `SYMBOL CALLS` each; HarnessError for anything else."""
        ran: dict[str, int] = {}
        for line in lines:
            name, _, calls = line.rpartition(" ")
            if not name or not calls.isdecimal() or int(calls) == 0 or name in ran:
                msg = f"the harness answered `ran {line}`, which is no symbol with a count; the session ends"
                raise HarnessError(msg)
            ran[name] = int(calls)
        return cls(kernels, MappingProxyType(ran))
