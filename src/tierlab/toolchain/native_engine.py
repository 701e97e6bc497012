# SPDX-License-Identifier: MIT
"""The engine on real Arm: the same tree as rootfs, made for AArch64, and no emulator in front.

It runs the same cells as the emulated engines, so that the emulator itself can be checked against silicon.
"""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from tierlab.errors import EngineError
from tierlab.toolchain.rootfs_engine import RootfsEngine

if TYPE_CHECKING:
    from pathlib import Path

    from tierlab.toolchain.engine import Say
    from tierlab.toolchain.image import Recipe


def is_arm(machine: str | None = None) -> bool:
    """Whether this machine executes AArch64 programs itself."""
    return (machine or platform.machine()).lower() in {"aarch64", "arm64"}


class NativeEngine(RootfsEngine):
    """See engine.Engine; programs for AArch64 are started as they are."""

    name = "native"
    emulated = False

    def __init__(self, say: Say = print, cache: Path | None = None, recipe: Recipe | None = None) -> None:
        if not is_arm():
            msg = (
                f"the native engine needs an AArch64 processor and this machine is {platform.machine()}; "
                "nothing was started. Use --engine docker or --engine rootfs, which emulate one"
            )
            raise EngineError(msg)
        super().__init__(say, cache, recipe)
