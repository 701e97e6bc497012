# SPDX-License-Identifier: MIT
"""`invoke image`, `build`, `doctor`, `clean`."""

from __future__ import annotations

import difflib
import shutil
from typing import TYPE_CHECKING

from tierlab.cli.checks import project_root
from tierlab.cli.options import tree_path
from tierlab.errors import ExitCode, UsageError
from tierlab.run.prepare import make_builds
from tierlab.toolchain.cache import cache_root, remove_tree, tree_bytes
from tierlab.toolchain.choose import choose_engine, remove_images
from tierlab.toolchain.doctor import can_work, examine

if TYPE_CHECKING:
    from pathlib import Path

    from tierlab.cells.builds import BuildWish

BUILDS = ("stock", "patched", "user", "sdist")
CACHES = {
    "builds": ("builds", "binaries", "digests", "locks", "ccache"),
    "verdicts": ("verdicts", "problems", "hellos"),
    "reports": (),
    "all": (),
}


def image(engine: str) -> ExitCode:
    """Make the toolchain image; print its identity and the versions that matter."""
    chosen = choose_engine(engine or None, _say)
    chosen.prepare()
    print(f"toolchain image ({chosen.name}): {chosen.identity()}")
    for name, version in chosen.manifest().items():
        if name.startswith(("qemu-user", "g++-aarch64", "gcc-14-aarch64", "libkleidiai", "binutils-aarch64")):
            print(f"  {name} {version}")
    return ExitCode.AS_EXPECTED


def build(wish: BuildWish, llama_cpp: str, engine: str) -> ExitCode:
    """Build; print where the results lie."""
    wanted = wish.builds(BUILDS, ("stock",))
    chosen = choose_engine(engine or None, _say)
    result = make_builds(chosen, wanted, tree_path(llama_cpp) if llama_cpp else None, _say)
    for name, one in {**result.builds, "reference": result.reference}.items():
        print(f"{name}: {one.directory} (log: {one.log})")
    return ExitCode.UNDETERMINED if result.unbuildable else ExitCode.AS_EXPECTED


def doctor(engine: str) -> ExitCode:
    """What is found, what is missing, what to do. Exit 2 if no engine can work."""
    if engine:
        choose_engine(engine, _say)
    findings = examine()
    for finding in findings:
        print(f"{finding.level:8} {finding.subject:16} {finding.detail}")
        if finding.remedy:
            print(f"{'':8} {'':16} → {finding.remedy}")
    return ExitCode.AS_EXPECTED if can_work(findings) else ExitCode.UNDETERMINED


def clean(what: str) -> ExitCode:
    """Delete what is named; say how much it was."""
    if what not in CACHES:
        near = difflib.get_close_matches(what, CACHES, 1) or ["builds"]
        have = ", ".join(CACHES)
        msg = f"--what {what!r} is unknown; nothing was deleted. Did you mean {near[0]!r}? There are {have}"
        raise UsageError(msg)
    if what == "all":
        remove_images(_say)
        _remove(cache_root())
    for name in CACHES[what]:
        _remove(cache_root() / name)
    if what in ("reports", "all"):
        for run in sorted((project_root() / "reports").glob("2*")):
            _remove(run)
        (project_root() / "reports" / "latest").unlink(missing_ok=True)
    return ExitCode.AS_EXPECTED


def _remove(path: Path) -> None:
    if not path.exists():
        return
    size = tree_bytes(path)
    remove_tree(path)
    shutil.rmtree(path, ignore_errors=True)
    print(f"deleted {path} ({size / 2**20:.0f} MiB)")


def _say(line: str) -> None:
    print(line, flush=True)
