# SPDX-License-Identifier: MIT
"""The cache: its place, its lock, and that nothing half-made is ever taken for whole."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from tierlab.errors import EngineError
from tierlab.toolchain import cache
from tierlab.toolchain.cache import (
    built_whole,
    cache_root,
    is_disk_full,
    locked,
    remove_tree,
    require_space,
    sweep_partials,
    toolchain_cache,
    tree_bytes,
)


def test_the_root_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.delenv("TIERLAB_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_root() == Path("/home/someone/.cache/tierlab")
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/caches")
    assert cache_root() == Path("/var/caches/tierlab")
    monkeypatch.setenv("TIERLAB_CACHE", "/big/disk")
    assert cache_root() == Path("/big/disk")


def test_a_cache_that_cannot_be_made_is_a_clear_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TIERLAB_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(EngineError, match="Set TIERLAB_CACHE"):
        toolchain_cache()


def test_built_whole_appears_only_after_success(tmp_path: Path) -> None:
    final = tmp_path / "tree"
    with built_whole(final) as partial:
        (partial / "file").write_text("new")
        assert not final.exists()
    assert (final / "file").read_text() == "new"
    assert [entry.name for entry in tmp_path.iterdir()] == ["tree"]


def test_a_failure_leaves_the_old_and_nothing_else(tmp_path: Path) -> None:
    final = tmp_path / "tree"
    final.mkdir()
    (final / "file").write_text("old")

    def fail() -> None:
        with built_whole(final) as partial:
            (partial / "file").write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert (final / "file").read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["tree"]


def test_what_a_dead_lab_left_is_swept(tmp_path: Path) -> None:
    (tmp_path / "tree.partial-12").mkdir()
    (tmp_path / "tree").mkdir()
    assert [entry.name for entry in sweep_partials(tmp_path)] == ["tree.partial-12"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["tree"]


def test_the_second_holder_waits_for_the_first(tmp_path: Path) -> None:
    order: list[str] = []
    waiting = threading.Event()

    def second() -> None:
        with locked(tmp_path / "lock", waiting.set):
            order.append("second")

    with locked(tmp_path / "lock"):
        thread = threading.Thread(target=second)
        thread.start()
        assert waiting.wait(30)
        order.append("first")
    thread.join(30)
    assert order == ["first", "second"]


def test_remove_tree_takes_read_only_directories_and_links(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text("kept")
    tree = tmp_path / "tree"
    (tree / "inner").mkdir(parents=True)
    (tree / "inner" / "link").symlink_to(kept)
    os.chmod(tree / "inner", 0o500)
    remove_tree(tree)
    remove_tree(tree)
    assert not tree.exists()
    assert kept.read_text() == "kept"


def test_nothing_is_removed_under_a_mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "mounts"
    table.write_text(f"proc /proc proc rw 0 0\nproc {tmp_path}/a\\040tree/proc proc rw 0 0\n")
    assert cache._mounts_below(tmp_path / "a tree", table) == [f"{tmp_path}/a tree/proc"]
    assert cache._mounts_below(tmp_path / "a", table) == []
    tree = tmp_path / "tree"
    (tree / "proc").mkdir(parents=True)
    monkeypatch.setattr(cache, "_mounts_below", lambda path: [f"{path}/proc"])
    with pytest.raises(EngineError, match="something is still mounted at"):
        remove_tree(tree)
    assert (tree / "proc").is_dir()


def test_tree_bytes_counts_a_hard_link_once(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"x" * 10000)
    alone = tree_bytes(tmp_path)
    assert alone == (tmp_path / "one").stat().st_blocks * 512
    os.link(tmp_path / "one", tmp_path / "two")
    assert tree_bytes(tmp_path) == alone
    assert tree_bytes(tmp_path / "absent") == 0


def test_too_little_space_is_said_before_anything_starts(tmp_path: Path) -> None:
    require_space(tmp_path, 1, "a byte")
    with pytest.raises(EngineError, match=r"the moon needs .* GiB; nothing was started"):
        require_space(tmp_path, 1 << 60, "the moon")


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("tar: ./usr/bin/x: Cannot write: No space left on device", True),
        ("write /var/lib/docker/x: no space left on device", True),
        ("cp: error writing 'x': Disk quota exceeded", True),
        ("Permission denied", False),
    ],
)
def test_a_full_disk_is_recognised_in_words(text: str, full: bool) -> None:
    assert is_disk_full(text) is full
