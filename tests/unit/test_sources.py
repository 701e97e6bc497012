# SPDX-License-Identifier: MIT
"""Pin, source package, trees in the cache and users' trees: without a network and without an engine."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import shutil
import tarfile
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tierlab.errors import ConfigError, PatchError, SourceError, UsageError
from tierlab.toolchain.diff import Patch
from tierlab.toolchain.sources import Pin, load_patches, load_pin, patched_tree, stock_tree, user_tree
from tierlab.toolchain.unpack import unpack

if TYPE_CHECKING:
    from pathlib import Path

FILES = {
    "LICENSE": b"text\n",
    "ggml/CMakeLists.txt": b"project(ggml)\n",
    "ggml/include/ggml.h": b"// header\n",
    "ggml/src/CMakeLists.txt": b"# src\n",
    "ggml/src/ggml.c": b"int one;\nint two;\nint three;\n",
}
PATCH = Patch(
    "0001-two.patch",
    b"--- a/ggml/src/ggml.c\n+++ b/ggml/src/ggml.c\n"
    b"@@ -1,3 +1,3 @@\n int one;\n-int two;\n+int 2;\n int three;\n",
)
WRONG = "0" * 64


def archive(path: Path, files: dict[str, bytes], prefix: str = "x-1/vendor/llama.cpp/") -> str:
    """Write a source archive; returns its SHA-256."""
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(prefix + name)
            member.size, member.mtime = len(content), 1_000_000_000
            tar.addfile(member, io.BytesIO(content))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def quiet(_: str) -> None:
    """Say nothing."""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a pip that can reach no network."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "links"))
    (tmp_path / "links").mkdir()
    return tmp_path / "cache"


@pytest.fixture
def pin(cache: Path) -> Pin:
    """A pin whose archive has been fetched already."""
    loose = cache.parent / "loose.tar.gz"
    digest = archive(loose, FILES)
    place = cache / "downloads" / f"x-1-{digest[:16]}"
    place.mkdir(parents=True)
    loose.rename(place / "x-1.tar.gz")
    return Pin("x", "1", digest, "vendor/llama.cpp", "a test")


def names(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


def test_the_pin_of_the_checkout() -> None:
    pin = load_pin()
    assert (pin.package, pin.subtree) == ("llama-cpp-python", "vendor/llama.cpp")
    assert len(pin.sha256) == 64


def test_the_series_of_the_checkout_reads() -> None:
    assert [patch.name for patch in load_patches()] == sorted({patch.name for patch in load_patches()})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- a\n", "must hold the keys package"),
        ("a: [\n", "is no YAML"),
        ("package: x\nversion: 1\nsha256: a\nsubtree: s\n", "the key describes is missing"),
        (
            f"package: x\nversion: 1\nsha256: {WRONG}\nsubtree: s\ndescribes: d\nhash: 1\n",
            "hash is not known",
        ),
        ("package: x\nversion: 1\nsha256: abc\nsubtree: s\ndescribes: d\n", "must be 64 hexadecimal digits"),
    ],
)
def test_bad_pin(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "pin.yaml").write_text(text)
    with pytest.raises(ConfigError, match=words) as caught:
        load_pin(tmp_path / "pin.yaml")
    assert caught.value.exit_code == 3
    assert str(tmp_path / "pin.yaml") in str(caught.value)


def test_stock(cache: Path, pin: Pin) -> None:
    tree = stock_tree(pin, cache=cache, say=quiet)
    assert (tree.root / "LICENSE").read_bytes() == b"text\n"
    assert {str(p.relative_to(tree.ggml)) for p in tree.ggml.rglob("*") if p.is_file()} == {
        *("CMakeLists.txt", "include/ggml.h", "src/CMakeLists.txt", "src/ggml.c")
    }
    assert (tree.ggml / "src/ggml.c").stat().st_mtime == 1_000_000_000
    assert tree.origin == "x 1 (a test)"


def test_offline_once_unpacked(cache: Path, pin: Pin) -> None:
    first = stock_tree(pin, cache=cache, say=quiet)
    shutil.rmtree(cache / "downloads")
    said: list[str] = []
    assert stock_tree(pin, cache=cache, say=said.append) == first
    assert said == []


def test_a_tree_that_was_changed_in_the_cache_is_made_anew(cache: Path, pin: Pin) -> None:
    first = stock_tree(pin, cache=cache, say=quiet)
    (first.ggml / "src/ggml.c").write_text("int tampered;\n")
    said: list[str] = []
    assert stock_tree(pin, cache=cache, say=said.append).digest == first.digest
    assert (first.ggml / "src/ggml.c").read_bytes() == FILES["ggml/src/ggml.c"]
    assert "was changed since it was made" in said[0]


def test_a_damaged_archive_is_fetched_again(cache: Path, pin: Pin) -> None:
    path = next(cache.glob("downloads/*/x-1.tar.gz"))
    path.write_bytes(path.read_bytes()[:-9])
    said: list[str] = []
    with pytest.raises(SourceError, match="x 1 could not be fetched"):
        stock_tree(pin, cache=cache, say=said.append)
    assert "is damaged" in said[0]
    assert names(cache / "downloads") == []


def test_wrong_hash_names_both_and_leaves_nothing(cache: Path) -> None:
    got = archive(cache.parent / "links" / "x-1.tar.gz", FILES, "x-1/")
    with pytest.raises(SourceError) as caught:
        stock_tree(Pin("x", "1", WRONG, "vendor/llama.cpp"), cache=cache, say=quiet)
    assert WRONG in str(caught.value)
    assert got in str(caught.value)
    assert caught.value.exit_code == 2
    assert names(cache / "downloads") == []
    assert not (cache / "trees").exists()


def test_package_that_is_not_to_be_had(cache: Path) -> None:
    with pytest.raises(SourceError, match=r"x 1 could not be fetched: ERROR: .*--llama-cpp PATH"):
        stock_tree(Pin("x", "1", WRONG, "vendor/llama.cpp"), cache=cache, say=quiet)


def test_full_disk(cache: Path, pin: Pin, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(shutil, "copyfileobj", full)
    with pytest.raises(SourceError, match=r"the disk that holds .* is full.*TIERLAB_CACHE") as caught:
        stock_tree(pin, cache=cache, say=quiet)
    assert caught.value.exit_code == 2
    assert names(cache / "trees") == []


def test_unwritable_cache(tmp_path: Path, pin: Pin) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SourceError, match="TIERLAB_CACHE"):
        stock_tree(pin, cache=tmp_path / "file" / "cache", say=quiet)


@pytest.mark.parametrize("name", ["../../../../evil", "ggml/../../../evil"])
def test_archive_that_leads_outside(tmp_path: Path, name: str) -> None:
    archive(tmp_path / "a.tar.gz", {name: b""})
    with pytest.raises(SourceError, match="leads outside"):
        unpack(tmp_path / "a.tar.gz", "vendor/llama.cpp", tmp_path / "out")


def test_links_in_an_archive_are_left_out(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as tar:
        link = tarfile.TarInfo("x/sub/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
        tar.addfile(tarfile.TarInfo("x/sub/file"))
    assert unpack(tmp_path / "a.tar.gz", "sub", tmp_path / "out") == 1
    assert names(tmp_path / "out") == ["file"]


def test_archive_without_the_subtree(tmp_path: Path) -> None:
    archive(tmp_path / "a.tar.gz", FILES)
    with pytest.raises(SourceError, match="holds nothing below other/"):
        unpack(tmp_path / "a.tar.gz", "other", tmp_path / "out")


def test_no_archive(tmp_path: Path) -> None:
    (tmp_path / "a.tar.gz").write_bytes(b"no archive")
    with pytest.raises(SourceError, match="is no readable source archive"):
        unpack(tmp_path / "a.tar.gz", "sub", tmp_path / "out")


def test_without_patches_patched_is_stock(cache: Path, pin: Pin) -> None:
    stock = stock_tree(pin, cache=cache, say=quiet)
    patched = patched_tree(pin, (), cache=cache, say=quiet)
    assert patched == replace(stock, name="patched")


def test_patched(cache: Path, pin: Pin) -> None:
    stock = stock_tree(pin, cache=cache, say=quiet)
    patched = patched_tree(pin, [PATCH], cache=cache, say=quiet)
    assert (patched.ggml / "src/ggml.c").read_text() == "int one;\nint 2;\nint three;\n"
    assert (stock.ggml / "src/ggml.c").read_bytes() == FILES["ggml/src/ggml.c"]
    assert patched.digest != stock.digest
    assert patched.patches == ("0001-two.patch",)
    assert patched_tree(pin, [PATCH], cache=cache, say=quiet) == patched


def test_a_prefix_of_the_series(cache: Path, pin: Pin) -> None:
    back = Patch("0002", PATCH.content.replace(b"-int two;\n+int 2;", b"-int 2;\n+int two;"))
    both = patched_tree(pin, [PATCH, back], cache=cache, say=quiet)
    assert both.digest == stock_tree(pin, cache=cache, say=quiet).digest
    assert patched_tree(pin, [PATCH, back][:1], cache=cache, say=quiet).digest != both.digest


def test_patch_that_does_not_apply_leaves_no_tree(cache: Path, pin: Pin) -> None:
    with pytest.raises(PatchError, match=r"0001-two.patch: hunk 1 of 1 does not apply to ggml/src/ggml.c"):
        patched_tree(
            pin, [PATCH, replace(PATCH, content=PATCH.content.replace(b"int one", b"int none"))], cache=cache
        )
    assert [name for name in names(cache / "trees") if "patched" in name] == []


def write(root: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root


def test_user_tree(cache: Path, pin: Pin, tmp_path: Path) -> None:
    root = write(tmp_path / "mine", FILES)
    tree = user_tree(root, cache=cache)
    assert (tree.root, tree.ggml) == (root, root / "ggml")
    assert tree.digest == stock_tree(pin, cache=cache, say=quiet).digest
    bare = user_tree(root / "ggml", cache=cache)
    assert (bare.ggml, bare.digest) == (root / "ggml", tree.digest)


def test_user_tree_digest_follows_the_content_alone(cache: Path, tmp_path: Path) -> None:
    root = write(tmp_path / "mine", FILES)
    before = user_tree(root, cache=cache).digest
    (root / "LICENSE").write_text("not compiled")
    write(root, {"ggml/.git/index": b"x"})
    os.utime(root / "ggml/src/ggml.c")
    assert user_tree(root, cache=cache).digest == before
    # Same size, and a time in the past: only the content tells.
    os.utime(root / "ggml/src/ggml.c", (1, 1))
    assert user_tree(root, cache=cache).digest == before
    (root / "ggml/src/ggml.c").write_bytes(FILES["ggml/src/ggml.c"].replace(b"one", b"eno"))
    os.utime(root / "ggml/src/ggml.c", (1, 1))
    assert user_tree(root, cache=cache).digest != before


def test_user_tree_is_not_written_to(cache: Path, tmp_path: Path) -> None:
    root = write(tmp_path / "mine", FILES)
    before = sorted((str(p), p.stat().st_mtime_ns) for p in root.rglob("*"))
    user_tree(root, cache=cache)
    assert sorted((str(p), p.stat().st_mtime_ns) for p in root.rglob("*")) == before


def test_tree_without_ggml(cache: Path, tmp_path: Path) -> None:
    write(tmp_path / "mine", {"src/x.c": b""})
    with pytest.raises(SourceError, match=r"mine holds no ggml: .*include/ggml.h") as caught:
        user_tree(tmp_path / "mine", cache=cache)
    assert caught.value.exit_code == 2


def test_no_such_tree(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no such directory") as caught:
        user_tree(tmp_path / "gone", cache=cache)
    assert caught.value.exit_code == 3
