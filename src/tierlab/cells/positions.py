# SPDX-License-Identifier: MIT
"""YAML with places: the plain data, and for every key and value its line and column.

PyYAML's safe constructor forgets where a value stood and lets the last of two equal keys win. This
module walks the composed nodes instead: both are needed for messages a person can act on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import yaml

from tierlab.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

Keys = tuple[str | int, ...]
"""The way from the document's root to a value: mapping keys and list indices."""


@dataclass(frozen=True)
class Place:
    """A line and column of the file, both counted from 1."""

    line: int
    column: int


@dataclass(frozen=True)
class Document:
    """A YAML file: its plain data and the places of its keys and values."""

    path: Path
    data: Any
    values: dict[Keys, Place] = field(default_factory=dict)
    keys: dict[Keys, Place] = field(default_factory=dict)

    def error(self, where: Keys, message: str, *, at_key: bool = False) -> ConfigError:
        """The error `file:line:column: message` for the value (or key) at `where`."""
        return ConfigError(f"{self.prefix(where, at_key=at_key)} {message}")

    def prefix(self, where: Keys, *, at_key: bool = False) -> str:
        place = self.place(where, at_key=at_key)
        return f"{self.path}:{place.line}:{place.column}:"

    def place(self, where: Keys, *, at_key: bool = False) -> Place:
        """The place of a value; of the nearest thing around it where it has none of its own."""
        if at_key and where in self.keys:
            return self.keys[where]
        while where and where not in self.values:
            where = where[:-1]
        return self.values.get(where, Place(1, 1))


DEEPEST = 32
MOST_VALUES = 200_000
"""A matrix nests a handful of levels and holds some thousand values. Aliases of aliases can make billions out
of ten lines, and a few thousand brackets exhaust the parser."""

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""LibYAML's parser where PyYAML was built with it: eight times faster, the same marks."""


_FLATTER = "Start from the project's matrix.yaml."


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word most like `word`, as `; did you mean 'x'?`, else the list of what is known."""
    names = sorted(set(known))
    lowered = {name.lower(): name for name in names}
    close = get_close_matches(word.lower(), list(lowered), n=1, cutoff=0.5)
    if close:
        return f"did you mean {lowered[close[0]]!r}?"
    shown = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
    return f"known: {shown or 'none'}."


def _composed(text: str) -> yaml.Node | None:
    """The document's node; a syntax error is PyYAML's own, which says more than LibYAML's."""
    try:
        return yaml.compose(text, Loader=LOADER)
    except yaml.YAMLError:
        return yaml.compose(text, Loader=yaml.SafeLoader)


def read(path: Path) -> Document:
    """Reads a YAML file. Raises ConfigError for unreadable text, bad syntax and duplicate keys."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as problem:
        msg = f"{path} cannot be read ({problem.strerror}); nothing is selected. Name a matrix file."
        raise ConfigError(msg) from problem
    except UnicodeDecodeError as problem:
        msg = f"{path} is not UTF-8 text (byte {problem.start}); nothing is selected. Save it as UTF-8."
        raise ConfigError(msg) from problem
    try:
        root = _composed(text)
    except yaml.YAMLError as problem:
        raise _syntax_error(path, problem) from problem
    except RecursionError as problem:
        msg = f"{path}: values are nested too deep to be read; nothing is selected. {_FLATTER}"
        raise ConfigError(msg) from problem
    document = Document(path, None)
    if root is None:
        msg = "the file is empty; nothing is selected. Start from the project's matrix.yaml."
        raise document.error((), msg)
    return Document(path, _plain(document, root, (), ()), document.values, document.keys)


def _syntax_error(path: Path, problem: yaml.YAMLError) -> ConfigError:
    mark = getattr(problem, "problem_mark", None)
    line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
    fact = getattr(problem, "problem", None) or getattr(problem, "reason", None) or "not YAML"
    return ConfigError(f"{path}:{line}:{column}: YAML syntax: {fact}; nothing was read. Correct this line.")


def _plain(document: Document, node: yaml.Node, where: Keys, parents: tuple[yaml.Node, ...]) -> Any:
    document.values[where] = Place(node.start_mark.line + 1, node.start_mark.column + 1)
    if node in parents:
        raise document.error(where, "an alias that contains itself; the value would never end. Write it out.")
    if len(parents) > DEEPEST:
        raise document.error(where[:4], f"values are nested more than {DEEPEST} deep. {_FLATTER}")
    if len(document.values) > MOST_VALUES:
        msg = f"with all aliases written out the file has more than {MOST_VALUES} values. Use fewer of them."
        raise document.error((), msg)
    inside = (*parents, node)
    if isinstance(node, yaml.MappingNode):
        return _mapping(document, node, where, inside)
    if isinstance(node, yaml.SequenceNode):
        return [_plain(document, item, (*where, index), inside) for index, item in enumerate(node.value)]
    return _scalar(document, node, where)


def _mapping(document: Document, node: yaml.MappingNode, where: Keys, inside: tuple[yaml.Node, ...]) -> Any:
    result: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key = key_node.value
        place = Place(key_node.start_mark.line + 1, key_node.start_mark.column + 1)
        if not isinstance(key, str) or key_node.tag != "tag:yaml.org,2002:str":
            document.values[(*where, "?")] = place
            shown = repr(key) if isinstance(key, str) else "made of several values"
            raise document.error((*where, "?"), f"the key {shown} is not text; quote it or use a name.")
        here = (*where, key)
        if key in result:
            first = document.keys[here].line
            document.keys[here] = place
            msg = f"duplicate key {key!r} (first on line {first}); one of them would be lost. "
            raise document.error(here, msg + "Remove or rename one.", at_key=True)
        document.keys[here] = place
        result[key] = _plain(document, value_node, here, inside)
    return result


def _scalar(document: Document, node: yaml.Node, where: Keys) -> Any:
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_object(node, deep=True)
    except (yaml.YAMLError, ValueError) as problem:
        fact = getattr(problem, "problem", None) or str(problem)
        msg = f"{fact}; the value cannot be used. Write plain text or a number."
        raise document.error(where, msg) from problem
    finally:
        loader.dispose()
