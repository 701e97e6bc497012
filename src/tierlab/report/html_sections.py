# SPDX-License-Identifier: MIT
"""The parts of the page that need no script: what went wrong, what was declared or left out, provenance."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from tierlab.judge.verdict import Verdict
from tierlab.report import text
from tierlab.report.faults import Outcome, thread_groups
from tierlab.report.model import reproducer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tierlab.report.faults import FaultGroup
    from tierlab.report.model import Summary

OPEN, LISTED = 4, 200
"""Groups of faults shown at once, and behind a fold; the cell list holds all."""


def safe(value: object) -> str:
    return escape(text.clean(str(value)))


def facts(summary: Summary) -> str:
    """The line of facts under the headline."""
    info = summary.info
    entries = {
        "seed": info.seed,
        "preset": " ".join([info.preset, *info.selection]).strip(),
        "tierlab": f"{info.version} {info.commit[:12]}{' (changed)' if info.dirty else ''}".strip(),
        "engine": info.engine,
        **{build.name: f"{build.source} {short(build.digest)}".strip() for build in info.builds},
        "started": info.started,
        "finished": info.finished or "not finished",
    }
    return "".join(
        f"<div><dt>{safe(name)}</dt><dd>{safe(value)}</dd></div>" for name, value in entries.items() if value
    )


def short(digest: str) -> str:
    """The first twelve digits of a digest, without the name of its algorithm."""
    return digest.removeprefix("sha256:")[:12]


def fault_section(summary: Summary) -> str:
    """What is not as expected and what got no answer, one entry a group of like cells."""
    groups = summary.of(Outcome.UNEXPECTED, Outcome.CURED, Outcome.UNDETERMINED)
    alerts = "".join(f'<p class="alert">{safe(line)}</p>' for line in caveats(summary))
    if not groups:
        return alerts
    shown = "".join(_fault(group, summary) for group in groups[:OPEN])
    folded = "".join(_fault(group, summary) for group in groups[OPEN:LISTED])
    if folded:
        more = len(groups) - OPEN
        left = f"<p>{len(groups) - LISTED} more: see report.json.</p>" if len(groups) > LISTED else ""
        noun = "group" if more == 1 else "groups"
        folded = f"<details><summary>{text.count(more)} more {noun}</summary>{folded}{left}</details>"
    note = f"<small>{text.plural(len(groups), 'group')} of like cells, worst first</small>"
    title = f'<div class="bar"><h2>Not as expected{note}</h2></div>'
    return f'{alerts}<section class="faults">{title}{shown}{folded}</section>'


def caveats(summary: Summary) -> list[str]:
    lines = list(summary.info.notes)
    if summary.info.missing_shards:
        lines.append(f"Missing shards: {', '.join(map(str, summary.info.missing_shards))}.")
    if summary.torn:
        lines.append(f"{text.plural(len(summary.torn), 'line')} of results cut short by a crash.")
    return lines


def _fault(group: FaultGroup, summary: Summary) -> str:
    one = group.example
    tone = "v-open" if one.undetermined else "v-bad"
    what = one.detail
    if one.verdict is Verdict.PASS:
        what = f"passes, but is declared {one.expected.value}: {one.reason}"
    profiles = ", ".join(group.profiles[:5]) + (" …" if len(group.profiles) > 5 else "")
    worst = f" · worst share {text.share(one.share)}" if one.share == one.share else ""
    ran = ", ".join(f"{symbol} × {calls}" for symbol, calls in sorted(one.ran.items())[:4])
    command = safe(reproducer(one, summary.info))
    where = f"{text.plural(len(group.records), 'cell')} on {safe(profiles)}{worst}"
    calls = f' <span class="where">ran {safe(ran)}</span>' if ran else ""
    lines = [
        f'<p><b>{safe(group.title)}</b> <span class="where">{where}</span></p>',
        f"<p>{safe(text.one_line(what, 500))}{calls}</p>",
        f'<p class="run"><code>{command}</code>',
        f'<button type="button" class="copy" data-copy="{command}">Copy</button></p>',
    ]
    return f'<div class="fault"><p class="v {tone}">{one.verdict.value}</p><div>{"".join(lines)}</div></div>'


def plain_table(head: Sequence[str], rows: Iterable[Sequence[str]], kinds: Sequence[str]) -> str:
    """A table of escaped texts; `kinds` are the columns' classes (`num`, `mono` or empty)."""
    top = "".join(
        f'<th scope="col" class="{k}">{safe(name)}</th>' for name, k in zip(head, kinds, strict=True)
    )
    body = "".join(
        "<tr>" + "".join(f'<td class="{k}">{safe(v)}</td>' for v, k in zip(row, kinds, strict=True)) + "</tr>"
        for row in rows
    )
    table = f'<table class="plain"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>'
    return f'<div class="scroll">{table}</div>'


