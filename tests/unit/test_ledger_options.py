# SPDX-License-Identifier: MIT
"""Words of `invoke ledger`: what is asked, and wrong use told in one message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from ledger_grid import MATRIX

from tierlab.cli.ledger import ledger
from tierlab.cli.ledger_options import (
    ALL_THREADS,
    COLUMNS,
    NARROW,
    PROFILES,
    ROWS,
    THREADS,
    TYPES,
    LedgerWords,
    ask_of,
    environment_of,
    ledger_words,
)
from tierlab.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


def words(**changes: Any) -> LedgerWords:
    lists = [
        changes.pop(name, None) for name in ("profile", "type", "threads", "columns", "path", "env", "diff")
    ]
    single = [
        changes.pop(name, "")
        for name in ("rows", "repeat", "full", "build", "llama_cpp", "sdist", "rules", "docs")
    ]
    assert not changes
    return ledger_words(*lists, *single)


def test_defaults_ask_for_every_rule_on_few_profiles() -> None:
    asked = ask_of(words(), MATRIX)
    assert asked.profiles == tuple(name for name in MATRIX.profiles if name in PROFILES)
    assert set(asked.kinds) == set(TYPES)
    assert asked.threads == THREADS
    assert asked.shapes == (*((each, ROWS) for each in COLUMNS), NARROW)
    assert (asked.paths, asked.repeat) == ((), 1)


def test_full_asks_for_everything() -> None:
    asked = ask_of(words(full=True), MATRIX)
    assert asked.profiles == tuple(MATRIX.profiles)
    assert asked.kinds == tuple(MATRIX.types)
    assert asked.threads == ALL_THREADS
    assert (400, ROWS) in asked.shapes


def test_words_narrow_the_question() -> None:
    asked = ask_of(
        words(
            profile=["neoverse-*"], type=["q4_0,q8_0"], threads=["4,1", "4"], columns=["128"], path=["*"],
            rows="64", repeat="5",
        ),
        MATRIX,
    )  # fmt: skip
    assert asked.profiles == ("neoverse-n1", "neoverse-v1", "neoverse-n2")
    assert (asked.threads, asked.shapes, asked.repeat) == ((1, 4), ((128, 64),), 5)
    assert asked.paths == tuple(MATRIX.paths)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"profile": ["neoverse-n9"]}, "unknown profile 'neoverse-n9'"),
        ({"type": ["q4_9"]}, "unknown type 'q4_9'"),
        ({"path": ["repak"]}, "unknown path 'repak'"),
        ({"threads": ["0"]}, "--threads '0' is no whole number from 1 up"),
        ({"threads": ["65"]}, "--threads 65 is more than 64"),
        ({"columns": ["many"]}, "--columns 'many'"),
        ({"rows": "9999"}, "--rows 9999 is more than 4096"),
        ({"repeat": "0"}, "--repeat '0'"),
    ],
)
def test_wrong_words(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ask_of(words(**changes), MATRIX)


def test_environment() -> None:
    assert environment_of(["GGML_KLEIDIAI_SME=2", "X=a,b=c"]) == {"GGML_KLEIDIAI_SME": "2", "X": "a,b=c"}
    for word, message in (
        ("GGML_KLEIDIAI_SME", "not of the form NAME=VALUE"),
        ("1A=2", "not of the form"),
        ("LD_LIBRARY_PATH=/x", "set by the lab itself"),
    ):
        with pytest.raises(UsageError, match=message):
            environment_of([word])


def test_builds() -> None:
    known = MATRIX.builds
    assert words().builds(known) == ("stock",)
    assert words(llama_cpp="/tree").builds(known) == ("user",)
    assert words(sdist="0.3.16").builds(known) == ("sdist-0.3.16",)
    assert words(build="stock", sdist="0.3.16").builds(known) == ("stock", "sdist-0.3.16")
    with pytest.raises(UsageError, match="unknown build 'stok'"):
        words(build="stok").builds(known)


def test_a_comparison_needs_two_runs_and_a_ledger(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="compares two runs and 1 are named"):
        ledger(words(diff=["a"]), "", str(tmp_path), "matrix.yaml")
    with pytest.raises(UsageError, match="there is no ledger"):
        ledger(words(diff=["a,b"]), "", str(tmp_path), "matrix.yaml")
    assert not list(tmp_path.iterdir()), "what fails leaves nothing behind"
