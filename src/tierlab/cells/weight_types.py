# SPDX-License-Identifier: MIT
"""Weight types of `matrix.yaml`: sizes, code types, and a block layout without holes or overlaps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tierlab.cells.matrix import Field, WeightType
from tierlab.cells.positions import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tierlab.cells.matrix import CodeType
    from tierlab.cells.positions import Document, Keys

_SIZES = {"f16": 2, "bf16": 2, "f32": 4, "f16_nibbles": 8}
"""Bytes of one item of each sized kind; the other kinds are bytes."""
LARGE_BINADES = 3
"""Random blocks hold a few scales this many binades above the ordinary ones."""
BINADES = {
    "f16": (-14, 15 - LARGE_BINADES),
    "f16_nibbles": (-14, 15 - LARGE_BINADES),
    "bf16": (-126, 127 - LARGE_BINADES),
    "f32": (-126, 127 - LARGE_BINADES),
    "e8m0": (-125, 126 - LARGE_BINADES),
    "ue4m3": (-6, 8 - LARGE_BINADES),
}
"""The binades that the normal numbers of each scale format hold, with room for the large scales."""


def load_types(document: Document, codes: Mapping[str, CodeType]) -> dict[str, WeightType]:
    """The weight types in the order of the file. Raises ConfigError for a layout that cannot be."""
    return {name: _type(document, name, entry, codes) for name, entry in document.data["types"].items()}


def _type(document: Document, name: str, entry: dict[str, Any], codes: Mapping[str, CodeType]) -> WeightType:
    where: Keys = ("types", name)
    if entry["codes"] not in codes:
        msg = f"unknown code type {entry['codes']!r} of type {name!r}; {nearest(entry['codes'], codes)}"
        raise document.error((*where, "codes"), msg)
    if entry["block"] % codes[entry["codes"]].block:
        code = codes[entry["codes"]]
        msg = f"impossible combination: blocks of {entry['block']} with {code.name} codes in blocks of "
        raise document.error((*where, "block"), f"{msg}{code.block}; use a multiple.")
    fields = tuple(
        _field(document, (*where, "fields", index), field) for index, field in enumerate(entry["fields"])
    )
    _check_layout(document, where, entry["bytes"], fields)
    return WeightType(
        name=name,
        symbol=entry.get("symbol", name),
        family=entry["family"],
        block=entry["block"],
        bytes=entry["bytes"],
        codes=entry["codes"],
        quantizer=entry["quantizer"],
        activations=tuple(entry.get("activations", ("f32",))),
        fields=fields,
    )


def _field(document: Document, where: Keys, entry: dict[str, Any]) -> Field:
    kind = entry["kind"]
    if entry["bytes"] % _SIZES.get(kind, 1):
        msg = f"a field of kind {kind} takes a multiple of {_SIZES[kind]} bytes, not {entry['bytes']}; "
        raise document.error((*where, "bytes"), msg + "correct it.")
    if (kind in BINADES) != ("exponent" in entry):
        verb = "needs" if kind in BINADES else "takes no"
        msg = f"field {entry['name']!r} of kind {kind} {verb} exponent (the binades of its magnitudes)."
        raise document.error(where, msg)
    exponent = entry.get("exponent")
    if exponent is not None and exponent[0] > exponent[1]:
        msg = f"the range [{exponent[0]}, {exponent[1]}] is empty; write the smaller number first."
        raise document.error((*where, "exponent"), msg)
    binades = (exponent[0], exponent[1]) if exponent else None
    if binades is not None and not BINADES[kind][0] <= binades[0] <= binades[1] <= BINADES[kind][1]:
        low, high = BINADES[kind]
        msg = f"{kind} scales have binades {low} … {high} (larger ones are added), not {exponent}; "
        raise document.error((*where, "exponent"), msg + "choose among them.")
    return Field(entry["name"], entry["at"], entry["bytes"], kind, binades)


def _check_layout(document: Document, where: Keys, size: int, fields: tuple[Field, ...]) -> None:
    at = 0
    for field in sorted(fields, key=lambda item: item.at):
        if field.at != at:
            what = "overlaps the field before it" if field.at < at else "leaves a hole before it"
            index = fields.index(field)
            msg = f"field {field.name!r} at byte {field.at} {what} (expected {at}); correct the layout."
            raise document.error((*where, "fields", index, "at"), msg)
        at += field.size
    if at != size:
        msg = f"the fields fill {at} bytes, a block has {size}; correct bytes or the fields."
        raise document.error((*where, "bytes"), msg)