def fold(title: str, note: str, body: str) -> str:
    head = f"<summary><h2>{safe(title)}<small>{safe(note)}</small></h2></summary>"
    return f"<details>{head}{body}</details>"


def sections(summary: Summary) -> str:
    """Everything below the cells."""
    parts = [_declared(summary), _threads(summary), _exclusions(summary), _lanes(summary)]
    parts += [_profiles(summary), _provenance(summary)]
    return "\n".join(part for part in parts if part)


def _declared(summary: Summary) -> str:
    groups = summary.of(Outcome.DECLARED)
    if not groups:
        return ""
    rows = [
        (
            one.verdict.value,
            one.suite,
            one.type,
            one.path,
            one.build,
            text.count(len(group.records)),
            one.reason,
        )
        for group in groups
        for one in [group.example]
    ]
    head = ("verdict", "suite", "type", "path", "build", "cells", "reason")
    table = plain_table(head, rows, ("", "mono", "mono", "mono", "mono", "num", ""))
    cells = text.plural(summary.total.outcomes[Outcome.DECLARED], "cell")
    return fold("Faulty as declared", f"{cells}, each with its reason in the matrix", table)


def _threads(summary: Summary) -> str:
    found = summary.thread_dependence
    if not found:
        return ""
    rows = [
        (
            group.where,
            text.count(len(group.members)),
            ", ".join(map(str, group.threads)),
            group.declared or "none declared",
            group.members[0].cell,
        )
        for group in thread_groups(found)
    ]
    head = ("where", "problems", "threads", "declared reason", "for example")
    table = plain_table(head, rows, ("mono", "num", "num", "", "mono"))
    note = f"{text.plural(len(found), 'problem')} on one profile each; digests in report.json"
    return fold("Output bytes that depend on the thread count", note, table)


def _exclusions(summary: Summary) -> str:
    if not summary.info.exclusions:
        return ""
    rows = [(text.count(entry.count), entry.rule, entry.reason) for entry in summary.info.exclusions]
    table = plain_table(("cells", "rule", "reason"), rows, ("num", "mono", ""))
    return fold("Excluded", f"{text.plural(summary.excluded, 'cell')}, not run and not counted above", table)


def _lanes(summary: Summary) -> str:
    if not summary.lanes:
        return ""
    rows = [
        (
            lane.lane,
            text.count(lane.executed),
            text.duration(lane.wall_ms),
            _inside(lane.wall_ms, lane.kernel_ms),
        )
        for lane in summary.lanes[:LISTED]
    ]
    head = ("lane", "cells", "wall time", "inside emulated kernels")
    return fold("Cost by lane", text.NO_SPEED, plain_table(head, rows, ("mono", "num", "num", "num")))


def _inside(wall_ms: float, kernel_ms: float) -> str:
    return f"{kernel_ms / wall_ms * 100:.0f} %" if wall_ms > 0 else "–"


def _profiles(summary: Summary) -> str:
    rows = [
        (
            profile.name,
            f"{profile.emulator} -cpu {profile.cpu}",
            " ".join(profile.features),
            str(profile.vector_bits or "–"),
            str(profile.streaming_bits or "–"),
            profile.hello.get("variant", "no answer"),
            ", ".join(profile.products),
        )
        for profile in summary.info.profiles
    ]
    head = (
        "profile",
        "emulator",
        "promised",
        "VL bits",
        "SVL bits",
        "variant loaded",
        "stands for",
    )
    table = plain_table(head, rows, ("mono", "mono", "mono", "num", "num", "mono", ""))
    return fold("Profiles", text.plural(len(rows), "emulated CPU"), table) if rows else ""


def _provenance(summary: Summary) -> str:
    info = summary.info
    rows = [
        ("run", info.run_id),
        ("command", info.command),
        ("tierlab", f"{info.version} commit {info.commit}{' with local changes' if info.dirty else ''}"),
        ("seed", str(info.seed)),
        ("engine", f"{info.engine} {info.engine_identity}"),
        *((f"emulator {name}", value) for name, value in info.emulators.items()),
    ]
    for build in info.builds:
        rows.append((f"build {build.name}", f"{build.source} {build.mode} {build.digest}"))
        rows.append((f"build {build.name}, flags", " ".join(build.flags)))
        rows.append((f"build {build.name}, patches", ", ".join(build.patches)))
        rows.append((f"build {build.name}, error", build.error))
    rows += [(f"host {name}", value) for name, value in info.host.items()]
    rows.append(("merged from", ", ".join(info.merged_from)))
    table = plain_table(("what", "value"), [row for row in rows if row[1].strip()], ("", "mono"))
    return fold("Provenance", "what is needed to run it again", table)
