# SPDX-License-Identifier: MIT
"""Merging the shards of a run, made on several machines, into one run directory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tierlab.errors import StoreError
from tierlab.run.record import BuildInfo, CellRecord, Exclusion, ProfileInfo, RunInfo
from tierlab.run.store import Store, read_cells, read_records, read_run_info

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SHOWN = 20
"""Conflicts that an error message lists; the rest is counted."""


def merge(dirs: Sequence[Path], into: Path | None = None) -> Path:
    """Merge run directories into a new one under `into` (default: beside the first) and return it.

    The runs must share seed, tierlab version and build digests. The same cell may occur twice if the
    verdicts agree, or if one of them determines nothing (then the other counts). Raises StoreError
    listing every cell with two verdicts. Shards that are missing (`shard` 2 of 4 has no directory) are
    noted in `missing_shards`: their cells were never asked for, so the merged run cannot exit with 0.
    """
    if not dirs:
        msg = "nothing to merge: no run directory was named. Name the shards' directories."
        raise StoreError(msg)
    infos = [read_run_info(path) for path in dirs]
    for path, info in zip(dirs, infos, strict=True):
        _demand_same_run(dirs[0], infos[0], path, info)
    records = _union(dirs)
    cells = list(dict.fromkeys(cell for path in dirs for cell in read_cells(path)))
    with Store.create(into or dirs[0].resolve().parent) as store:
        merged = _combine(store.run_id, infos)
        if cells:
            merged = replace(merged, asked=len(cells))
            store.write_cells(cells)
        store.append_many(records.values())
        store.write_run_info(merged)
        return store.run_dir


def _demand_same_run(first_dir: Path, first: RunInfo, path: Path, info: RunInfo) -> None:
    digests = {build.name: build.digest for build in first.builds}
    names = ("seed", "version", "commit")
    differing = [name for name in names if getattr(first, name) != getattr(info, name)]
    for build in info.builds:
        if digests.get(build.name, build.digest) != build.digest:
            differing.append(f"digest of build {build.name}")
    if differing:
        msg = (
            f"{path} and {first_dir} are not parts of one run: {', '.join(differing)} differ. "
            "Merged, one page would mix two things under test. Merge shards of one run only."
        )
        raise StoreError(msg)


def _union(dirs: Sequence[Path]) -> dict[str, CellRecord]:
    merged: dict[str, CellRecord] = {}
    origin: dict[str, Path] = {}
    conflicts: list[str] = []
    for path in dirs:
        for cell, record in read_records(path).items():
            known = merged.get(cell)
            if known is None or (known.undetermined and not record.undetermined):
                merged[cell], origin[cell] = record, path
            elif record.verdict is not known.verdict and not record.undetermined:
                conflicts.append(f"  {cell}: {known.verdict} in {origin[cell]}, {record.verdict} in {path}")
    if conflicts:
        listed = "\n".join(conflicts[:SHOWN])
        more = f"\n  and {len(conflicts) - SHOWN} more" if len(conflicts) > SHOWN else ""
        msg = (
            f"{len(conflicts)} cells have two verdicts:\n{listed}{more}\n"
            "Nothing was merged: the same cell must give the same verdict. Rerun these cells in both places."
        )
        raise StoreError(msg)
    return merged


def _combine(run_id: str, infos: Sequence[RunInfo]) -> RunInfo:
    builds: dict[str, BuildInfo] = {}
    profiles: dict[str, ProfileInfo] = {}
    for info in infos:
        builds |= {build.name: build for build in info.builds if build.name not in builds}
        for profile in info.profiles:
            # The shard whose probe answered knows more than one that never started the profile.
            if profile.name not in profiles or profile.hello:
                profiles[profile.name] = profile
    ends = [info.finished for info in infos if info.finished is not None]
    return replace(
        infos[0],
        run_id=run_id,
        asked=sum(info.asked for info in infos),
        started=min(info.started for info in infos),
        finished=max(ends) if len(ends) == len(infos) else None,
        exit_code=_worst([info.exit_code for info in infos]),
        dirty=any(info.dirty for info in infos),
        emulators={name: text for info in infos for name, text in info.emulators.items()},
        builds=tuple(builds.values()),
        profiles=tuple(profiles.values()),
        exclusions=_exclusions(infos),
        notes=tuple(dict.fromkeys(note for info in infos for note in info.notes)),
        shard=None,
        missing_shards=_missing(infos),
        merged_from=tuple(info.run_id for info in infos),
    )


def _worst(codes: Sequence[int | None]) -> int | None:
    """1 (a fault was seen) outweighs every other code; an unfinished shard leaves the run unfinished."""
    known = [code for code in codes if code is not None]
    if len(known) < len(codes):
        return None
    return 1 if 1 in known else max(known)


def _exclusions(infos: Sequence[RunInfo]) -> tuple[Exclusion, ...]:
    """Shards split the selection after the exclusions (equal lists), or before (lists to add up)."""
    if all(info.exclusions == infos[0].exclusions for info in infos):
        return infos[0].exclusions
    counts: dict[tuple[str, str], int] = {}
    for info in infos:
        for entry in info.exclusions:
            key = (entry.rule, entry.reason)
            counts[key] = counts.get(key, 0) + entry.count
    return tuple(Exclusion(rule, reason, count) for (rule, reason), count in counts.items())


def _missing(infos: Sequence[RunInfo]) -> tuple[int, ...]:
    shards = [info.shard for info in infos if info.shard is not None]
    count = max((shard[1] for shard in shards), default=0)
    have = {shard[0] for shard in shards}
    gone = {number for info in infos for number in info.missing_shards} - have
    return tuple(sorted((set(range(1, count + 1)) - have) | gone))
