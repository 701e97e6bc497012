# SPDX-License-Identifier: MIT
"""The Android set of variants, compiled for Linux: the same kernels, other combinations of features.

ggml declares each set under a question for CMake's system. A copy of the tree in which the two questions have
changed places declares the Android set on Linux; nothing that is compiled is touched.
"""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from tierlab.cells.matrix import Variant
from tierlab.dispatch.variants import CMAKE_FILE
from tierlab.errors import SourceError
from tierlab.run.survey import BUILD, Survey, opened
from tierlab.toolchain.builds import build_tree
from tierlab.toolchain.cache import built_whole, cache_root, locked
from tierlab.toolchain.choose import choose_engine
from tierlab.toolchain.digests import tree_digest
from tierlab.toolchain.flags import Options
from tierlab.toolchain.sources import Tree

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tierlab.dispatch.variants import Backend
    from tierlab.toolchain.engine import Say

TYPES = ("q4_0", "q8_0", "q5_k", "iq4_nl", "iq4_xs")
"""Without F16: android_armv8.6_1 sums it in binary16, and the judge's schemes know the Linux variants."""

_ARM = 'GGML_SYSTEM_ARCH STREQUAL "ARM"'
_LINUX, _ANDROID, _NOBODY = (f'CMAKE_SYSTEM_NAME MATCHES "{name}"' for name in ("Linux", "Android", "Nobody"))


def swapped(text: str) -> str:
    """ggml's build file with the Android set declared on Linux. SourceError if it is not built as known."""
    start = text.find(_ARM)
    head, tail = text[:start], text[start:]
    at, then = tail.find(_LINUX), tail.find(_ANDROID)
    if start < 0 or not 0 <= at < then:
        msg = (
            f"ggml/{CMAKE_FILE} does not ask for Linux and then for Android as it did; the Android set was "
            "not built. Look for how the sets are declared now"
        )
        raise SourceError(msg)
    return head + tail.replace(_LINUX, _NOBODY, 1).replace(_ANDROID, _LINUX, 1)


def android_tree(stock: Tree) -> Tree:
    """The copy, made once for each tree under the cache."""
    root = cache_root() / "trees" / f"android-{stock.digest[:16]}"
    with locked(cache_root() / "locks" / "android-tree"):
        if not root.is_dir():
            with built_whole(root) as partial:
                ggml = partial / "ggml"
                shutil.copytree(stock.ggml, ggml, symlinks=True, dirs_exist_ok=True)
                path = ggml / CMAKE_FILE
                text = swapped(path.read_text(encoding="utf-8"))
                path.unlink()
                path.write_text(text, encoding="utf-8")
    ggml = root / "ggml"
    return Tree("android", root, ggml, tree_digest(ggml).digest, f"{stock.origin}, Android's set of variants")


@contextmanager
def android_survey(survey: Survey, matrix_file: Path, say: Say) -> Iterator[Survey]:
    """The survey's questions asked of the Android set. Raises BuildError, SourceError."""
    engine = choose_engine(survey.plan.engine, lambda _: None)
    tree = android_tree(survey.tree)
    build = build_tree(engine, tree, Options(assertions=False), say=say)
    plan = replace(survey.plan, run_dir=survey.plan.run_dir / "android", builds={BUILD: build})
    with opened(plan, matrix_file) as bench:
        yield Survey(bench, tree)


def as_variants(backends: Sequence[Backend]) -> list[Variant]:
    """Declared backends as the matrix's rules take them: by what is compiled in.

    For the compiler `+sve2` holds `+sve`, which android_armv9.0_1 does not declare; the score asks for what
    is declared, the kernels' own questions see what is compiled.
    """
    implied = {backend.name: frozenset({"sve"} if "sve2" in backend.needs else ()) for backend in backends}
    return [Variant(backend.name, backend.needs | implied[backend.name]) for backend in backends]
