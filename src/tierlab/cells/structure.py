# SPDX-License-Identifier: MIT
"""Structure of `matrix.yaml` against the schema; every violation as one line with place and advice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jsonschema import Draft202012Validator

from tierlab.cells.positions import Document, Keys, nearest
from tierlab.cells.schema import SCHEMA
from tierlab.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jsonschema import ValidationError

_SHOWN = 10
_WORDS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
}


def check_structure(document: Document) -> None:
    """Raises ConfigError with up to ten lines, in the order of the file, if the schema is violated."""
    found = [line for error in _VALIDATOR.iter_errors(document.data) for line in _lines(document, error)]
    if not found:
        return
    found.sort(key=lambda item: item[0])
    lines = [text for _, text in found[:_SHOWN]]
    if len(found) > _SHOWN:
        lines.append(f"… and {len(found) - _SHOWN} more.")
    raise ConfigError("\n".join(lines))


_VALIDATOR = Draft202012Validator(SCHEMA)


def _lines(document: Document, error: ValidationError) -> Iterator[tuple[tuple[int, int], str]]:
    where: Keys = tuple(error.absolute_path)
    explain = _EXPLAIN.get(str(error.validator), _other)
    for keys, at_key, message in explain(where, error):
        place = document.place(keys, at_key=at_key)
        yield (place.line, place.column), f"{document.prefix(keys, at_key=at_key)} {message}"


def _rule(error: ValidationError) -> Any:
    """The value of the violated keyword. The stubs allow it to be absent; an iterated error has it."""
    return error.validator_value


def _schema(error: ValidationError) -> Any:
    return error.schema


def _instance(error: ValidationError) -> Any:
    return error.instance


def _name(where: Keys) -> str:
    return ".".join(str(part) for part in where) or "the file"


def _unknown_key(where: Keys, error: ValidationError) -> Iterator[tuple[Keys, bool, str]]:
    known = _schema(error)["properties"]
    for key in _instance(error):
        if key not in known:
            yield (*where, key), True, f"unknown key {key!r} in {_name(where)}; {nearest(key, known)}"


def _missing_key(where: Keys, error: ValidationError) -> Iterator[tuple[Keys, bool, str]]:
    # jsonschema reports one error a missing key; the key's name is the quoted word of its message.
    key = error.message.split("'")[1]
    yield where, False, f"{_name(where)} lacks the key {key!r}; add it (docs/matrix.md says what it holds)."


def _wrong_type(where: Keys, error: ValidationError) -> Iterator[tuple[Keys, bool, str]]:
    want = _WORDS[str(_rule(error))]
    yield where, False, f"{_name(where)} must be {want}, not {_shown(_instance(error))}; correct the value."


def _not_in_enum(where: Keys, error: ValidationError) -> Iterator[tuple[Keys, bool, str]]:
    word = str(_instance(error))
    yield where, False, f"unknown value {word!r} for {_name(where)}; {nearest(word, _rule(error))}"


def _repeated(where: Keys, error: ValidationError) -> Iterator[tuple[Keys, bool, str]]:
    seen: list[Any] = []
    for index, item in enumerate(_instance(error)):
        if item in seen:
            msg = f"duplicate {_shown(item)} in {_name(where)}; it would count once. Remove it."
            yield (*where, index), False, msg
        seen.append(item)


def _empty(where: Keys, error: ValidationError) -> Iterator[tuple[Keys, bool, str]]:
    if isinstance(_instance(error), str):
        yield (
            where,
            False,
            f"{_name(where)} is empty; a reader would learn nothing. Write it or remove the key.",
        )
        return
    what = "empty" if not _instance(error) else f"too short ({len(_instance(error))} of {_rule(error)})"
    yield where, False, f"{_name(where)} is {what}; nothing would be selected. Fill it or remove the key."


def _too_long(where: Keys, error: ValidationError) -> Iterator[tuple[Keys, bool, str]]:
    yield where, False, f"{_name(where)} takes {_rule(error)} values, not {len(_instance(error))}."


def _number(where: Keys, error: ValidationError) -> Iterator[tuple[Keys, bool, str]]:
    least = _rule(error)
    word = "more than" if error.validator == "exclusiveMinimum" else "at least"
    yield where, False, f"{_name(where)} must be {word} {least}, not {_instance(error)}; correct the value."


def _pattern(where: Keys, error: ValidationError) -> Iterator[tuple[Keys, bool, str]]:
    word = str(_instance(error))
    # For propertyNames the path is the mapping's and the instance is the key itself.
    is_key = "propertyNames" in error.absolute_schema_path
    keys = (*where, word) if is_key else where
    yield keys, is_key, f"{word!r} is not a name; use letters, digits, '_', '.' and '-' only."


def _const(where: Keys, error: ValidationError) -> Iterator[tuple[Keys, bool, str]]:
    msg = (
        f"{_name(where)} is {_shown(_instance(error))}, this tierlab reads {_rule(error)}; use that version."
    )
    yield where, False, msg


def _other(where: Keys, error: ValidationError) -> Iterator[tuple[Keys, bool, str]]:
    yield where, False, f"{_name(where)}: {error.message}."


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    return "nothing" if value is None else repr(value)


_EXPLAIN: dict[str, Callable[[Keys, ValidationError], Iterator[tuple[Keys, bool, str]]]] = {
    "additionalProperties": _unknown_key,
    "required": _missing_key,
    "type": _wrong_type,
    "enum": _not_in_enum,
    "uniqueItems": _repeated,
    "minItems": _empty,
    "minProperties": _empty,
    "minLength": _empty,
    "maxItems": _too_long,
    "minimum": _number,
    "exclusiveMinimum": _number,
    "pattern": _pattern,
    "const": _const,
}
