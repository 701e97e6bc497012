# SPDX-License-Identifier: MIT
"""`invoke gguf diff A B`: do two models hold the same weights? Either may be a safetensors checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierlab.gguf.diff import Diff, diff_checkpoints, diff_conversion, diff_models
from tierlab.gguf.model import Model, file_sha256, open_model
from tierlab.gguf.safetensors_file import Checkpoint, is_safetensors, open_checkpoint

if TYPE_CHECKING:
    from pathlib import Path


def compared(a: Path, b: Path, *, hashed: bool) -> tuple[Diff, tuple[str, str]]:
    """The difference (a checkpoint is always its side A), and a line that identifies each side's files."""
    left, right = _opened(a), _opened(b)
    if isinstance(right, Checkpoint) and isinstance(left, Model):
        left, right = right, left
    digests = _identity(left, hashed), _identity(right, hashed)
    if isinstance(left, Model) and isinstance(right, Model):
        return diff_models(left, right), digests
    if isinstance(left, Checkpoint) and isinstance(right, Model):
        return diff_conversion(left, right), digests
    assert isinstance(left, Checkpoint)
    assert isinstance(right, Checkpoint)
    return diff_checkpoints(left, right), digests


def _opened(path: Path) -> Model | Checkpoint:
    return open_checkpoint(path) if is_safetensors(path) else open_model(path)


def _identity(model: Model | Checkpoint, hashed: bool) -> str:
    paths = [part.path for part in model.parts] if isinstance(model, Model) else list(model.files)
    told = []
    for path in paths:
        digest = f", sha256 {file_sha256(path)}" if hashed else ""
        told.append(f"{path}, {path.stat().st_size:,} bytes{digest}")
    return "; ".join(told)
