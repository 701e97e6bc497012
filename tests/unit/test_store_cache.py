# SPDX-License-Identifier: MIT
"""The verdict cache: reuses what follows from the inputs, and nothing else."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

import pytest
from test_store import file_size_limit, record

from tierlab.judge.verdict import Verdict
from tierlab.run.verdict_cache import VerdictCache, lane_hash

if TYPE_CHECKING:
    from pathlib import Path

PARTS = {"build": "sha256:1", "profile": "a64fx", "seed": "7"}


def test_the_key_ignores_order_and_sees_every_part() -> None:
    key = lane_hash(PARTS)
    assert key == lane_hash(dict(reversed(PARTS.items())))
    changed = {lane_hash({**PARTS, name: "other"}) for name in PARTS} | {lane_hash({**PARTS, "more": ""})}
    assert len(changed | {key}) == len(PARTS) + 2


def test_a_stored_lane_comes_back_cached_and_free(tmp_path: Path) -> None:
    cache = VerdictCache(tmp_path / "verdicts")
    assert cache.store(PARTS, [record("a", wall_ms=3.0, kernel_ms=2.0), record("b", Verdict.FAIL)]) == 2
    assert cache.store(PARTS, [record("c")]) == 1
    found = cache.load(PARTS)
    assert [(entry.shape, entry.verdict.value) for entry in found.values()] == [
        ("a", "pass"),
        ("b", "fail"),
        ("c", "pass"),
    ]
    first = found[record("a").cell]
    assert (first.cached, first.wall_ms, first.kernel_ms) == (True, 0.0, 0.0)


def test_another_key_finds_nothing(tmp_path: Path) -> None:
    cache = VerdictCache(tmp_path)
    cache.store(PARTS, [record("a")])
    assert cache.load({**PARTS, "build": "sha256:2"}) == {}


@pytest.mark.parametrize("verdict", list(Verdict))
def test_only_verdicts_that_follow_from_the_inputs_are_kept(tmp_path: Path, verdict: Verdict) -> None:
    kept = VerdictCache(tmp_path).store(PARTS, [record("a", verdict)])
    circumstantial = {Verdict.TIMEOUT, Verdict.UNBUILDABLE, Verdict.UNTESTED}
    assert kept == (0 if verdict in circumstantial else 1)


def test_cached_records_are_not_stored_again(tmp_path: Path) -> None:
    cache = VerdictCache(tmp_path)
    cache.store(PARTS, [record("a")])
    assert cache.store(PARTS, cache.load(PARTS).values()) == 0


def test_damage_is_a_miss(tmp_path: Path) -> None:
    cache = VerdictCache(tmp_path)
    cache.store(PARTS, [record("a"), record("b")])
    path = cache.path(PARTS)
    path.write_bytes(path.read_bytes()[:-20] + b"\n{}\n[]\n\xff\n")
    assert list(cache.load(PARTS)) == [record("a").cell]


def test_a_cache_that_cannot_be_written_only_warns(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING):
        assert VerdictCache(tmp_path / "file" / "verdicts").store(PARTS, [record("a")]) == 0
        with file_size_limit(10):
            assert VerdictCache(tmp_path).store(PARTS, [record("a")]) == 0
    assert [entry.getMessage()[:24] for entry in caplog.records] == ["verdict cache not writte"] * 2
    assert VerdictCache(tmp_path).load(PARTS) == {}


def test_pruning_takes_the_least_recently_used(tmp_path: Path) -> None:
    cache = VerdictCache(tmp_path)
    keys = [{**PARTS, "seed": str(seed)} for seed in range(3)]
    for age, parts in enumerate(keys):
        cache.store(parts, [record("a")])
        os.utime(cache.path(parts), (age, age))
    cache.load(keys[0])
    size = cache.path(keys[0]).stat().st_size
    assert cache.prune(3 * size) == 0
    assert cache.prune(2 * size) == size
    assert [bool(cache.load(parts)) for parts in keys] == [True, False, True]
    cache.prune(0)
    assert list(tmp_path.iterdir()) == []
