# SPDX-License-Identifier: MIT
"""Session folders: what they hold, that they vanish, and that only dead labs' folders are swept."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tierlab.errors import HarnessError
from tierlab.harness.folder import SessionFolder, sweep

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20

DIES_WITHOUT_CLEANING = """
import os, sys
from pathlib import Path
from tierlab.harness.folder import SessionFolder
folder = SessionFolder(1 << 20, parent=Path(sys.argv[1]))
print(folder.path, flush=True)
os._exit(0)
"""


def test_the_folder_holds_socket_and_arena_and_disappears(tmp_path: Path) -> None:
    with SessionFolder(MIB, parent=tmp_path) as folder:
        path = folder.path
        assert (folder.mount.source, folder.mount.target, folder.mount.writable) == (path, "/session", True)
        assert {"arena", "socket"} < {entry.name for entry in path.iterdir()}
        assert (path / "arena").stat().st_size == MIB
    assert not path.exists()
    folder.close()


def test_an_unwritable_place_is_a_message(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="cannot make a session folder"):
        SessionFolder(MIB, parent=tmp_path / "missing")


def test_a_socket_path_that_is_too_long_leaves_nothing(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    with pytest.raises(HarnessError, match="cannot make a session folder"):
        SessionFolder(MIB, parent=deep)
    assert list(deep.iterdir()) == []


def test_a_dead_labs_folder_is_swept(tmp_path: Path) -> None:
    script = [sys.executable, "-c", DIES_WITHOUT_CLEANING, str(tmp_path)]
    left = subprocess.run(script, capture_output=True, text=True, check=True).stdout.strip()
    assert [str(entry) for entry in tmp_path.iterdir()] == [left]
    with SessionFolder(MIB, parent=tmp_path) as folder:
        assert list(tmp_path.iterdir()) == [folder.path]


def test_a_living_labs_folder_is_left_alone(tmp_path: Path) -> None:
    with SessionFolder(MIB, parent=tmp_path) as first, SessionFolder(MIB, parent=tmp_path) as second:
        assert sweep(tmp_path) == []
        assert set(tmp_path.iterdir()) == {first.path, second.path}


def test_foreign_things_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "tierlab-session-strange").mkdir()
    (tmp_path / "tierlab-session-file").write_text("x")
    (tmp_path / "other").mkdir()
    assert sweep(tmp_path) == []
    assert len(list(tmp_path.iterdir())) == 3
