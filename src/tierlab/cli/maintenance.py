# SPDX-License-Identifier: MIT
"""`invoke image`, `build`, `doctor`, `clean`."""

from __future__ import annotations

import difflib
import shutil
from typing import TYPE_CHECKING

from tierlab.cells.builds import is_known
from tierlab.cli.checks import project_root
from tierlab.cli.options import tree_path
from tierlab.errors import ExitCode, UsageError
from tierlab.run.prepare import make_builds, tree_of
from tierlab.toolchain.builds import build_tree
from tierlab.toolchain.cache import cache_root, remove_tree, tree_bytes
from tierlab.toolchain.choose import choose_engine, remove_images
from tierlab.toolchain.doctor import can_work, examine
from tierlab.toolchain.flags import Mode, Options

if TYPE_CHECKING:
    from pathlib import Path

BUILDS = ("stock", "patched", "user")
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


def build(names: str, llama_cpp: str, engine: str, march: str) -> ExitCode:
    """Build; print where the results lie."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    wanted = wanted or (["user"] if llama_cpp else ["stock"])
    for name in wanted:
        if not is_known(name, BUILDS):
            near = difflib.get_close_matches(name, BUILDS, 1) or ["stock"]
            have = ", ".join(BUILDS)
            msg = f"unknown build {name!r}; nothing was built. Did you mean {near[0]!r}? There are {have}"
            raise UsageError(msg)
    if "user" in wanted and not llama_cpp:
        msg = "build 'user' needs the tree: nothing was built. Add --llama-cpp PATH"
        raise UsageError(msg)
    chosen = choose_engine(engine or None, _say)
    failed = False
    if march:
        own = tree_path(llama_cpp) if llama_cpp else None
        options = Options(mode=Mode.MARCH, march=march)
        trees = {name: tree_of(name, own, _say) for name in wanted}
        made = {name: build_tree(chosen, tree, options, say=_say) for name, tree in trees.items()}
    else:
        result = make_builds(chosen, wanted, tree_path(llama_cpp) if llama_cpp else None, _say)
        made = {**result.builds, "reference": result.reference}
        failed = bool(result.unbuildable)
    for name, one in made.items():
        print(f"{name}: {one.directory} (log: {one.log})")
    return ExitCode.UNDETERMINED if failed else ExitCode.AS_EXPECTED


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
