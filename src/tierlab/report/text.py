# SPDX-License-Identifier: MIT
"""Words and numbers as every report prints them."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from tierlab.errors import ExitCode
from tierlab.report.faults import Outcome

if TYPE_CHECKING:
    from tierlab.report.model import Summary

NO_SPEED = "Times are what the run cost under emulation; no time taken under emulation is a speed."

# What XML 1.0 cannot carry and what a terminal would obey: C0 and C1 controls, surrogates, non-characters.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def clean(text: str) -> str:
    """Text without control characters and lone surrogates: each becomes U+FFFD."""
    return _UNPRINTABLE.sub("\ufffd", text)


def one_line(text: str, width: int = 240) -> str:
    """Cleaned text on one line, cut at `width`."""
    joined = " ".join(clean(text).split())
    return joined if len(joined) <= width else joined[: width - 1] + "…"


def share(value: float) -> str:
    """A share of the budget: `42 %`; beyond the bound as a multiple, `3.1e+04 ×`; `–` if not computed."""
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞"
    if value > 1:
        return f"{value:.2g} ×" if value < 10 or value >= 1000 else f"{value:.0f} ×"
    if value == 1:
        return "100 %"
    # 99.96 % must not round up to the bound itself.
    return f"{min(value * 100, 99.9):.1f} %" if 0.99 <= value < 1 else f"{value * 100:.2g} %"


def figure(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.3g}"


def count(number: int) -> str:
    return f"{number:,}".replace(",", "\u202f")


def plural(number: int, noun: str) -> str:
    return f"{count(number)} {noun}" + ("" if number == 1 else "s")


def duration(milliseconds: float) -> str:
    seconds = milliseconds / 1000
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def headline(summary: Summary) -> str:
    """What the run says, in a few words; the exit code in prose."""
    found = summary.total.outcomes
    if summary.exit_code is ExitCode.UNEXPECTED:
        parts = []
        if found[Outcome.UNEXPECTED]:
            parts.append(f"{plural(found[Outcome.UNEXPECTED], 'cell')} not as expected")
        if found[Outcome.CURED]:
            parts.append(f"{plural(found[Outcome.CURED], 'declared fault')} gone")
        if summary.moved:
            parts.append(f"{plural(summary.moved, 'control')} moved")
        return ", ".join(parts)
    if not summary.total.cells:
        return "Nothing was tested"
    if summary.exit_code is ExitCode.UNDETERMINED:
        open_cells = found[Outcome.UNDETERMINED] + summary.unnamed
        if not open_cells and not summary.info.missing_shards:
            return "Every cell as expected, but nothing was compared"
        if not open_cells:
            return f"{plural(len(summary.info.missing_shards), 'shard')} missing"
        return f"{plural(open_cells, 'cell')} without an answer"
    return "Every cell as expected"


def counts(summary: Summary) -> str:
    """One line of counts: what was asked for, what came of it, what was left out."""
    found = summary.total.outcomes
    parts = [
        f"{plural(summary.total.cells + summary.unnamed, 'cell')} "
        f"on {plural(len(summary.profiles), 'profile')}",
        f"{count(found[Outcome.PASS])} pass",
    ]
    if found[Outcome.DECLARED]:
        parts.append(f"{count(found[Outcome.DECLARED])} faulty as declared")
    parts += [f"{count(number)} {verdict}" for verdict, number in sorted(summary.total.unexpected.items())]
    if found[Outcome.CURED]:
        parts.append(f"{count(found[Outcome.CURED])} pass against their declaration")
    if summary.unnamed:
        parts.append(f"{count(summary.unnamed)} never started")
    if summary.excluded:
        parts.append(f"{count(summary.excluded)} excluded")
    return " · ".join(parts)


def cost(summary: Summary) -> str:
    """What the run cost: cells executed, cells from the cache, the time that answers took in all lanes."""
    parts = [f"{plural(summary.executed, 'cell')} executed, {count(summary.cached)} from the verdict cache"]
    if summary.wall_ms > 0:
        inside = summary.kernel_ms / summary.wall_ms
        parts.append(
            f"{duration(summary.wall_ms)} from request to answer, "
            f"{inside * 100:.0f} % of it inside emulated kernels"
        )
    return "; ".join(parts)


def declared_for(reasons: set[str]) -> str:
    return "; ".join(sorted(one_line(reason) for reason in reasons if reason)) or "no reason given"
