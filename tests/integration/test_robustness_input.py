# SPDX-License-Identifier: MIT
"""Whatever is wrong with what a person gives: one clear message, the right exit code, nothing half done."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from absent import absent
from robustness_lab import ROOT, SMALL, Done, Lab, lab_in, records

from tierlab.toolchain.choose import choose_engine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.engine

BROKEN = {
    "empty": (b"", "the file is empty"),
    "open list": (b"a: [1,\n", "YAML syntax"),
    "not UTF-8": (b"\xff\xfe\x00", "not UTF-8"),
    "control character": (b"a: \x01\n", "special characters"),
    "unknown key": (b"profilez: {}\n", "unknown key 'profilez'"),
    "wrong type": (b"profiles: 3\n", "lacks the key"),
    "duplicate key": (b"a: 1\na: 2\n", "duplicate key 'a'"),
    "alias of itself": (b"a: &a [*a]\n", "contains itself"),
    "aliases of aliases": (
        b"a: &x0 [1,1,1,1,1,1,1,1,1]\n"
        + b"".join(b"b%d: &x%d [%b]\n" % (n, n, b",".join([b"*x%d" % (n - 1)] * 9)) for n in range(1, 9)),
        "Use fewer",
    ),
    "nested too deep": (b"[" * 5000, "nested too deep"),
    "foreign tag": (b"a: !!python/object:os.system 1\n", "constructor"),
    "two documents": (b"---\na: 1\n---\nb: 1\n", "another document"),
    "impossible date": (b"a: 2001-99-99\n", "month must be in"),
    "key of several values": (b"? [1, 2]\n: 3\n", "is not text"),
}


@pytest.fixture(scope="module", autouse=True)
def _image() -> None:
    with closing(choose_engine("rootfs", lambda _: None)) as engine:
        engine.prepare()


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with lab_in(tmp_path / "lab") as made:
        yield made


def assert_refused(done: Done, code: int, *words: str) -> None:
    """One message (the last lines), no traceback, this exit code."""
    assert done.code == code, done.text
    assert "Traceback" not in done.text
    assert done.text.count("tierlab: ") == 1, done.text
    for word in words:
        assert word in done.text


def assert_nothing_left(lab: Lab) -> None:
    assert lab.runs() == []
    assert not (lab.reports / "latest").exists()


# The matrix file ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_matrix_file(lab: Lab, kind: str) -> None:
    content, word = BROKEN[kind]
    file = lab.place / "mine.yaml"
    file.write_bytes(content)
    assert_refused(lab.run(lab.matrix(*SMALL, "--file", str(file))), 3, str(file), word)
    assert_nothing_left(lab)


@pytest.mark.parametrize("options", [(), ("-n", "2"), ("--collect-only",)])
def test_broken_matrix_file_given_to_pytest(lab: Lab, options: tuple[str, ...]) -> None:
    file = lab.place / "mine.yaml"
    file.write_text("a: [1,\n")
    done = lab.run([sys.executable, "-m", "pytest", str(file), *options], cwd=lab.place)
    assert_refused(done, 3, "mine.yaml:2:1: YAML syntax")


def test_pytest_runs_a_matrix_file_with_workers_and_reports(lab: Lab) -> None:
    shutil.copy(ROOT / "matrix.yaml", lab.place)
    command = ["matrix.yaml", "-n", "2", "-k", "neoverse-n1 and quant", "--preset", "quick"]
    done = lab.run([sys.executable, "-m", "pytest", *command, "--engine", "rootfs"], cwd=lab.place)
    assert done.code == 0, done.text
    (run,) = lab.runs()
    asked = set((run / "cells.txt").read_text().split())
    assert {record["cell"] for record in records(run)} == asked
    assert asked
    assert all("quantize/" in cell and cell.endswith("/neoverse-n1") for cell in asked)
    assert {"report.json", "junit.xml", "summary.md", "index.html"} <= {path.name for path in run.iterdir()}


def test_pytest_that_selects_nothing_determines_nothing(lab: Lab) -> None:
    shutil.copy(ROOT / "matrix.yaml", lab.place)
    command = ["matrix.yaml", "-k", "nothing", "--preset", "quick", "--engine", "rootfs"]
    assert lab.run([sys.executable, "-m", "pytest", *command], cwd=lab.place).code == 2


# Places ------------------------------------------------------------------------------------------------


def test_reports_folder_that_is_a_file(lab: Lab) -> None:
    lab.reports.write_text("")
    assert_refused(
        lab.run(lab.matrix(*SMALL)), 3, f"{lab.reports} is (or is below) a file", "nothing was run"
    )
    assert lab.reports.read_text() == ""


def test_names_that_are_no_text(lab: Lab) -> None:
    odd = os.fsdecode(os.fsencode(lab.place) + b"/r\xff")
    assert_refused(lab.run(lab.matrix(*SMALL, "--reports", odd)), 3, "is not UTF-8")
    file = os.fsdecode(os.fsencode(lab.place) + b"/m\xff.yaml")
    shutil.copy(ROOT / "matrix.yaml", file)
    done = lab.run(
        lab.matrix(*SMALL, "--file", file), {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    )
    assert done.code == 0, done.text


@pytest.mark.parametrize(
    ("tree", "code", "word"),
    [("missing", 3, "no such directory"), ("file", 3, "no such directory"), ("empty", 2, "holds no ggml")],
)
def test_tree_that_is_none(lab: Lab, tree: str, code: int, word: str) -> None:
    place = lab.place / "tree"
    if tree == "file":
        place.write_text("")
    elif tree == "empty":
        place.mkdir()
    assert_refused(lab.run(lab.matrix(*SMALL, "--llama-cpp", str(place))), code, word, "nothing was built")
    assert_nothing_left(lab)


# Pins and patches --------------------------------------------------------------------------------------

PATCH = b"--- a/ggml/src/ggml.c\n+++ b/ggml/src/ggml.c\n@@ -1,3 +1,3 @@\n nope\n-old\n+new\n tail\n"
KERNELS = {
    "no hash": (
        {"pin.yaml": lambda old: old.replace(b"sha256: ", b"sha256: 0", 1)},
        3,
        ("sha256 must be 64",),
    ),
    "no YAML": ({"pin.yaml": lambda _: b"a: ["}, 3, ("pin.yaml is no YAML",)),
    "no text": ({"pin.yaml": lambda _: b"\xff\xfe"}, 3, ("pin.yaml is not UTF-8",)),
    "patch": (
        {"patches/series": lambda _: b"x.patch\n", "patches/x.patch": lambda _: PATCH},
        2,
        ("x.patch: hunk 1 of 1 does not apply to ggml/src/ggml.c at line 1", "`nope`"),
    ),
    "no patch": (
        {"patches/series": lambda _: b"x.patch\n", "patches/x.patch": lambda _: b"\xff\x00"},
        2,
        ("x.patch:1: there is no unified diff in it",),
    ),
    "patch missing": ({"patches/series": lambda _: b"\nx\xff.patch\n"}, 2, ("series:2:", "cannot be read")),
}


@pytest.mark.parametrize("kind", KERNELS)
def test_wrong_pins_and_patches(lab: Lab, kind: str) -> None:
    edits, code, words = KERNELS[kind]
    checkout = lab.place / "checkout"
    for name in ("src", "kernels", "images"):
        shutil.copytree(ROOT / name, checkout / name)
    for name in ("matrix.yaml", "tasks.py"):
        shutil.copy(ROOT / name, checkout / name)
    for name, edit in edits.items():
        file = checkout / "kernels" / "llama.cpp" / name
        file.write_bytes(edit(file.read_bytes() if file.exists() else b""))
    done = lab.run(
        lab.matrix(*SMALL, "--build", "patched"), {"PYTHONPATH": str(checkout / "src")}, cwd=checkout
    )
    assert_refused(done, code, *words)
    assert_nothing_left(lab)


# Engines -----------------------------------------------------------------------------------------------


def test_docker_host_that_leads_nowhere(lab: Lab) -> None:
    nowhere = {"DOCKER_HOST": f"unix://{lab.place}/nobody.sock"}
    assert_refused(
        lab.run(lab.matrix(*SMALL, "--engine", "docker"), nowhere), 2, "nobody.sock", "--engine rootfs"
    )
    assert_nothing_left(lab)


def test_docker_host_that_is_something_else_leaves_nothing_open(lab: Lab) -> None:
    place = lab.place / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place))
        listener.listen()

        def answer() -> None:
            line, _ = listener.accept()
            with line:
                line.recv(4096)
                line.sendall(b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        script = "from tierlab.toolchain.choose import choose_engine; choose_engine('docker')"
        done = subprocess.run(
            [sys.executable, "-X", "dev", "-c", script],
            env=lab.environment({"DOCKER_HOST": f"unix://{place}"}),
            capture_output=True,
            text=True,
            check=False,
        )
        thread.join()
    assert "no engine that works (it answers 'HTTP/1.1 500 Oops')" in done.stderr
    assert "ResourceWarning" not in done.stderr


# Full and read-only disks ------------------------------------------------------------------------------


def starved(lab: Lab, setup: str) -> Done:
    """A run in a mount namespace of its own, after `setup`."""
    prefix = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", f'{setup}\nexec "$@"', "sh"]
    probe = subprocess.run([*prefix, "true"], capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        absent(f"no file systems can be mounted here: {probe.stderr.strip()}")
    return lab.run([*prefix, *lab.matrix(*SMALL)])


@pytest.mark.parametrize("kilobytes", [4, 40])
def test_full_disk_of_reports(lab: Lab, kilobytes: int) -> None:
    lab.reports.mkdir()
    done = starved(lab, f"mount -t tmpfs -o size={kilobytes}k none {lab.reports}")
    assert_refused(done, 2, "No space left on device", "Make room")


def test_reports_folder_that_is_read_only(lab: Lab) -> None:
    lab.reports.mkdir()
    done = starved(lab, f"mount --bind {lab.reports} {lab.reports}; mount -o remount,ro,bind {lab.reports}")
    assert_refused(done, 2, "Read-only file system", "nothing was run", "--reports")


@pytest.mark.parametrize("options", ["size=1m", "size=8k", "ro"])
def test_no_room_in_shared_memory(lab: Lab, options: str) -> None:
    done = starved(lab, f"mount -t tmpfs -o {options} none /dev/shm")
    assert done.code == 0, done.text


@pytest.mark.parametrize("name", ["verdicts", "problems"])
def test_full_cache_costs_time_only(lab: Lab, name: str) -> None:
    place = lab.cache / name
    place.unlink(missing_ok=True)
    place.mkdir()
    done = starved(lab, f"mount -t tmpfs -o size=8k none {place}")
    assert done.code == 0, done.text
    assert "21 cells executed" in done.text or "cells executed, 0 from the verdict cache" in done.text


def test_checkout_that_is_read_only(lab: Lab) -> None:
    done = starved(lab, f"mount --bind {ROOT} {ROOT}; mount -o remount,ro,bind {ROOT}")
    assert done.code == 0, done.text
