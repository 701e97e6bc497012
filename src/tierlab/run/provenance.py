# SPDX-License-Identifier: MIT
"""The provenance of a run: versions, digests, flags, commit, seed, host."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import gguf  # noqa: F401 (its version is reported)
import numpy as np

import tierlab
from tierlab.cells.load import load_matrix
from tierlab.cells.model import LaneKey
from tierlab.run.keys import canonical, digest_of, lane_parts, rules_digest
from tierlab.run.record import BuildInfo, Exclusion, ProfileInfo, RunInfo
from tierlab.run.store import now
from tierlab.toolchain.cache import cache_root

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tierlab.cells import matrix as cells_matrix
    from tierlab.cells.matrix import Matrix
    from tierlab.cells.model import Cell, Profile
    from tierlab.harness.messages import Hello
    from tierlab.run.plan import Plan
    from tierlab.toolchain.build import Build
    from tierlab.toolchain.engine import Engine
    from tierlab.toolchain.sources import Tree

EMULATOR_PACKAGES = "qemu-user"


def run_info(
    plan: Plan,
    trees: Mapping[str, Tree],
    matrix: Matrix,
    engine: Engine,
    cells: Sequence[Cell],
    left_out: Sequence[tuple[cells_matrix.Exclusion, Cell]],
    *,
    command: str,
) -> RunInfo:
    """Everything that is known before the first cell runs."""
    commit, dirty = commit_of(Path(tierlab.__file__).resolve().parents[2])
    packages = engine.manifest()
    counted = Counter((item.selector.line, item.reason) for item, _ in left_out)
    selection = plan.selection
    axes = {name: values for name, values in canonical(selection).items() if name not in ("preset", "shard")}
    words = [f"{name} {' '.join(values)}" for name, values in axes.items() if values]
    return RunInfo(
        run_id=plan.run_dir.name,
        seed=plan.seed,
        asked=len(cells),
        started=now(),
        version=tierlab.__version__,
        commit=commit,
        dirty=dirty,
        preset=selection.preset,
        selection=tuple(words),
        command=command,
        engine=plan.engine,
        engine_identity=plan.engine_identity,
        emulators={name: version for name, version in packages.items() if EMULATOR_PACKAGES in name},
        builds=tuple(
            _build_info(name, build, trees[name])
            for name, build in [*plan.builds.items(), ("reference", plan.reference)]
        )
        + tuple(
            BuildInfo(
                name=name, digest="", source=trees[name].origin, path=_user_path(trees[name]), error=error
            )
            for name, error in plan.unbuildable.items()
        ),
        profiles=tuple(
            _profile_info(matrix.profiles[name]) for name in dict.fromkeys(c.profile for c in cells)
        ),
        host=host_facts(),
        exclusions=tuple(
            Exclusion(rule=f"{matrix.path.name}:{line}" if line else "builds", reason=reason, count=count)
            for (line, reason), count in counted.items()
        ),
        notes=tuple(note for build in plan.builds.values() for note in build.notes),
        shard=selection.shard if selection.shard != (1, 1) else None,
    )


def _user_path(tree: Tree) -> str:
    return str(tree.root) if tree.mutable else ""


def _build_info(name: str, build: Build, tree: Tree) -> BuildInfo:
    return BuildInfo(
        name=name,
        digest=build.binaries,
        mode=build.mode,
        flags=build.flags,
        source=tree.origin,
        path=_user_path(tree),
        patches=tree.patches,
    )


def _profile_info(profile: Profile) -> ProfileInfo:
    return ProfileInfo(
        name=profile.name,
        emulator=profile.emulator,
        cpu=profile.cpu,
        features=tuple(sorted(profile.features)),
        vector_bits=profile.vector_bits,
        streaming_bits=profile.streaming_bits,
        products=profile.products,
        note=profile.note,
    )


def host_facts() -> dict[str, str]:
    return {
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "processors": str(len(os.sched_getaffinity(0))),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def commit_of(root: Path) -> tuple[str, bool]:
    """Commit of the checkout, and whether it has uncommitted changes; empty without git."""

    def git(*arguments: str) -> str:
        try:
            done = subprocess.run(
                ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False, timeout=10
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return done.stdout.strip() if done.returncode == 0 else ""

    commit = git("rev-parse", "HEAD")
    return commit, bool(commit and git("status", "--porcelain", "--untracked-files=no"))


# What the emulated CPUs said of themselves: noted by the workers, read for the report ------------------


def _hello_file(key: Mapping[str, str]) -> Path:
    whole = {name: value for name, value in key.items() if name != "suite"}
    return cache_root() / "hellos" / f"{digest_of(whole)}.json"


def note_hello(key: Mapping[str, str], hello: Hello) -> None:
    """Keep a hello beside the verdict cache, so that a run of cached verdicts can show it too."""
    left_out = ("types", "uncounted", "banner", "objects")
    shown = {name: value for name, value in canonical(hello).items() if name not in left_out}
    path = _hello_file(key)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps({name: _shown(value) for name, value in shown.items()}))
        draft.replace(path)
    except OSError:
        return  # it is shown, nothing rests on it


def with_hellos(info: RunInfo, plan: Plan) -> RunInfo:
    """`info` with what each profile's CPU said, where it said anything."""
    matrix = load_matrix(plan.matrix_file)
    rules = rules_digest(matrix)
    build, files = next(((name, dict(made.file_digests)) for name, made in plan.builds.items()), ("", {}))
    profiles = []
    for profile in info.profiles:
        hello: dict[str, str] = {}
        try:
            lane = LaneKey(build, profile.name, "")
            key = lane_parts(plan, matrix.profiles[profile.name], lane, rules, files)
            hello = json.loads(_hello_file(key).read_text())
        except (OSError, ValueError, KeyError):
            hello = {}
        profiles.append(replace(profile, hello=hello))
    return replace(info, profiles=tuple(profiles))


def _shown(value: object) -> str:
    if isinstance(value, list):
        return " ".join(" ".join(map(str, item)) if isinstance(item, list) else str(item) for item in value)
    return str(value)
