# SPDX-License-Identifier: MIT
"""Which emulator it was, for the provenance of a run and the keys of its verdicts."""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tierlab.emulator.command_line import NATIVE
from tierlab.errors import EngineError
from tierlab.toolchain.engine import EMULATORS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tierlab.toolchain.engine import Engine

_VERSION = re.compile(r"^qemu-aarch64 version (.+)$", re.MULTILINE)
_SHA256 = re.compile(r"^([0-9a-f]{64})\s", re.MULTILINE)


@dataclass(frozen=True)
class EmulatorIdentity:
    """An emulator's own version text and the SHA-256 (hex) of its program; both empty for `none`."""

    name: str
    version: str = ""
    sha256: str = ""

    @property
    def text(self) -> str:
        return f"{self.version} sha256:{self.sha256}" if self.sha256 else "no emulator"


def identify(engine: Engine, names: Iterable[str]) -> dict[str, EmulatorIdentity]:
    """Ask the engine's image about each of the emulators `names` (keys of EMULATORS, or `none`).

    EngineError if one is not in the image or does not start.
    """
    return {name: _identify(engine, name) for name in sorted(set(names))}


def _identify(engine: Engine, name: str) -> EmulatorIdentity:
    if name == NATIVE:
        return EmulatorIdentity(name)
    program = EMULATORS[name]
    with tempfile.TemporaryDirectory(prefix="tierlab-") as folder:
        log = Path(folder) / "log"
        code = engine.run(["sh", "-c", '"$0" --version && sha256sum "$0"', program], log=log)
        said = log.read_text(errors="replace")
    version, digest = _VERSION.search(said), _SHA256.search(said)
    if code != 0 or version is None or digest is None:
        msg = (
            f"the emulator {name} ({program}) does not start in the {engine.name} engine: "
            f"{' '.join(said.split())[-200:] or f'code {code}'}. Make the image anew: invoke image"
        )
        raise EngineError(msg)
    return EmulatorIdentity(name, version[1].strip(), digest[1])
