# SPDX-License-Identifier: MIT
"""Published source packages as trees: pinned or held to the index's hash, without a network."""

from __future__ import annotations

import hashlib
import io
import shutil
import tarfile
from typing import TYPE_CHECKING

import pytest

from tierlab.errors import ConfigError, SourceError
from tierlab.toolchain.fetch import fetched_by_index
from tierlab.toolchain.sdists import known_sdists, sdist_tree
from tierlab.toolchain.sources import Pin, load_pin

if TYPE_CHECKING:
    from pathlib import Path

FILES = ("ggml/CMakeLists.txt", "ggml/src/CMakeLists.txt", "ggml/src/ggml-cpu/ggml-cpu.c", "src/llama.cpp")


def archive(path: Path, version: str, files: tuple[str, ...] = FILES) -> str:
    """A source package that pip takes: needs nothing to tell its metadata. Returns its SHA-256."""
    metadata = f"Metadata-Version: 2.1\nName: x\nVersion: {version}\n"
    backend = (
        "import os\n"
        "def prepare_metadata_for_build_wheel(directory, settings=None):\n"
        f"    os.makedirs(directory + '/x-{version}.dist-info')\n"
        f"    open(directory + '/x-{version}.dist-info/METADATA', 'w').write({metadata!r})\n"
        f"    return 'x-{version}.dist-info'\n"
        "def build_wheel(*_): raise SystemExit('nobody builds a wheel')\n"
    )
    project = "[build-system]\nrequires = []\nbuild-backend = 'own'\nbackend-path = ['.']\n"
    contents = {"pyproject.toml": project, "own.py": backend, "PKG-INFO": metadata}
    contents |= {f"vendor/llama.cpp/{name}": f"{name} of {version}\n" for name in files}
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as tar:
        for name, text in contents.items():
            member = tarfile.TarInfo(f"x-{version}/{name}")
            member.size, member.mtime = len(text), 1_000_000_000
            tar.addfile(member, io.BytesIO(text.encode()))
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package index in a folder, and a pip that knows no other."""
    folder = tmp_path / "index" / "x"
    folder.mkdir(parents=True)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "index").as_uri())
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    return folder


def publish(index: Path, version: str, sha256: str = "", files: tuple[str, ...] = FILES) -> str:
    """Offer a version under the hash that the index claims (default: the true one); returns the true one."""
    found = archive(index / f"x-{version}.tar.gz", version, files)
    link = f'<a href="x-{version}.tar.gz#sha256={sha256 or found}">x-{version}.tar.gz</a>\n'
    page = index / "index.html"
    page.write_text((page.read_text() if page.exists() else "<!DOCTYPE html>\n") + link)
    return found


def quiet(_: str) -> None:
    """Say nothing."""


PIN = Pin("x", "9.9", "0" * 64, "vendor/llama.cpp")


def test_the_listed_packages_have_hashes_and_the_pin_is_none_of_another_hash() -> None:
    known = known_sdists()
    assert "0.3.16" in known
    pin = load_pin()
    assert known.get(pin.version, pin.sha256) == pin.sha256


@pytest.mark.parametrize(
    ("text", "words"),
    [("- a\n", "must map versions"), ("0.3.1: abc\n", r"sdists\.yaml:1:8: the hash of 0\.3\.1 must be 64")],
)
def test_a_bad_list(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "sdists.yaml").write_text(text)
    with pytest.raises(ConfigError, match=words):
        known_sdists(tmp_path / "sdists.yaml")


def test_a_version_is_fetched_once_and_only_ggml_unpacked(index: Path, tmp_path: Path) -> None:
    sha256 = publish(index, "1.2")
    cache = tmp_path / "cache"
    tree = sdist_tree("1.2", cache=cache, pin=PIN, say=quiet)
    assert (tree.name, tree.origin) == ("sdist-1.2", f"x 1.2, sha256 {sha256}")
    assert not tree.mutable
    assert (tree.ggml / "src/ggml-cpu/ggml-cpu.c").read_text() == "ggml/src/ggml-cpu/ggml-cpu.c of 1.2\n"
    assert not (tree.root / "src").exists()
    assert {path.name for path in (cache / "downloads").iterdir()} == {f"x-1.2-{sha256[:16]}", "x-1.2.sha256"}
    shutil.rmtree(index)
    shutil.rmtree(cache / "downloads")
    assert sdist_tree("1.2", cache=cache, pin=PIN, say=quiet) == tree


def test_an_archive_that_is_not_what_the_index_says_is_refused(index: Path, tmp_path: Path) -> None:
    publish(index, "1.2", sha256="1" * 64)
    with pytest.raises(SourceError, match="another hash than pinned: wanted sha256 that of the index"):
        sdist_tree("1.2", cache=tmp_path / "cache", pin=PIN, say=quiet)
    assert list((tmp_path / "cache/downloads").iterdir()) == []


def test_an_archive_that_changed_since_the_first_time_is_refused(index: Path, tmp_path: Path) -> None:
    publish(index, "1.2")
    downloads = tmp_path / "downloads"
    path, sha256 = fetched_by_index("x", "1.2", downloads, quiet)
    assert fetched_by_index("x", "1.2", downloads, quiet) == (path, sha256)
    path.write_bytes(b"another")
    (index / "index.html").unlink()
    publish(index, "1.2", files=FILES[:3])
    with pytest.raises(SourceError, match=f"wanted sha256 {sha256}"):
        fetched_by_index("x", "1.2", downloads, quiet)


def test_a_version_that_is_not_there(index: Path, tmp_path: Path) -> None:
    publish(index, "1.2")
    with pytest.raises(SourceError, match=r"x 1\.3 could not be fetched: .*No matching distribution"):
        sdist_tree("1.3", cache=tmp_path / "cache", pin=PIN, say=quiet)


def test_a_package_older_than_loadable_backends(index: Path, tmp_path: Path) -> None:
    publish(index, "1.2", files=FILES[:2])
    with pytest.raises(SourceError, match=r"older than ggml's loadable backends.*Take 0\.3\.2 or newer"):
        sdist_tree("1.2", cache=tmp_path / "cache", pin=PIN, say=quiet)
    assert list((tmp_path / "cache/trees").iterdir()) == []
