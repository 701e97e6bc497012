# SPDX-License-Identifier: MIT
"""Profiles and backend variants of `matrix.yaml`, with the promises that no CPU could keep refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tierlab.cells.matrix import Variant
from tierlab.cells.model import Profile

if TYPE_CHECKING:
    from tierlab.cells.positions import Document, Keys

_IMPLIES = (("sve2", "sve"), ("sme2", "sme"), ("sme_fa64", "sme"))


def load_profiles(document: Document) -> dict[str, Profile]:
    """The profiles in the order of the file. Raises ConfigError for duplicates and impossible promises."""
    profiles: dict[str, Profile] = {}
    machines: dict[tuple[str, str], str] = {}
    for index, entry in enumerate(document.data["profiles"]):
        where: Keys = ("profiles", index)
        name = entry["name"]
        if name in profiles:
            msg = f"duplicate profile {name!r}; its cells would carry one id twice. Rename or remove one."
            raise document.error((*where, "name"), msg)
        machine = (entry["emulator"], entry["cpu"])
        if machine in machines:
            msg = (
                f"profile {name!r} is the same machine as {machines[machine]!r}; it would test nothing new. "
            )
            raise document.error((*where, "cpu"), msg + "Remove one.")
        machines[machine] = name
        _check_promise(document, where, entry)
        profiles[name] = Profile(
            name=name,
            emulator=entry["emulator"],
            cpu=entry["cpu"],
            features=frozenset(entry["features"]),
            vector_bits=entry.get("vector_bits"),
            streaming_bits=entry.get("streaming_bits"),
            products=tuple(entry.get("products", ())),
            note=entry.get("note", ""),
        )
    return profiles


def _check_promise(document: Document, where: Keys, entry: dict[str, Any]) -> None:
    features = entry["features"]
    for strong, weak in _IMPLIES:
        if strong in features and weak not in features:
            place = (*where, "features", features.index(strong))
            msg = f"impossible combination: {strong} without {weak} in profile {entry['name']!r}; add {weak}."
            raise document.error(place, msg)
    if entry["emulator"] == "qemu-10.0" and "sme2" in features:
        msg = "impossible combination: qemu-10.0 has no SME2; use qemu-11.1 or drop sme2."
        raise document.error((*where, "emulator"), msg)
    _check_length(document, where, entry, unit="sve", key="vector_bits")
    _check_length(document, where, entry, unit="sme", key="streaming_bits")


def _check_length(document: Document, where: Keys, entry: dict[str, Any], *, unit: str, key: str) -> None:
    bits = entry.get(key)
    if (bits is None) == (unit in entry["features"]):
        have = f"{unit} without {key}" if bits is None else f"{key} without {unit}"
        advice = f"state the length or drop {unit}." if bits is None else f"drop {key} or add {unit}."
        place = (*where, "features") if bits is None else (*where, key)
        raise document.error(place, f"impossible combination: {have} in profile {entry['name']!r}; {advice}")
    if bits is None:
        return
    # Arm ARM: SVE lengths are multiples of 128 bits up to 2048, streaming lengths powers of two among them.
    possible = 128 <= bits <= 2048 and bits % 128 == 0 and (unit == "sve" or bits & (bits - 1) == 0)
    if not possible:
        rule = "a multiple of 128 up to 2048" if unit == "sve" else "128, 256, 512, 1024 or 2048"
        raise document.error((*where, key), f"{key} {bits} is no length that exists; use {rule}.")


def load_variants(document: Document) -> tuple[Variant, ...]:
    """The loadable backends in the order of their score. Raises ConfigError for duplicates."""
    variants: dict[str, Variant] = {}
    for index, entry in enumerate(document.data["variants"]):
        if entry["name"] in variants:
            msg = f"duplicate variant {entry['name']!r}; one of them could never load. Remove one."
            raise document.error(("variants", index, "name"), msg)
        variants[entry["name"]] = Variant(entry["name"], frozenset(entry["needs"]))
    return tuple(variants.values())
