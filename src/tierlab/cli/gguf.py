# SPDX-License-Identifier: MIT
"""`invoke gguf FILE…`: what model files hold; `invoke gguf diff A B`: whether two say the same."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tierlab.cli.gguf_coverage import Wanted, covered
from tierlab.cli.gguf_diff import compared
from tierlab.cli.options import given_path
from tierlab.cli.scan import write_whole
from tierlab.errors import ExitCode, ModelFileError, UsageError
from tierlab.gguf.census import census
from tierlab.gguf.model import Model, open_models
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


@dataclass(frozen=True)
class Outputs:
    """Files to write, as they were named; empty for none."""

    json: str = ""
    markdown: str = ""


def gguf(
    files: Sequence[str],
    require: Iterable[str] | None,
    outputs: Outputs,
    hashed: bool,
    coverage: Wanted | None = None,
) -> ExitCode:
    """Census of every model; 1 if a label is false or a requirement not met, 2 if a file cannot be read."""
    if not files:
        msg = "gguf needs at least one file: invoke gguf FILE…, or invoke gguf diff A B"
        raise UsageError(msg)
    if files[0] == DIFF:
        return _diff(files[1:], bool(list(require or ())) or coverage is not None, outputs, hashed)
    paths = [given_path(file) for file in files]
    _spared(outputs, paths)
    requirements = [parse_requirement(text) for text in require or ()]
    models = list(open_models(paths))
    outcomes = [_counted(path, model, requirements, hashed) for path, model in models]
    if coverage is not None:
        sound = [at for at, (_, model) in enumerate(models) if isinstance(model, Model)]
        _add_coverage(outcomes, sound, [models[at][1] for at in sound], coverage)
    text = "\n".join(outcome.text for outcome in outcomes)
    print(text, end="")
    _kept(text, {"format": FORMAT, "models": [outcome.data for outcome in outcomes]}, outputs)
    return max((outcome.code for outcome in outcomes), key=SEVERITY.index)


def _counted(
    path: Path, model: Model | ModelFileError, requirements: Sequence[Requirement], hashed: bool
) -> Outcome:
    if isinstance(model, ModelFileError):
        text = unreadable_markdown(model)
        return Outcome(text, {"model": str(path), "error": str(model)}, ExitCode.UNDETERMINED)
    found = census(model, hashed=hashed)
    answers = [judge(requirement, found) for requirement in requirements]
    good = not found.lies and all(answer.met for answer in answers)
    code = ExitCode.AS_EXPECTED if good else ExitCode.UNEXPECTED
    return Outcome(census_markdown(found, answers), census_json(found, answers), code)


def _add_coverage(
    outcomes: list[Outcome], places: Sequence[int], models: Sequence[Model | ModelFileError], wanted: Wanted
) -> None:
    """Ask for all models in one survey, and add to the outcome of each."""
    sound = [model for model in models if isinstance(model, Model)]
    for at, (text, data, code) in zip(places, covered(sound, wanted), strict=True):
        before = outcomes[at]
        worst = max(before.code, code, key=SEVERITY.index)
        outcomes[at] = Outcome(f"{before.text}\n{text}", {**before.data, "coverage": data}, worst)


def _diff(files: Sequence[str], more: bool, outputs: Outputs, hashed: bool) -> ExitCode:
    """0 for the same weights and tokenizers, 1 for others, 2 if it cannot be told."""
    if len(files) != 2 or more:
        msg = "gguf diff compares two models and knows neither --require nor --coverage; nothing was read: "
        raise UsageError(msg + "invoke gguf diff A B")
    paths = [given_path(file) for file in files]
    _spared(outputs, paths)
    found, digests = compared(paths[0], paths[1], hashed=hashed)
    text = diff_markdown(found, digests)
    print(text, end="")
    _kept(text, {"format": FORMAT, **diff_json(found, digests)}, outputs)
    return found.exit_code


def _kept(text: str, data: dict[str, Any], outputs: Outputs) -> None:
    if outputs.markdown:
        write_whole("markdown", given_path(outputs.markdown), text)
    if outputs.json:
        whole = json.dumps(data, indent=1, ensure_ascii=False) + "\n"
        write_whole("json", given_path(outputs.json), whole)


def _spared(outputs: Outputs, inputs: Sequence[Path]) -> None:
    """No output may be one of the files that are read."""
    real = {os.path.realpath(path) for path in inputs}
    for option, name in (("json", outputs.json), ("markdown", outputs.markdown)):
        if name and os.path.realpath(given_path(name)) in real:
            msg = f"--{option} {name} is one of the model files and would be overwritten; name another"
            raise UsageError(msg)
