# SPDX-License-Identifier: MIT
"""Presets of `matrix.yaml`: rows with every name known and every combination possible."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tierlab.cells.matrix import Preset, Row
from tierlab.cells.positions import nearest
from tierlab.cells.selectors import resolve
from tierlab.cells.shapes import parse_shape

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tierlab.cells.matrix import CodeType, PathInfo, Suite, WeightType
    from tierlab.cells.model import Profile
    from tierlab.cells.positions import Document, Keys
    from tierlab.cells.shapes import ShapeText

Data = dict[str, Any]


def load_presets(
    document: Document,
    profiles: Mapping[str, Profile],
    codes: Mapping[str, CodeType],
    types: Mapping[str, WeightType],
    suites: Mapping[str, Suite],
    paths: Mapping[str, PathInfo],
) -> dict[str, Preset]:
    """Every preset, checked. Raises ConfigError."""
    loader = _Loader(document, profiles, codes, types, suites, paths, _shapes(document))
    return {name: loader.preset(name, entry) for name, entry in document.data["presets"].items()}


def _shapes(document: Document) -> dict[str, tuple[ShapeText, ...]]:
    lists: dict[str, tuple[ShapeText, ...]] = {}
    for name, texts in document.data["shapes"].items():
        shapes = []
        for index, text in enumerate(texts):
            try:
                shapes.append(parse_shape(text))
            except ValueError as problem:
                msg = f"{problem}; correct it."
                raise document.error(("shapes", name, index), msg) from problem
        lists[name] = tuple(shapes)
    return lists


@dataclass(frozen=True)
class _Loader:
    document: Document
    profiles: Mapping[str, Profile]
    codes: Mapping[str, CodeType]
    types: Mapping[str, WeightType]
    suites: Mapping[str, Suite]
    paths: Mapping[str, PathInfo]
    shapes: Mapping[str, tuple[ShapeText, ...]]

    def preset(self, name: str, entry: Data) -> Preset:
        where: Keys = ("presets", name)
        builds = self._exact(where, entry, "builds", self.document.data["builds"])
        profiles = self._globbed(where, entry, "profiles", self.profiles)
        rows = tuple(
            self._row((*where, "plan", index), row, profiles) for index, row in enumerate(entry["plan"])
        )
        return Preset(name, builds, profiles, rows, entry.get("note", ""))

    def _row(self, where: Keys, entry: Data, preset_profiles: tuple[str, ...]) -> Row:
        suite = self.suites[self._known((*where, "suite"), entry["suite"], self.suites, "suite")]
        quantize = suite.op == "quantize"
        known_types: Mapping[str, Any] = self.codes if quantize else self.types
        types = self._globbed(where, entry, "types", known_types)
        shapes = self._row_shapes(where, entry)
        defaults = _DEFAULTS[suite.op]
        row = Row(
            suite=suite,
            types=types,
            activation_types=tuple(entry.get("activation_types", ("f32",))),
            shapes=shapes,
            weights=tuple(entry.get("weights", defaults.weights)),
            activations=tuple(entry.get("activations", defaults.activations)),
            paths=self._exact(where, entry, "paths", self.paths) if "paths" in entry else ("default",),
            threads=tuple(entry.get("threads", (1,))),
            profiles=self._row_profiles(where, entry, preset_profiles),
        )
        self._check_inputs(where, row)
        self._check_shapes(where, entry, row)
        self._check_activations(where, row)
        self._check_paths(where, row)
        return row

    def _row_shapes(self, where: Keys, entry: Data) -> tuple[ShapeText, ...]:
        names = self._exact(where, entry, "shapes", self.shapes)
        return tuple(dict.fromkeys(shape for name in names for shape in self.shapes[name]))

    def _row_profiles(self, where: Keys, entry: Data, preset_profiles: tuple[str, ...]) -> tuple[str, ...]:
        if "profiles" not in entry:
            return preset_profiles
        wanted = self._globbed(where, entry, "profiles", self.profiles)
        left = tuple(name for name in preset_profiles if name in wanted)
        if not left:
            msg = "none of these profiles is in the preset; the row would select nothing. "
            raise self.document.error((*where, "profiles"), msg + "Add one to the preset.")
        return left

    def _check_inputs(self, where: Keys, row: Row) -> None:
        """`none` belongs to the operations that read no such operand, and to no other."""
        defaults = _DEFAULTS[row.suite.op]
        for key, have, default in (
            ("weights", row.weights, defaults.weights),
            ("activations", row.activations, defaults.activations),
        ):
            if (have == ("none",)) != (default == ("none",)) or ("none" in have and len(have) > 1):
                verb = "reads no" if default == ("none",) else "needs"
                msg = f"impossible combination: {row.suite.op} {verb} {key}, not {', '.join(have)}; "
                raise self.document.error((*where, key), msg + "correct the row.")
        if row.suite.op in ("quantize", "dequantize") and row.threads != (1,):
            msg = f"impossible combination: {row.suite.op} has no threads; drop the key."
            raise self.document.error((*where, "threads"), msg)

    def _check_shapes(self, where: Keys, entry: Data, row: Row) -> None:
        for name in row.types:
            block = self.types[name].block if name in self.types else self.codes[name].block
            for shape in row.shapes:
                place, text = self._written(entry, shape)
                k = shape.of(block).k
                if k % block:
                    msg = (
                        f"impossible combination: shape {text!r} has K={k}, type {name!r} blocks of {block}; "
                    )
                    raise self.document.error(place, msg + "choose a multiple, or count K in blocks (K2).")
        if row.suite.op == "claim":
            return
        wants_experts = row.suite.op == "mul_mat_id"
        for shape in row.shapes:
            if bool(shape.shape.experts) != wants_experts:
                place, text = self._written(entry, shape)
                verb = "needs experts" if wants_experts else "takes no experts"
                msg = f"impossible combination: {row.suite.op} {verb}, shape {text!r}; "
                raise self.document.error(place, msg + "choose another list of shapes.")

    def _written(self, entry: Data, shape: ShapeText) -> tuple[Keys, str]:
        """Where a shape of the row stands in the file, and its text there."""
        for name in entry["shapes"]:
            if shape in self.shapes[name]:
                index = self.shapes[name].index(shape)
                return ("shapes", name, index), self.document.data["shapes"][name][index]
        return ("shapes",), shape.shape.id

    def _check_activations(self, where: Keys, row: Row) -> None:
        if row.suite.op in ("quantize", "dequantize"):
            return
        for index, word in enumerate(row.activation_types):
            for name in row.types:
                if word not in self.types[name].activations:
                    msg = f"impossible combination: {name} weights with {word} activations; "
                    advice = f"{name} takes {', '.join(self.types[name].activations)}."
                    raise self.document.error((*where, "activation_types", index), msg + advice)

    def _check_paths(self, where: Keys, row: Row) -> None:
        if row.suite.op in ("quantize", "dequantize"):
            if row.paths == ("default",):
                return
            msg = f"impossible combination: {row.suite.op} takes no path; drop the key."
            raise self.document.error((*where, "paths"), msg)
        if row.suite.op == "claim":
            return
        for index, name in enumerate(row.paths):
            rules = self.paths[name].rules
            if not any(rule.types & set(row.types) and row.suite.op in rule.ops for rule in rules):
                msg = f"impossible combination: path {name!r} takes no {row.suite.op} of the row's types; "
                raise self.document.error((*where, "paths", index), msg + "drop the path or add a type.")

    def _exact(self, where: Keys, entry: Data, key: str, known: Iterable[str]) -> tuple[str, ...]:
        names = tuple(known)
        kind = key.removesuffix("s")
        return tuple(
            self._known((*where, key, index), word, names, kind) for index, word in enumerate(entry[key])
        )

    def _known(self, where: Keys, word: str, known: Iterable[str], kind: str) -> str:
        names = tuple(known)
        if word not in names:
            raise self.document.error(where, f"unknown {kind} {word!r}; {nearest(word, names)}")
        return word

    def _globbed(self, where: Keys, entry: Data, key: str, known: Iterable[str]) -> tuple[str, ...]:
        names = tuple(known)
        found, bad = resolve(entry[key], names)
        if bad is not None:
            msg = f"unknown {key.removesuffix('s')} {bad!r}; {nearest(bad, names)}"
            raise self.document.error((*where, key, entry[key].index(bad)), msg)
        return tuple(found)


@dataclass(frozen=True)
class _Defaults:
    weights: tuple[str, ...]
    activations: tuple[str, ...]


_DEFAULTS = {
    "mul_mat": _Defaults(("blocks",), ("gauss",)),
    "mul_mat_id": _Defaults(("blocks",), ("gauss",)),
    "quantize": _Defaults(("none",), ("gauss",)),
    "dequantize": _Defaults(("blocks",), ("none",)),
    "claim": _Defaults(("none",), ("none",)),
}
