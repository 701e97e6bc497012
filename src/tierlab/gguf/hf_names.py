# SPDX-License-Identifier: MIT
"""From the names of a checkpoint's tensors to those of GGUF, and what conversion does to the values.

The names come from the registry's `gguf` package, the same table that converters use.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import gguf
import numpy as np

from tierlab.errors import ModelFileError
from tierlab.gguf.pairs import AS_IT_IS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tierlab.gguf.data import F64, Stored
    from tierlab.gguf.model import Model

PERMUTED, TRANSPOSED, PLUS_ONE = "rows permuted for rope", "transposed", "plus one"

PERMUTING = frozenset({"llama", "deci", "arcee", "granite", "granitemoe", "minicpm", "smollm3", "llada"})
"""Architectures whose converters reorder the rows of the query and key matrices: llama.cpp rotates
neighbours, Hugging Face's code the two halves of a head."""
SHIFTING = re.compile(r"gemma[23]?n?")
"""Gemma stores its norms less one."""

_IGNORED = re.compile(r"rotary_emb\.inv_freq$|\.attn\.(masked_)?bias$|attention\.masked_bias$")
_EXPERT = re.compile(r"\.experts\.(\d+)\.")
_PREFIXES = ("", "model.", "language_model.", "model.language_model.")


@dataclass(frozen=True)
class Source:
    """Where a GGUF tensor's values come from: one tensor of the checkpoint, or one for each expert."""

    parts: tuple[Stored, ...]

    @property
    def name(self) -> str:
        more = f" (+ {len(self.parts) - 1})" if len(self.parts) > 1 else ""
        return self.parts[0].name + more

    @property
    def shape(self) -> tuple[int, ...]:
        """With the row length first; the number of experts last."""
        many = (len(self.parts),) if len(self.parts) > 1 else ()
        return self.parts[0].shape + many

    @property
    def elements(self) -> int:
        return sum(part.elements for part in self.parts)

    def values(self, begin: int, count: int) -> tuple[F64, F64]:
        """As `Stored.values`, of all parts one after the other."""
        each = self.parts[0].elements
        values, steps = [], []
        while count:
            part, inside = divmod(begin, each)
            taken = min(count, each - inside)
            value, step = self.parts[part].values(inside, taken)
            values.append(value)
            steps.append(step)
            begin, count = begin + taken, count - taken
        return np.concatenate(values), np.concatenate(steps)


def sources(tensors: Mapping[str, Stored], model: Model) -> tuple[dict[str, Source], tuple[str, ...]]:
    """GGUF name → source, and the checkpoint's names that none of the model's tensors is made of.

    ModelFileError for an architecture whose names the package does not know.
    """
    architecture = model.text("general.architecture")
    known = {text: arch for arch, text in gguf.MODEL_ARCH_NAMES.items()}
    if architecture not in known:
        msg = f"{model.name}: the names of architecture {architecture!r} are not known; nothing was compared"
        raise ModelFileError(msg)
    blocks = model.integer(f"{architecture}.block_count") or 0
    names = gguf.get_tensor_name_map(known[architecture], blocks)
    groups: dict[str, dict[int, Stored]] = {}
    lost = []
    for name, tensor in tensors.items():
        if _IGNORED.search(name):
            continue
        expert = _EXPERT.search(name)
        wanted = _mapped(names, _EXPERT.sub(".experts.", name))
        if wanted is None:
            lost.append(name)
            continue
        groups.setdefault(wanted, {})[int(expert[1]) if expert else 0] = tensor
    found = {}
    for wanted, members in groups.items():
        parts = tuple(members[at] for at in sorted(members))
        if sorted(members) == list(range(len(members))) and len({part.shape for part in parts}) == 1:
            found[wanted] = Source(parts)
        else:
            lost += [part.name for part in parts]
    return found, tuple(lost)


def _mapped(names: gguf.TensorNameMap, name: str) -> str | None:
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            short = name[len(prefix) :]
            for candidate in (short, f"model.{short}"):
                found: str | None = names.get_name(candidate, try_suffixes=(".weight", ".bias"))
                if found is not None:
                    return found
    return None


def conversions(name: str, architecture: str, source: Source, target: tuple[int, ...]) -> tuple[str, ...]:
    """What a converter may have done, the expected first. Empty if no conversion gives this shape."""
    if source.shape == target:
        rotated = re.search(r"\.attn_[qk]\.(weight|bias)$", name) is not None
        if rotated:
            return (PERMUTED, AS_IT_IS) if architecture in PERMUTING else (AS_IT_IS, PERMUTED)
        if SHIFTING.fullmatch(architecture) and "norm" in name:
            return (PLUS_ONE, AS_IT_IS)
        return (AS_IT_IS,)
    if len(target) == 2 and source.shape == target[::-1] and len(source.parts) == 1:
        return (TRANSPOSED,)
    squeezed = tuple(size for size in source.shape if size != 1)
    return (AS_IT_IS,) if squeezed == tuple(size for size in target if size != 1) else ()


def heads(name: str, model: Model) -> int:
    """Number of heads of a query or key matrix; 0 if the metadata do not say."""
    architecture = model.text("general.architecture")
    key = f"{architecture}.attention.head_count"
    counts = model.items(f"{key}_kv") if ".attn_k." in name else None
    counts = counts or model.items(key) or [0]
    layer = re.match(r"blk\.(\d+)\.", name)
    return counts[min(int(layer[1]), len(counts) - 1)] if layer else counts[0]


def permuted_rows(rows: int, count: int) -> NDArray[np.intp]:
    """For `count` heads: the row of the checkpoint that each of `rows` rows of the GGUF is. Whole heads
    only."""
    size = rows // count
    row: NDArray[np.intp] = np.arange(rows)
    head, inside = np.divmod(row, size)
    pair, half = np.divmod(inside, 2)
    found: NDArray[np.intp] = head * size + half * (size // 2) + pair
    return found
