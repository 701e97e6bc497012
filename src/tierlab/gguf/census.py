# SPDX-License-Identifier: MIT
"""The census of a model: what is in the file, by type and by role."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tierlab.gguf.labels import Label, fallbacks, labels
from tierlab.gguf.model import Model, file_sha256
from tierlab.gguf.roles import EMBEDDING_NAME, ROLES, role, tied

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tierlab.gguf.header import Tensor


@dataclass(frozen=True)
class Count:
    """Tensors of one kind: how many, their bytes and their elements."""

    tensors: int
    nbytes: int
    elements: int


@dataclass(frozen=True)
class Part:
    """One file of the model; `sha256` is empty where it was not asked for."""

    path: str
    size: int
    sha256: str
    version: int
    order: str
    tensors: int
    hole: int


@dataclass(frozen=True)
class Census:
    """`types` and `roles` are ordered by bytes and by ROLES; `roles` maps role → type → count."""

    model: Model
    architecture: str
    files: tuple[Part, ...]
    types: dict[str, Count]
    roles: dict[str, dict[str, Count]]
    tied: bool
    labels: tuple[Label, ...]
    fallbacks: tuple[Tensor, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors, without header and padding."""
        return sum(count.nbytes for count in self.types.values())

    @property
    def lies(self) -> tuple[Label, ...]:
        """The labels that the contents contradict."""
        return tuple(label for label in self.labels if label.lies)

    @property
    def embedding_type(self) -> str:
        found = (tensor.type.name for tensor in self.model.tensors if tensor.name == EMBEDDING_NAME)
        return next(found, "")


def census(model: Model, *, hashed: bool = True) -> Census:
    """Count a model's tensors. `hashed`: read every file once for its SHA-256."""
    architecture = model.text("general.architecture")
    found = labels(model)
    by_role = {
        kind: counts
        for kind in ROLES
        if (counts := _counted((t for t in model.tensors if role(t) == kind), lambda t: t.type.name))
    }
    return Census(
        model=model,
        architecture=architecture,
        files=tuple(
            Part(
                str(part.path), part.size, file_sha256(part.path) if hashed else "", part.version,
                "little" if part.order == "<" else "big", len(part.tensors), part.hole,
            )
            for part in model.parts
        ),
        types=_counted(model.tensors, lambda tensor: tensor.type.name),
        roles=by_role,
        tied=tied(architecture, frozenset(tensor.name for tensor in model.tensors)),
        labels=found,
        fallbacks=fallbacks(model, found),
    )  # fmt: skip


def _counted(tensors: Iterable[Tensor], key: Callable[[Tensor], str]) -> dict[str, Count]:
    """Counts by `key`, the most bytes first."""
    sums: dict[str, tuple[int, int, int]] = {}
    for tensor in tensors:
        number, nbytes, elements = sums.get(key(tensor), (0, 0, 0))
        sums[key(tensor)] = number + 1, nbytes + tensor.nbytes, elements + tensor.elements
    ordered = sorted(sums, key=lambda name: (-sums[name][1], name))
    return {name: Count(*sums[name]) for name in ordered}
