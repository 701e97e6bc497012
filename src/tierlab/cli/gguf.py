# SPDX-License-Identifier: MIT
"""`invoke gguf FILE…`: what model files hold; `invoke gguf diff A B`: whether two say the same."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tierlab.cli.gguf_diff import compared
from tierlab.cli.options import given_path
from tierlab.cli.scan import write_whole
from tierlab.errors import ExitCode, ModelFileError, UsageError
from tierlab.gguf.census import census
from tierlab.gguf.model import open_models
from tierlab.gguf.require import judge, parse_requirement
from tierlab.report.gguf_diff_report import diff_json, diff_markdown
from tierlab.report.gguf_report import FORMAT, census_json, census_markdown, unreadable_markdown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from tierlab.gguf.require import Requirement

DIFF = "diff"
"""As the first plain argument: compare the two files that follow. (A file of that name is `./diff`.)"""

SEVERITY = (ExitCode.AS_EXPECTED, ExitCode.UNDETERMINED, ExitCode.UNEXPECTED)
"""Of several outcomes the last one here is the task's: what is not as expected outweighs what is unknown."""


@dataclass(frozen=True)
class Outcome:
    """What one file (or comparison) came to: its text, its data, its exit code."""

    text: str
    data: dict[str, Any]
    code: ExitCode


def gguf(
    files: Sequence[str], require: Iterable[str] | None, json: str, markdown: str, sha256: bool
) -> ExitCode:
    """Census of every model; 1 if a label is false or a requirement not met, 2 if a file cannot be read."""
    if not files:
        msg = "gguf needs at least one file: invoke gguf FILE…, or invoke gguf diff A B"
        raise UsageError(msg)
    if files[0] == DIFF:
        return _diff(files[1:], list(require or ()), json, markdown, sha256)
    paths = [given_path(file) for file in files]
    _spared({"json": json, "markdown": markdown}, paths)
    requirements = [parse_requirement(text) for text in require or ()]
    outcomes = list(_censuses(paths, requirements, sha256))
    return _told(outcomes, json, markdown)


def _censuses(paths: Sequence[Path], requirements: Sequence[Requirement], hashed: bool) -> Iterable[Outcome]:
    for path, model in open_models(paths):
        if isinstance(model, ModelFileError):
            text = unreadable_markdown(model)
            yield Outcome(text, {"model": str(path), "error": str(model)}, ExitCode.UNDETERMINED)
            continue
        found = census(model, hashed=hashed)
        answers = [judge(requirement, found) for requirement in requirements]
        good = not found.lies and all(answer.met for answer in answers)
        code = ExitCode.AS_EXPECTED if good else ExitCode.UNEXPECTED
        yield Outcome(census_markdown(found, answers), census_json(found, answers), code)


def _diff(
    files: Sequence[str], require: Sequence[str], json_file: str, markdown_file: str, hashed: bool
) -> ExitCode:
    """0 for the same weights and tokenizers, 1 for others, 2 if it cannot be told."""
    if len(files) != 2 or require:
        msg = "gguf diff compares two models and knows no --require; nothing was read: invoke gguf diff A B"
        raise UsageError(msg)
    paths = [given_path(file) for file in files]
    _spared({"json": json_file, "markdown": markdown_file}, paths)
    found, digests = compared(paths[0], paths[1], hashed=hashed)
    outcome = Outcome(diff_markdown(found, digests), diff_json(found, digests), found.exit_code)
    print(outcome.text, end="")
    _kept(outcome.text, {"format": FORMAT, **outcome.data}, json_file, markdown_file)
    return outcome.code


def _told(outcomes: Sequence[Outcome], json_file: str, markdown_file: str) -> ExitCode:
    text = "\n".join(outcome.text for outcome in outcomes)
    print(text, end="")
    data = {"format": FORMAT, "models": [outcome.data for outcome in outcomes]}
    _kept(text, data, json_file, markdown_file)
    return max((outcome.code for outcome in outcomes), key=SEVERITY.index)


def _kept(text: str, data: dict[str, Any], json_file: str, markdown_file: str) -> None:
    if markdown_file:
        write_whole("markdown", given_path(markdown_file), text)
    if json_file:
        write_whole("json", given_path(json_file), json.dumps(data, indent=1, ensure_ascii=False) + "\n")


def _spared(outputs: dict[str, str], inputs: Sequence[Path]) -> None:
    """No output may be one of the files that are read."""
    real = {os.path.realpath(path) for path in inputs}
    for option, name in outputs.items():
        if name and os.path.realpath(given_path(name)) in real:
            msg = f"--{option} {name} is one of the model files and would be overwritten; name another"
            raise UsageError(msg)
