# SPDX-License-Identifier: MIT
"""The files behind a session: sha256 and size of each, whether the build or the image holds it."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from tierlab.errors import EngineError
from tierlab.run.ledger_rows import Binary
from tierlab.run.workbench import BUILD_MOUNT
from tierlab.toolchain.engine import ARM_SYSROOT, EMULATORS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tierlab.cells.model import Profile
    from tierlab.harness.messages import Hello
    from tierlab.toolchain.build import Build
    from tierlab.toolchain.engine import Engine

_SCRIPT = 'for f; do g="$0$f"; [ -e "$g" ] || g="$f"; echo "$(sha256sum <"$g") $(stat -Lc %s "$g") $f"; done'
"""A guest's files lie below the sysroot, where the emulator looks first."""


class Binaries:
    """Digests of the files that sessions name; each file is read once."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: dict[tuple[str, str], Binary] = {}

    def of(self, build: Build, profile: Profile, hello: Hello) -> tuple[Binary, ...]:
        """The emulator, the harness, the backend and every other shared object of a session.

        EngineError if one of them cannot be read: a record without it would not say what was measured.
        """
        prefix = f"{BUILD_MOUNT}/"
        harness = prefix + str(build.harness.relative_to(build.directory))
        ours = [harness, *(name for name in hello.objects if name.startswith(prefix))]
        for path in ours:
            self._built(build, path, self._role(path, harness, hello))
        emulator = EMULATORS.get(profile.emulator) if self._engine.emulated else None
        system = [name for name in hello.objects if not name.startswith(prefix)]
        self._ask(system, ARM_SYSROOT if emulator else "", "library")
        if emulator:
            self._ask([emulator], "", "emulator")
        keys = [("", emulator)] if emulator else []
        keys += [(str(build.directory), path) for path in ours] + [("", path) for path in system]
        return tuple(self._known[key] for key in dict.fromkeys(keys))

    @staticmethod
    def _role(path: str, harness: str, hello: Hello) -> str:
        if path == harness:
            return "harness"
        name = PurePosixPath(path).name
        if name == hello.variant:
            return "backend"
        # Some backends stay mapped after they were asked for their score.
        return "probed" if name in dict(hello.scores) else "library"

    def _built(self, build: Build, path: str, role: str) -> None:
        key = (str(build.directory), path)
        if key in self._known:
            return
        file = build.directory / path.removeprefix(f"{BUILD_MOUNT}/")
        try:
            data = file.read_bytes()
        except OSError as error:
            msg = f"{file}: {error.strerror}; nothing is recorded without its digest. Build it again"
            raise EngineError(msg) from error
        self._known[key] = Binary(role, path, hashlib.sha256(data).hexdigest(), len(data))

    def _ask(self, paths: Iterable[str], root: str, role: str) -> None:
        wanted = [path for path in dict.fromkeys(paths) if ("", path) not in self._known]
        if not wanted:
            return
        for path, sha256, size in _asked(self._engine, wanted, root):
            self._known["", path] = Binary(role, path, sha256, size)
        missing = [path for path in wanted if ("", path) not in self._known]
        if missing:
            msg = f"{', '.join(missing)}: not to be read in the image; nothing is recorded. Run: invoke image"
            raise EngineError(msg)


def _asked(engine: Engine, paths: Sequence[str], root: str) -> list[tuple[str, str, int]]:
    """(path, sha256, bytes) of files in the image; what cannot be read is left out."""
    with tempfile.TemporaryDirectory(prefix="tierlab-") as folder:
        log = Path(folder) / "log"
        engine.run(["sh", "-c", _SCRIPT, root, *paths], log=log)
        lines = log.read_text(errors="replace").splitlines()
    found = []
    for line in lines:
        digest, _, size, path = (*line.split(maxsplit=3), "", "", "", "")[:4]
        if len(digest) == 64 and size.isdecimal() and path in paths:
            found.append((path, digest, int(size)))
    return found
