# SPDX-License-Identifier: MIT
"""The workflows call tasks and options that exist: what cannot start is found here, not at night."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
import tasks  # noqa: E402

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
CALL = re.compile(r"\./lab (\w+)(.*)")


def steps(path: Path) -> list[str]:
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    return [step["run"] for job in found["jobs"].values() for step in job["steps"] if "run" in step]


def calls() -> list[tuple[str, list[str]]]:
    texts = [text for path in WORKFLOWS for text in steps(path)]
    texts += [(ROOT / ".ci" / "run").read_text()]
    found = [match for text in texts for match in CALL.finditer(text)]
    return [(match[1], re.findall(r"--([a-z-]+)", match[2])) for match in found]


def test_there_are_calls_to_check() -> None:
    assert {name for name, _ in calls()} >= {"matrix", "report", "test"}


@pytest.mark.parametrize(("name", "options"), calls())
def test_every_call_names_a_task_and_its_options(name: str, options: list[str]) -> None:
    task = getattr(tasks, name)
    known = {argument.name for argument in task.get_arguments()}
    assert {option.replace("-", "_") for option in options} <= known


def test_shards_of_the_nightly_are_all_of_them() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "nightly.yml").read_text())["jobs"]
    shards = jobs["shard"]["strategy"]["matrix"]["shard"]
    command = next(step["run"] for step in jobs["shard"]["steps"] if "shard" in step.get("run", ""))
    assert shards == list(range(1, len(shards) + 1))
    assert f"/{len(shards)}" in command
    assert jobs["merge"]["needs"] == "shard"


def test_the_checks_run_what_the_readme_says() -> None:
    assert (ROOT / ".ci" / "run").read_text().rstrip().endswith("./lab test")
    assert "./lab test" in (ROOT / "README.md").read_text()
