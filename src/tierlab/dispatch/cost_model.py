# SPDX-License-Identifier: MIT
"""Cycles of a loop by llvm-mca's model of a core: what goes in, and what comes out.

A static model, no measurement: every load hits the first cache, every branch is predicted, and loads do not
wait for stores. One iteration of a block loop, inner loops unrolled as often as they run, is a region; its
cycles are the difference between a long and a short run of it, so that filling and draining cancel out.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tierlab.errors import TierlabError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tierlab.dispatch.a64_text import Instruction

SHORT, LONG = 6, 18
"""Iterations of the two runs. A region of a kernel has 30 to 2,500 instructions, more than a core looks ahead
within six iterations."""

_SYMBOL = re.compile(r"\s*<[^>]*>")
_ANNOTATION = re.compile(r"# LLVM-MCA-(BEGIN|END)")


class ModelError(TierlabError):
    """llvm-mca did not answer as expected."""


@dataclass(frozen=True)
class Cycles:
    """Of one iteration: `cycles` as simulated, `bound` what the busiest unit needs, `uops` all operations."""

    cycles: float
    bound: float
    instructions: int
    uops: float


def program_text(regions: Mapping[str, Iterable[Instruction]]) -> str:
    """Assembly with one region for each name, as `llvm-mca` reads it."""
    lines = []
    for name, code in regions.items():
        lines.append(f"# LLVM-MCA-BEGIN {name}")
        lines += [plain(item) for item in code]
        lines.append(f"# LLVM-MCA-END {name}")
    return "\n".join([*lines, ""])


def plain(item: Instruction) -> str:
    """The instruction without addresses: where a branch goes costs nothing, and here may be out of reach."""
    operands = list(item.operands)
    if operands and item.target is not None:
        operands[-1] = "#8"
    elif item.name in ("adr", "adrp"):
        operands[-1] = "#0"
    elif operands:
        operands = [_SYMBOL.sub("", operand) for operand in operands]
    return f"\t{item.name}\t{', '.join(operands)}".rstrip()


def command(tool: str, cpu: str, iterations: int, file: str) -> list[str]:
    """How to ask for `iterations` of every region of `file` on a core."""
    return [
        *(tool, "-mtriple=aarch64-linux-gnu", f"-mcpu={cpu}", f"-iterations={iterations}", "-json"),
        *("-instruction-info=false", "-resource-pressure=false", "-summary-view=true", file),
    ]


def cycles(short: str, long: str) -> dict[str, Cycles]:
    """Region → cycles of one iteration, from the answers to a run of SHORT and one of LONG iterations."""
    first, second = _summaries(short), _summaries(long)
    if first.keys() != second.keys():
        asked = f"{', '.join(first)}, then for {', '.join(second)}"
        msg = f"llvm-mca answers for {asked}; there is no cost to report"
        raise ModelError(msg)
    return {name: _difference(name, first[name], second[name]) for name in first}


def _difference(name: str, short: dict[str, Any], long: dict[str, Any]) -> Cycles:
    iterations = long["Iterations"] - short["Iterations"]
    if iterations <= 0 or long["Instructions"] % long["Iterations"]:
        msg = f"llvm-mca's answer for {name} is not of the form that is read here; there is no cost to report"
        raise ModelError(msg)
    return Cycles(
        cycles=(long["TotalCycles"] - short["TotalCycles"]) / iterations,
        bound=long["BlockRThroughput"],
        instructions=long["Instructions"] // long["Iterations"],
        uops=(long["TotaluOps"] - short["TotaluOps"]) / iterations,
    )


def _summaries(text: str) -> dict[str, dict[str, Any]]:
    """Region → its summary. Warnings may stand before the JSON value."""
    try:
        value = json.loads(text[text.index("{\n") :])
        return {region["Name"]: region["SummaryView"] for region in value["CodeRegions"]}
    except (ValueError, KeyError, TypeError) as error:
        said = " ".join(text.split())[:300]
        msg = f"llvm-mca's answer cannot be read ({error}); there is no cost to report. It said: {said}"
        raise ModelError(msg) from error
