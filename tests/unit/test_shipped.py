# SPDX-License-Identifier: MIT
"""Libraries of a shipped ggml: which are taken, under which names, and what is refused."""

from __future__ import annotations

import io
import zipfile
from typing import TYPE_CHECKING

import pytest
from scan_files import FUNCTION, GLOBAL, NOP, RET, elf

from tierlab.dispatch.shipped import collect
from tierlab.errors import SourceError, UsageError
from tierlab.toolchain.shipped import shipped_tree

if TYPE_CHECKING:
    from pathlib import Path

PLAIN = elf([NOP, RET], [("f", 0, 2, FUNCTION, GLOBAL)])
BACKEND = elf([NOP, NOP, RET], [("ggml_backend_init", 0, 3, FUNCTION, GLOBAL)])
WHOLE = {"libggml-base.so.0.9": PLAIN, "libggml.so": PLAIN, "libggml-cpu-armv8.0_1.so": BACKEND}


def package(members: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return made.getvalue()


@pytest.fixture
def target(tmp_path: Path) -> Path:
    folder = tmp_path / "taken"
    folder.mkdir()
    return folder


def test_libraries_of_a_package_are_taken_and_nothing_else(tmp_path: Path, target: Path) -> None:
    wheel = tmp_path / "w.whl"
    inside = {f"pkg/lib/{name}": data for name, data in WHOLE.items()}
    wheel.write_bytes(package({**inside, "pkg/libother.so": PLAIN, "pkg/libggml-base.so.txt": b"text"}))
    found = collect([wheel], target)
    assert {library.stem for library in found.libraries.values()} == {
        "libggml-base",
        "libggml",
        "libggml-cpu-armv8.0_1",
    }
    assert {path.name: path.read_bytes() for path in target.iterdir()} == WHOLE
    assert found.loadable
    assert all(library.named for library in found.libraries.values())


def test_linked_backend_is_told_from_a_loadable_one(tmp_path: Path, target: Path) -> None:
    for name, data in {"libggml-base.so": PLAIN, "libggml.so": PLAIN, "libggml-cpu.so": PLAIN}.items():
        (tmp_path / name).write_bytes(data)
    assert not collect([tmp_path], target).loadable


def test_member_names_are_never_paths(tmp_path: Path, target: Path) -> None:
    wheel = tmp_path / "w.whl"
    wheel.write_bytes(package({f"../../{name}": data for name, data in WHOLE.items()}))
    collect([wheel], target)
    assert sorted(path.name for path in tmp_path.rglob("*.so*")) == sorted(
        path.name for path in target.iterdir()
    )


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({}, "no shared library of ggml for AArch64"),
        ({"libggml.so": PLAIN, "libggml-cpu.so": PLAIN}, "libggml-base is not in it"),
        ({"libggml-base.so": PLAIN, "libggml.so": PLAIN}, "a CPU backend"),
        ({"libggml.so": b"\x7fELF\x02\x01\x01" + bytes(11) + b"\x3e\0" + bytes(64)}, "x86-64"),
        ({**WHOLE, "other/libggml.so": BACKEND}, "twice with different bytes"),
        ({"libggml.so": PLAIN[:100]}, "truncated"),
    ],
)
def test_incomplete_and_foreign_packages_are_refused(
    tmp_path: Path, target: Path, members: dict[str, bytes], said: str
) -> None:
    wheel = tmp_path / "w.whl"
    wheel.write_bytes(package(members))
    with pytest.raises(SourceError, match=said):
        collect([wheel], target)


def test_missing_file_is_wrong_use(tmp_path: Path, target: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        collect([tmp_path / "absent.deb"], target)


def test_folder_without_ggml_headers_is_wrong_use(tmp_path: Path, target: Path) -> None:
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "ggml.h").write_text("")
    with pytest.raises(UsageError, match=r"ggml-backend\.h"):
        shipped_tree(target, tmp_path / "include", "a test", cache=tmp_path / "cache")
