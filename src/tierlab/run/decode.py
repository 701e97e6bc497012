# SPDX-License-Identifier: MIT
"""Strict decoding of JSON values into frozen dataclasses: a wrong or missing field is named."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields, is_dataclass
from typing import Any, NoReturn, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from tierlab.errors import StoreError

T = TypeVar("T")


def decode(cls: type[T], value: object, where: str) -> T:
    """Build the dataclass `cls` from a JSON object; `where` names the place in error messages.

    Unknown keys, missing keys without a default and values of another type raise StoreError.
    """
    return cast("T", _dataclass(cls, value, where))


def encode(value: object) -> dict[str, Any]:
    """The JSON object of a frozen dataclass (tuples become lists, mappings become objects)."""
    return cast("dict[str, Any]", _plain(asdict(cast("Any", value))))


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _dataclass(cls: Any, value: object, where: str) -> object:
    if not isinstance(value, dict):
        _refuse(where, "an object", value)
    hints = get_type_hints(cls)
    known = {field.name: field for field in fields(cls)}
    for key in value:
        if key not in known:
            msg = (
                f"{where}: unknown key {key!r}; the file was written by another version of tierlab. "
                "Read it with the version that wrote it."
            )
            raise StoreError(msg)
    made = {}
    for name, field in known.items():
        if name in value:
            made[name] = _value(hints[name], value[name], f"{where}.{name}")
        elif field.default is MISSING and field.default_factory is MISSING:
            msg = f"{where}: the key {name!r} is missing; the file is damaged or of another version."
            raise StoreError(msg)
    return cls(**made)


def _value(hint: Any, value: object, where: str) -> object:
    origin, args = get_origin(hint), get_args(hint)
    if origin in (types.UnionType, Union):
        if value is None and type(None) in args:
            return None
        return _value(next(arg for arg in args if arg is not type(None)), value, where)
    if origin is tuple:
        if not isinstance(value, list):
            _refuse(where, "a list", value)
        return tuple(_value(args[0], item, f"{where}[{at}]") for at, item in enumerate(value))
    if origin is not None:  # Mapping[str, X]
        if not isinstance(value, dict):
            _refuse(where, "an object", value)
        return {key: _value(args[1], item, f"{where}.{key}") for key, item in value.items()}
    if is_dataclass(hint):
        return _dataclass(hint, value, where)
    # bool is an int to isinstance, but a flag is no number here.
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        _refuse(where, hint.__name__, value)
    return value


def _refuse(where: str, wanted: str, value: object) -> NoReturn:
    msg = f"{where}: expected {wanted}, found {value!r}; the file is damaged or of another version."
    raise StoreError(msg)
