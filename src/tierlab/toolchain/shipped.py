# SPDX-License-Identifier: MIT
"""A ggml that others compiled, as a tree: its libraries and headers where sources would be.

What is built of it is the harness alone, linked against the shipped libraries; they are copied beside it,
byte for byte.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from tierlab.errors import BuildError, SourceError, UsageError
from tierlab.toolchain.builds import build_tree
from tierlab.toolchain.cache import built_whole, cache_root, locked
from tierlab.toolchain.digests import digest_of, tree_digest
from tierlab.toolchain.flags import Options
from tierlab.toolchain.sources import Tree, kernels_directory

if TYPE_CHECKING:
    from pathlib import Path

    from tierlab.toolchain.build import Build
    from tierlab.toolchain.engine import Engine, Say

NAME = "shipped"
_WANTED = ("ggml.h", "ggml-backend.h", "ggml-cpu.h", "ggml-alloc.h")


def shipped_tree(libraries: Path, headers: Path, origin: str, *, cache: Path | None = None) -> Tree:
    """The tree of the libraries in the one folder and the headers in the other, made once in the cache.

    Raises UsageError if they are not ggml's public headers.
    """
    missing = [name for name in _WANTED if not (headers / name).is_file()]
    if missing:
        msg = (
            f"--headers {headers}: {', '.join(missing)} is not there, so nothing can be linked against the "
            "shipped ggml. Name the folder of ggml's public headers of that version"
        )
        raise UsageError(msg)
    cache = cache if cache is not None else cache_root()
    recipe = kernels_directory() / "llama.cpp" / "cmake" / "shipped" / "CMakeLists.txt"
    parts = [tree_digest(libraries).digest, tree_digest(headers).digest, recipe.read_text("utf-8")]
    root = cache / "trees" / f"{NAME}-{digest_of(parts)[:16]}"
    with locked(cache / "locks" / f"{NAME}-tree"):
        if not root.is_dir():
            with built_whole(root) as partial:
                ggml = partial / "ggml"
                ggml.mkdir()
                shutil.copyfile(recipe, ggml / recipe.name)
                shutil.copytree(libraries, ggml / "lib")
                (ggml / "include").mkdir()
                for header in sorted(headers.glob("*.h")):
                    shutil.copyfile(header, ggml / "include" / header.name)
    ggml = root / "ggml"
    return Tree(NAME, root, ggml, tree_digest(ggml, cache / "digests").digest, origin)


def build_shipped(engine: Engine, tree: Tree, *, loadable: bool, say: Say) -> Build:
    """The harness against the shipped libraries. SourceError, with the first message, if it does not link."""
    options = Options(kleidiai=False, loadable=loadable)
    try:
        return build_tree(engine, tree, options, say=say)
    except BuildError as error:
        msg = (
            f"the harness cannot be linked against the shipped ggml, so nothing ran: {error}. Give the "
            "headers of that version with --headers (Debian: libggml-dev), and every library that it needs"
        )
        raise SourceError(msg) from error
