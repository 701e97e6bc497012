# SPDX-License-Identifier: MIT
"""Products: what their cores have, the nearest profile, and where the emulated model differs."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tierlab.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tierlab.cells.matrix import Matrix
    from tierlab.cells.model import Profile

CHIPS = Path(__file__).with_name("chips.yaml")

PROBED = frozenset(
    {
        *("asimd", "rdm", "fp16", "fcma", "dotprod", "fhm", "i8mm", "bf16", "ebf16"),
        *("sve", "sve_i8mm", "sve_f32mm", "sve_f64mm", "sve_bf16", "sve2", "sve2p1"),
        *("sme", "sme_i16i64", "sme_f64f64", "sme_i8i32", "sme_f16f32", "sme_b16f32", "sme_f32f32"),
        *("sme_fa64", "sme2", "sme2p1"),
    }
)
"""Every feature that the harness' probe has a name for (kernels/harness/cpu_probe.cpp)."""

TIERS = frozenset({"asimd", "fp16", "dotprod", "i8mm", "bf16", "sve", "sve2", "sme", "sme2"})
"""Features by which kernels are chosen; the others are gaps worth a line and no more."""

SYSTEMS = ("linux", "android", "apple")
_REQUIRED = {"title", "cores", "system", "features", "sources"}
_OPTIONAL = {"vector_bits", "streaming_bits", "like", "note"}


@dataclass(frozen=True)
class Chip:
    """A product. Lengths in bits, None where the unit is absent or no source tells; `sources` spelled out."""

    name: str
    title: str
    cores: str
    system: str
    features: frozenset[str]
    sources: tuple[str, ...]
    vector_bits: int | None = None
    streaming_bits: int | None = None
    like: str = ""
    note: str = ""


@dataclass(frozen=True)
class Gaps:
    """Where an emulated model and the silicon differ; each entry in words."""

    missing: tuple[str, ...]
    surplus: tuple[str, ...]
    lengths: tuple[str, ...]

    @property
    def tiers(self) -> tuple[str, ...]:
        """The differing features among those by which kernels are chosen."""
        return tuple(name for name in (*self.missing, *self.surplus) if name in TIERS)


def load_chips(path: Path = CHIPS) -> dict[str, Chip]:
    """The chips of a data file, by name. Raises ConfigError naming the entry that is wrong."""
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
        entries: Mapping[str, Any] = data["chips"]
        sources: Mapping[str, str] = data["sources"]
        return {name: _chip(path, name, entry, sources) for name, entry in entries.items()}
    except (OSError, yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        msg = f"{path} is no file of chips ({error}); nothing was run. Compare it with the one that ships"
        raise ConfigError(msg) from error


def find_chip(chips: Mapping[str, Chip], word: str) -> Chip:
    """The chip of that name (case, blanks and underscores do not matter). UsageError names the nearest."""
    key = "-".join(word.lower().replace("_", " ").split())
    plain = {name.replace("-", ""): name for name in chips}
    found = plain.get(key.replace("-", ""))
    if found is not None:
        return chips[found]
    near = get_close_matches(key, list(chips), n=3, cutoff=0.4)
    hint = f"did you mean {near[0]!r}?" if near else "no name is near."
    others = f" Also near: {', '.join(near[1:])}." if near[1:] else ""
    msg = f"unknown chip {word!r}; nothing was run: {hint}{others} All: {', '.join(sorted(chips))}"
    raise UsageError(msg)


def nearest_profile(matrix: Matrix, chip: Chip, among: Collection[str] = ()) -> Profile:
    """The profile on which kernels are chosen most as on the chip.

    In this order: fewest tiers apart, another vector length counting as two (it picks kernels of its own);
    the same streaming length; the chip's `like`; the order of the matrix file.
    """
    names = list(among or matrix.profiles)

    def distance(name: str) -> tuple[int, bool, bool, int]:
        profile = matrix.profiles[name]
        apart = (profile.features & TIERS) ^ (chip.features & TIERS)
        return (
            len(apart) + 2 * _differ(chip.vector_bits, profile.vector_bits, "sve" in chip.features),
            _differ(chip.streaming_bits, profile.streaming_bits, "sme" in chip.features),
            name != chip.like,
            names.index(name),
        )

    return matrix.profiles[min(names, key=distance)]


def gaps(chip: Chip, features: Collection[str], vector_bits: int, streaming_bits: int) -> Gaps:
    """The chip against what a probe found inside an emulated CPU (features, lengths in bits, 0 for none)."""
    found = frozenset(features) & PROBED
    lengths = []
    for what, unit, has, model in (
        ("SVE vector length", "sve", chip.vector_bits, vector_bits),
        ("SME streaming length", "sme", chip.streaming_bits, streaming_bits),
    ):
        if unit in chip.features and has is None:
            lengths.append(f"{what}: the model has {model} bits, no source tells the silicon's")
        elif (has or 0) != model and unit in chip.features:
            lengths.append(f"{what}: {has} bits in silicon, {model or 'none'} in the model")
    return Gaps(tuple(sorted(chip.features - found)), tuple(sorted(found - chip.features)), tuple(lengths))


def _differ(chip: int | None, profile: int | None, has_unit: bool) -> bool:
    unknown = has_unit and chip is None
    return not unknown and chip != profile


def _chip(path: Path, name: str, entry: Mapping[str, Any], sources: Mapping[str, str]) -> Chip:
    keys = set(entry)
    features = frozenset(entry.get("features", ()))
    wrong = ""
    if _REQUIRED - keys or keys - _REQUIRED - _OPTIONAL:
        wrong = f"keys missing: {sorted(_REQUIRED - keys)}, unknown: {sorted(keys - _REQUIRED - _OPTIONAL)}"
    elif features - PROBED:
        wrong = f"features without a name in the probe: {sorted(features - PROBED)}"
    elif entry["system"] not in SYSTEMS:
        wrong = f"system {entry['system']!r} is none of {', '.join(SYSTEMS)}"
    elif not entry["sources"]:
        wrong = "no source"
    elif ("vector_bits" in keys and "sve" not in features) or (
        "streaming_bits" in keys and "sme" not in features
    ):
        wrong = "a vector length without its unit"
    if wrong:
        msg = f"{path}: chip {name!r}: {wrong}; nothing was run. Correct the entry"
        raise ConfigError(msg)
    cited = tuple(_cited(word, sources) for word in entry["sources"])
    return Chip(**{**entry, "name": name, "features": features, "sources": cited})


def _cited(word: str, sources: Mapping[str, str]) -> str:
    """`llvm` stands for its entry, `socs 96` for the entry and the number; else the text itself."""
    key, _, number = word.partition(" ")
    if key not in sources:
        return word
    return f"{' '.join(sources[key].split())}{number}"
