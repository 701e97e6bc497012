# SPDX-License-Identifier: MIT
"""ggml's loadable CPU backends as its build files declare them, and which of them a CPU gets.

The rule is that of ggml_backend_cpu_aarch64_score (arch/arm/cpu-feats.cpp): a backend compiled for a feature
that the CPU lacks scores 0; else 1 and a power of two for each feature; the highest score is loaded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tierlab.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

CMAKE_FILE = "src/CMakeLists.txt"
"""Below ggml's own directory."""

WORTH = {"dotprod": 1 << 1, "fp16": 1 << 2, "sve": 1 << 3, "i8mm": 1 << 4, "sve2": 1 << 5, "sme": 1 << 6}

_WORDS = {
    "DOTPROD": "dotprod",
    "FP16_VECTOR_ARITHMETIC": "fp16",
    "SVE": "sve",
    "MATMUL_INT8": "i8mm",
    "SVE2": "sve2",
    "SME": "sme",
}
_NO_FEATURE = frozenset({"NOSVE"})
"""Words that only steer the compiler."""

_CALL = re.compile(r"^\s*ggml_add_cpu_backend_variant\(\s*((?:android_arm|arm|apple_)\S*?)((?:\s+\w+)*)\s*\)")
_SYSTEMS = (("android_", "android"), ("apple_", "apple"), ("arm", "linux"))


@dataclass(frozen=True)
class Backend:
    """A loadable backend: `needs` are the features it is compiled for; `place` is file:line."""

    name: str
    needs: frozenset[str]
    place: str = ""

    @property
    def worth(self) -> int:
        """Its score on a CPU that has all it needs."""
        return 1 + sum(WORTH[name] for name in self.needs)

    def lacks(self, features: Collection[str]) -> tuple[str, ...]:
        """The needed features that the CPU has not, in the order of their worth."""
        return tuple(name for name in WORTH if name in self.needs and name not in features)

    def score(self, features: Collection[str]) -> int:
        """The score on a CPU with these features; 0: not eligible."""
        return 0 if self.lacks(features) else self.worth


def loaded(backends: Collection[Backend], features: Collection[str]) -> Backend | None:
    """The backend with the highest score, None if no score is above 0."""
    best = max(backends, key=lambda item: item.score(features), default=None)
    return best if best is not None and best.score(features) else None


def sum_of(backend: Backend) -> str:
    """The score as a sum: `1 + 2 dotprod + 4 fp16`."""
    return " + ".join(["1", *(f"{worth} {name}" for name, worth in WORTH.items() if name in backend.needs)])


def declared_sets(ggml: Path) -> Mapping[str, tuple[Backend, ...]]:
    """The sets for `linux`, `android` and `apple` that ggml's build file declares.

    Raises SourceError if the file names none, or a feature that has no worth here: then the rule has changed.
    """
    path = ggml / CMAKE_FILE
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        msg = f"{path}: {error.strerror}; the declared variants are unknown. Check the tree"
        raise SourceError(msg) from error
    sets: dict[str, list[Backend]] = {system: [] for _, system in _SYSTEMS}
    for number, line in enumerate(lines, 1):
        match = _CALL.match(line)
        if match is None:
            continue
        name, words = match[1], set(match[2].split()) - _NO_FEATURE
        strange = words - set(_WORDS)
        if strange:
            msg = (
                f"{path}:{number}: {name} needs {', '.join(sorted(strange))}, of which the lab knows "
                "no score; ggml's rule cannot be applied. Add the feature and its worth to the lab"
            )
            raise SourceError(msg)
        system = next(system for prefix, system in _SYSTEMS if name.startswith(prefix))
        needs = frozenset(_WORDS[word] for word in words)
        sets[system].append(Backend(name, needs, f"ggml/{CMAKE_FILE}:{number}"))
    if not any(sets.values()):
        msg = f"{path} declares no Arm CPU variant; the sets are unknown. Look for what replaced them"
        raise SourceError(msg)
    return {system: tuple(found) for system, found in sets.items()}


def backend_of(file: str) -> str:
    """`libggml-cpu-armv8.2_1.so` → `armv8.2_1`."""
    return file.removeprefix("libggml-cpu-").removesuffix(".so")
