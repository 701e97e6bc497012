# SPDX-License-Identifier: MIT
"""A ggml that others compiled: the harness alone is built, and it drives the very bytes that were shipped."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest
from harness_rig import Rig

from tierlab.dispatch.shipped import collect
from tierlab.errors import SourceError
from tierlab.toolchain.choose import choose_engine
from tierlab.toolchain.flags import Mode
from tierlab.toolchain.shipped import build_shipped, shipped_tree
from tierlab.toolchain.sources import stock_tree

if TYPE_CHECKING:
    from pathlib import Path

    from tierlab.toolchain.build import Build
    from tierlab.toolchain.engine import Engine

pytestmark = pytest.mark.engine


def pinned() -> Build:
    """The pinned build with all variants, as a packager would make it."""
    return Rig().build(Mode.VARIANTS)


@pytest.fixture(scope="module")
def engine() -> Engine:
    made = choose_engine(say=lambda _: None)
    made.prepare()
    return made


@pytest.fixture(scope="module")
def build(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Build:
    """What a package of the pinned build would hold, built against."""
    taken = tmp_path_factory.mktemp("taken")
    found = collect([pinned().directory], taken)
    assert found.loadable
    headers = stock_tree(say=lambda _: None).ggml / "include"
    return build_shipped(engine, shipped_tree(taken, headers, "a test"), loadable=True, say=lambda _: None)


def test_shipped_bytes_are_what_runs(build: Build) -> None:
    for name in pinned().variants:
        assert (
            hashlib.sha256((build.directory / name).read_bytes()).hexdigest() == pinned().file_digests[name]
        )


def test_library_that_cannot_be_linked_is_refused(engine: Engine, tmp_path: Path) -> None:
    """Under the name of the base library lies another one: what the front library needs is missing."""
    taken = tmp_path / "taken"
    taken.mkdir()
    collect([pinned().directory], taken)
    base = next(taken.glob("libggml-base*"))
    base.write_bytes(next(taken.glob("libggml.so*")).read_bytes())
    headers = stock_tree(say=lambda _: None).ggml / "include"
    with pytest.raises(SourceError, match="cannot be linked against the shipped ggml"):
        build_shipped(engine, shipped_tree(taken, headers, "a test"), loadable=True, say=lambda _: None)
