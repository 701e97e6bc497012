# SPDX-License-Identifier: MIT
"""The image recipe: identity, manifest, the checks of install.sh, and trees made whole or not at all."""

from __future__ import annotations

import shutil
import subprocess
import threading
from typing import TYPE_CHECKING

import pytest

from tierlab.errors import EngineError
from tierlab.toolchain import rootfs_image
from tierlab.toolchain.engine import EMULATORS, KLEIDIAI_ROOT
from tierlab.toolchain.image import (
    MANIFEST_PATH,
    RECIPE_FILES,
    extended_recipe,
    identity_of,
    load_recipe,
    log_failure,
    parse_manifest,
    recipe_directory,
)

if TYPE_CHECKING:
    from pathlib import Path

RECIPE = load_recipe()


def rows(name: str) -> list[list[str]]:
    lines = (recipe_directory() / name).read_text().splitlines()
    return [line.split() for line in lines if line and not line.startswith("#")]


def copy_of_recipe(folder: Path) -> Path:
    for name in RECIPE_FILES:
        shutil.copy(recipe_directory() / name, folder / name)
    return folder


def test_every_change_of_the_recipe_changes_its_tag(tmp_path: Path) -> None:
    copy_of_recipe(tmp_path)
    assert load_recipe(tmp_path).digest == RECIPE.digest
    tags = {RECIPE.tag}
    for name in RECIPE_FILES:
        with (tmp_path / name).open("a") as file:
            file.write("# changed\n")
        tags.add(load_recipe(tmp_path).tag)
    assert len(tags) == 1 + len(RECIPE_FILES)
    assert RECIPE.tag == f"tierlab-toolchain:{RECIPE.digest[:12]}"


def test_an_extended_recipe_is_another_image(tmp_path: Path) -> None:
    more = extended_recipe(RECIPE, "llvm", tmp_path)
    assert more.tag != RECIPE.tag
    assert more.base == RECIPE.base
    assert extended_recipe(RECIPE, "llvm", tmp_path) == more
    text = (more.directory / "packages.txt").read_text()
    assert text.startswith((recipe_directory() / "packages.txt").read_text())
    assert {"llvm-19", "clang-19"} <= {line.split()[0] for line in text.splitlines() if line}
    for name in set(RECIPE_FILES) - {"packages.txt"}:
        assert (more.directory / name).read_bytes() == (recipe_directory() / name).read_bytes()


def test_the_plain_image_does_not_know_the_lists_of_others(tmp_path: Path) -> None:
    copy_of_recipe(tmp_path)
    (tmp_path / "llvm.txt").write_text("another-package -\n")
    assert load_recipe(tmp_path).digest == RECIPE.digest
    changed = extended_recipe(load_recipe(tmp_path), "llvm", tmp_path / "cache")
    assert changed.digest != extended_recipe(RECIPE, "llvm", tmp_path / "cache").digest


def test_a_missing_package_list_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"llvn\.txt cannot be read.*no image with llvn"):
        extended_recipe(RECIPE, "llvn", tmp_path)


def test_a_missing_recipe_file_is_named(tmp_path: Path) -> None:
    (copy_of_recipe(tmp_path) / "extras.txt").unlink()
    with pytest.raises(EngineError, match=r"extras\.txt cannot be read"):
        load_recipe(tmp_path)


def test_the_data_files_agree_with_the_code() -> None:
    targets = {row[2]: row for row in rows("extras.txt")}
    assert {program.split("/usr/")[0] for program in EMULATORS.values()} <= set(targets)
    assert KLEIDIAI_ROOT.removesuffix("/usr") in targets
    assert targets["/opt/kleidiai"][3] == "1.24"
    assert all(len(row) == 5 for row in targets.values())
    names = [row[0] for row in rows("packages.txt")]
    assert {"g++-aarch64-linux-gnu", "gcc", "g++", "binutils", "cmake", "ninja-build", "ccache"} <= set(names)
    assert RECIPE.base == "debian:trixie-slim"


def test_no_mirror_is_named_in_the_recipe() -> None:
    for name in RECIPE_FILES:
        text = (recipe_directory() / name).read_text()
        assert "http://" not in text
        assert "https://" not in text


def test_identity_depends_on_recipe_and_every_version() -> None:
    manifest = {"gcc": "14", "cmake": "3.31"}
    same = identity_of(RECIPE, {"cmake": "3.31", "gcc": "14"})
    assert identity_of(RECIPE, manifest) == same
    assert identity_of(RECIPE, {**manifest, "gcc": "15"}) != same
    assert len(same) == 64


@pytest.mark.parametrize("text", ["", "gcc 14\n", "gcc\t\n", "\t14\n"])
def test_a_damaged_manifest_is_refused(text: str) -> None:
    with pytest.raises(EngineError, match="the image is damaged"):
        parse_manifest(text)


def test_a_manifest_is_read() -> None:
    assert parse_manifest("gcc\t4:14.2.0-1\nlibx:arm64@/opt/x\t1.32\n") == {
        "gcc": "4:14.2.0-1",
        "libx:arm64@/opt/x": "1.32",
    }


