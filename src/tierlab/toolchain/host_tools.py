# SPDX-License-Identifier: MIT
"""Programs of the host that the rootfs engine needs: found, installed, or asked for by exact command."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tierlab.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tierlab.toolchain.engine import Say

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
"""Without it a host that is not Debian cannot check Debian's signatures."""


@dataclass(frozen=True)
class HostTool:
    """A program (or file) of the host and the Debian package that brings it."""

    name: str
    package: str
    purpose: str

    def found(self) -> bool:
        return Path(self.name).exists() if self.name.startswith("/") else shutil.which(self.name) is not None


BUBBLEWRAP = HostTool("bwrap", "bubblewrap", "enters the toolchain's tree")
MMDEBSTRAP = HostTool("mmdebstrap", "mmdebstrap", "makes the toolchain's tree")
UIDMAP = HostTool("newuidmap", "uidmap", "lets an ordinary user make the tree")
TAR = HostTool("tar", "tar", "unpacks the tree")
ARCHIVE_KEYS = HostTool(str(KEYRING), "debian-archive-keyring", "checks Debian's signatures")

TO_MAKE_TREE = (MMDEBSTRAP, TAR, ARCHIVE_KEYS)
TO_ENTER_TREE = (BUBBLEWRAP,)


def is_root() -> bool:
    return os.geteuid() == 0


def user_name() -> str:
    """The caller's login name, or the number where there is none."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def missing(tools: Iterable[HostTool]) -> list[HostTool]:
    return [tool for tool in tools if not tool.found()]


def can_install() -> bool:
    """Whether the lab may install packages itself."""
    return is_root() and shutil.which("apt-get") is not None


def install_command(tools: Iterable[HostTool]) -> str:
    """The exact command that brings the tools on an apt system."""
    packages = " ".join(dict.fromkeys(tool.package for tool in tools))
    return f"sudo apt-get install --no-install-recommends {packages}"


def ensure(tools: Iterable[HostTool], say: Say) -> None:
    """Install what is missing (as root on an apt system, after a line that says so), or raise EngineError."""
    absent = missing(tools)
    if not absent:
        return
    names = ", ".join(f"{tool.name} ({tool.purpose})" for tool in absent)
    if not can_install():
        msg = f"missing here: {names}; the rootfs engine cannot work. Run: {install_command(absent)}"
        raise EngineError(msg)
    packages = list(dict.fromkeys(tool.package for tool in absent))
    say(f"installing on this machine: {' '.join(packages)} (apt-get; missing: {names})")
    output = _apt_install(packages)
    still = missing(absent)
    if still:
        reason = output.strip().splitlines()[-1] if output.strip() else "no output"
        msg = (
            f"installing {' '.join(packages)} failed ({reason}); the rootfs engine cannot work. "
            f"Run: {install_command(still)}"
        )
        raise EngineError(msg)


def _apt_install(packages: list[str]) -> str:
    """apt-get install, after an update if the first try fails; the output of the last try."""
    command = ["apt-get", "install", "-y", "-q", "--no-install-recommends", *packages]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    output = ""
    for attempt in range(2):
        if attempt:
            _combined(["apt-get", "update", "-q"], environment)
        code, output = _combined(command, environment)
        if code == 0:
            break
    return output


def _combined(command: list[str], environment: dict[str, str]) -> tuple[int, str]:
    done = subprocess.run(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return done.returncode, done.stdout.decode(errors="replace")


def subordinate_ids_missing(files: tuple[Path, ...] = (Path("/etc/subuid"), Path("/etc/subgid"))) -> bool:
    """Whether the caller has no range of subordinate ids, which an ordinary user needs to make a tree."""
    wanted = {user_name(), str(os.geteuid())}
    for file in files:
        try:
            owners = {line.split(":")[0] for line in file.read_text().splitlines()}
        except OSError:
            return True
        if not owners & wanted:
            return True
    return False


def ensure_ordinary_user_can_make_trees() -> None:
    """Raise EngineError, with the exact command, unless mmdebstrap can work without root here."""
    steps = []
    if not UIDMAP.found():
        steps.append(install_command([UIDMAP]))
    if subordinate_ids_missing():
        ids = "100000-165535"
        steps.append(f"sudo usermod --add-subuids {ids} --add-subgids {ids} {user_name()}")
    if steps:
        msg = (
            "an ordinary user needs the program newuidmap and a range of subordinate ids to make the "
            f"toolchain's tree, and here something is missing; no tree can be made. Run: {' && '.join(steps)}"
        )
        raise EngineError(msg)
