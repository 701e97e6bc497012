# SPDX-License-Identifier: MIT
"""The ledger file: appended to, never rewritten; torn lines and runs without all rows are told."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from ledger_sample import BACKEND, ROWS, ledger

from tierlab.errors import StoreError, UsageError
from tierlab.run.ledger_file import append, find, read

if TYPE_CHECKING:
    from pathlib import Path


def test_what_was_appended_is_what_is_read(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    first, second = ledger(), ledger(name="run2@user", environment={"GGML_KLEIDIAI_SME": "2"})
    append(path, first)
    before = path.read_bytes()
    append(path, second)
    assert path.read_bytes().startswith(before), "nothing that was recorded is touched again"
    assert read(path) == {"run1@stock": first, "run2@user": second}
    assert read(path)["run1@stock"].run.profiles[0].binaries[1] == BACKEND


def test_a_torn_line_costs_its_run_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    append(path, ledger())
    whole = path.read_bytes()
    append(path, ledger(name="run2@stock"))
    path.write_bytes(path.read_bytes()[: len(whole) + 2000])
    append(path, ledger(name="run3@stock"))
    torn: list[str] = []
    assert set(read(path, torn)) == {"run1@stock", "run3@stock"}
    assert torn == [f"{path}:{len(ROWS) + 2}"]
    cut = path.read_bytes()
    path.write_bytes(cut[:-10])
    torn.clear()
    assert set(read(path, torn)) == {"run1@stock"}
    assert torn[-1] == f"run run3@stock: {len(ROWS) - 1} of {len(ROWS)} rows"


def test_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    append(path, ledger(schema=9))
    with pytest.raises(StoreError, match="schema 9, this tierlab reads 1"):
        read(path)
    path.write_text('{"cell": 1}\n')
    with pytest.raises(StoreError, match="neither a run nor a row"):
        read(path)
    append(path.with_name("b"), ledger())
    lines = path.with_name("b").read_text().splitlines()
    path.write_text("\n".join([lines[0], lines[1].replace('"threads":1', '"threads":"1"')]) + "\n")
    with pytest.raises(StoreError, match="threads: expected int, found '1'"):
        read(path)


def test_runs_are_found_by_their_beginning(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    for name in ("20261201-a@stock", "20261201-b@stock", "20261201-b@user"):
        append(path, ledger(name=name))
    known = read(path)
    assert find(path, "latest", known).run.run == "20261201-b@user"
    assert find(path, "20261201-a", known).run.run == "20261201-a@stock"
    assert find(path, "20261201-b@stock", known).run.run == "20261201-b@stock"
    with pytest.raises(UsageError, match="names several runs"):
        find(path, "20261201", known)
    with pytest.raises(UsageError, match=r"names no run .* newest are: 20261201-b@user, 20261201-b@stock"):
        find(path, "x", known)
    with pytest.raises(UsageError, match="there is no ledger"):
        read(tmp_path / "none.jsonl")


def test_every_line_is_json_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    row = replace(ROWS[0], detail="a lone \udcff", nmse=None, families=None, classes=None)
    append(path, ledger((row,)))
    values = [json.loads(line) for line in path.read_text().splitlines()]
    assert [set(value) for value in values] == [{"run"}, {"row"}]
    assert values[1]["row"]["families"] is None