def test_the_recipes_own_words_are_the_reason(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert log_failure(log) == "no log was written"
    log.write_text("Get:1 x\nrecipe error: KleidiAI is version 1.8, and at least 1.24 is needed\nE: failed\n")
    assert log_failure(log) == "KleidiAI is version 1.8, and at least 1.24 is needed"
    log.write_text("one\ntwo\n\nthree\nfour\n")
    assert log_failure(log) == "two / three / four"


def shell_function(name: str) -> str:
    """The text of one function of install.sh."""
    text = (recipe_directory() / "install.sh").read_text()
    start = text.index(f"\n{name}() {{\n")
    return text[start : text.index("\n}\n", start) + 3]


@pytest.mark.skipif(shutil.which("dpkg") is None, reason="needs dpkg, which compares Debian's versions")
@pytest.mark.parametrize(
    ("version", "lowest", "below", "code"),
    [
        ("1.32.0+ds-1", "1.24", "-", 0),
        ("1.24.0-1", "1.24", "-", 0),
        ("1.8.0-2", "1.24", "-", 1),
        ("4:14.2.0-1", "14", "-", 0),
        ("4:12.2.0-3", "14", "-", 1),
        ("1:10.0.13+ds-0+deb13u1", "10.0", "10.1", 0),
        ("1:11.1.3+ds-1~bpo13+1", "10.0", "10.1", 1),
        ("1:11.0.0+ds-1", "11.1", "-", 1),
    ],
)
def test_versions_are_held_to_their_bounds(version: str, lowest: str, below: str, code: int) -> None:
    script = f'set -eu\n{shell_function("fail")}{shell_function("check")}check thing "$@"'
    done = subprocess.run(
        ["sh", "-c", script, "sh", version, lowest, below], capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    assert ("recipe error: thing is version" in done.stderr) is bool(code)


DEB822 = """Types: deb
URIs: https://mirror.example/debian
Suites: trixie trixie-updates
Components: main
Signed-By: /usr/share/keyrings/x.gpg

Types: deb
URIs: https://mirror.example/debian-security
Suites: trixie-security
Components: main
"""


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        (
            "sources.list.d/debian.sources",
            DEB822,
            "Types: deb\nURIs: https://mirror.example/debian\nSuites: sid\nComponents: main\n"
            "Signed-By: /usr/share/keyrings/x.gpg\n\n",
        ),
        (
            "sources.list",
            "# deb x\ndeb https://m.example/s trixie-security main\n"
            "deb [signed-by=/k.gpg] https://m.example/d trixie main\ndeb https://o.example/d trixie main\n",
            "deb [signed-by=/k.gpg] https://m.example/d sid main\n",
        ),
        ("sources.list", "deb https://m.example/d bookworm main\n", ""),
    ],
)
def test_other_suites_come_from_the_images_own_source(
    tmp_path: Path, name: str, content: str, expected: str
) -> None:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / name).write_text(content)
    function = shell_function("source_for_suite").replace("/etc/apt/", f"{tmp_path}/")
    done = subprocess.run(
        ["sh", "-c", f"set -eu\nrelease=trixie\n{function}\nsource_for_suite sid"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == expected


@pytest.fixture
def fake_tools(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A stand-in for mmdebstrap that counts its calls and writes a tree with a manifest."""
    tree = tmp_path / "given"
    manifest = tree / MANIFEST_PATH.lstrip("/")
    manifest.parent.mkdir(parents=True)
    manifest.write_text("gcc\t14\n")
    counter = tmp_path / "calls"
    script = f"echo made >> {counter}; tar -c -C {tree} ."
    monkeypatch.setattr(rootfs_image, "_mmdebstrap", lambda hooks: ["sh", "-c", script])
    monkeypatch.setattr(rootfs_image.host_tools, "ensure", lambda tools, say: None)
    monkeypatch.setattr(rootfs_image, "IMAGE_BYTES", 1)
    return counter


def test_two_labs_at_once_make_the_tree_once(fake_tools: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    roots: list[Path] = []
    together = threading.Barrier(4)

    def lab() -> None:
        together.wait()
        roots.append(rootfs_image.make_tree(cache, RECIPE, lambda line: None))

    labs = [threading.Thread(target=lab) for _ in range(4)]
    for thread in labs:
        thread.start()
    for thread in labs:
        thread.join(60)
    assert set(roots) == {cache / f"rootfs-{RECIPE.short}" / "root"}
    assert len(roots) == 4
    assert fake_tools.read_text() == "made\n"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'cp: x: No space left on device' >&2; exit 1", "the disk is full"),
        ("echo 'recipe error: gcc is version 12' >&2; exit 1", "gcc is version 12; no tree was kept"),
        ("tar -c -T /dev/null", "came out without a manifest"),
        ("echo no archive at all", "tar ended with 2"),
    ],
)
def test_a_tree_that_fails_leaves_nothing(
    fake_tools: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, message: str
) -> None:
    monkeypatch.setattr(rootfs_image, "_mmdebstrap", lambda hooks: ["sh", "-c", script])
    cache = tmp_path / "cache"
    cache.mkdir()
    with pytest.raises(EngineError, match=message):
        rootfs_image.make_tree(cache, RECIPE, lambda line: None)
    assert {entry.name for entry in cache.iterdir()} == {"lock", f"rootfs-{RECIPE.short}.log"}


def test_a_tree_that_a_dead_lab_left_half_made_is_made_anew(fake_tools: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    half = cache / f"rootfs-{RECIPE.short}.partial-1"
    (half / "root").mkdir(parents=True)
    unfinished = cache / f"rootfs-{RECIPE.short}" / "root"
    unfinished.mkdir(parents=True)
    root = rootfs_image.make_tree(cache, RECIPE, lambda line: None)
    assert (root / MANIFEST_PATH.lstrip("/")).is_file()
    assert not half.exists()
