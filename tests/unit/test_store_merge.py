# SPDX-License-Identifier: MIT
"""Merging shards: one truthful page, or an error that names what does not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from test_store import info, record

from tierlab.errors import StoreError
from tierlab.judge.verdict import Verdict
from tierlab.run.merge import merge
from tierlab.run.record import BuildInfo, CellRecord, Exclusion, ProfileInfo, RunInfo
from tierlab.run.store import Store, read_cells, read_records, read_run_info

if TYPE_CHECKING:
    from pathlib import Path


def shard(path: Path, about: RunInfo, *records: CellRecord, cells: bool = False) -> Path:
    path.mkdir()
    with Store(path) as store:
        store.append_many(records)
        store.write_run_info(about)
        if cells:
            store.write_cells(entry.cell for entry in records)
    return path


def verdicts(run_dir: Path) -> dict[str, str]:
    return {entry.shape: entry.verdict.value for entry in read_records(run_dir).values()}


def test_shards_become_one_run(tmp_path: Path) -> None:
    one = shard(tmp_path / "1", info("one", shard=(1, 2), exit_code=0, finished="b"), record("a"), cells=True)
    two = shard(
        tmp_path / "2",
        info("two", shard=(2, 2), exit_code=2, finished="c"),
        record("b", Verdict.FAIL),
        cells=True,
    )
    merged = merge([one, two])
    about = read_run_info(merged)
    assert verdicts(merged) == {"a": "pass", "b": "fail"}
    assert read_cells(merged) == [record("a").cell, record("b").cell]
    assert (about.run_id, about.asked, about.merged_from) == (merged.name, 2, ("one", "two"))
    assert (about.shard, about.missing_shards, about.exit_code, about.finished) == (None, (), 2, "c")
    assert merged.parent == tmp_path


def test_a_fault_outweighs_an_undetermined_shard(tmp_path: Path) -> None:
    dirs = [shard(tmp_path / str(code), info(exit_code=code)) for code in (0, 1, 2)]
    assert read_run_info(merge(dirs)).exit_code == 1
    unfinished = shard(tmp_path / "x", info(exit_code=None))
    assert read_run_info(merge([*dirs, unfinished])).exit_code is None


def test_missing_shards_are_listed(tmp_path: Path) -> None:
    dirs = [shard(tmp_path / str(number), info(shard=(number, 5)), record(str(number))) for number in (2, 4)]
    assert read_run_info(merge(dirs)).missing_shards == (1, 3, 5)


def test_two_verdicts_for_one_cell_are_refused(tmp_path: Path) -> None:
    one = shard(tmp_path / "1", info(), record("a"), record("b"))
    two = shard(tmp_path / "2", info(), record("a", Verdict.FAIL), record("b"))
    with pytest.raises(StoreError, match=r"1 cells have two verdicts:\n.*/a/.*: pass in .*/1, fail in .*/2"):
        merge([one, two])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2"]


def test_an_undetermined_verdict_gives_way(tmp_path: Path) -> None:
    one = shard(tmp_path / "1", info(), record("a", Verdict.UNTESTED), record("b"))
    two = shard(tmp_path / "2", info(), record("a"), record("b", Verdict.UNTESTED))
    assert verdicts(merge([one, two])) == {"a": "pass", "b": "pass"}


@pytest.mark.parametrize(
    ("other", "word"),
    [
        ({"seed": 2}, "seed"),
        ({"commit": "f00"}, "commit"),
        ({"builds": (BuildInfo("stock", "sha256:2"),)}, "digest of build stock"),
    ],
)
def test_parts_of_different_runs_are_refused(tmp_path: Path, other: dict[str, object], word: str) -> None:
    one = shard(tmp_path / "1", info(builds=(BuildInfo("stock", "sha256:1"),)))
    two = shard(tmp_path / "2", info(**{"builds": (BuildInfo("stock", "sha256:1"),), **other}))
    with pytest.raises(StoreError, match=f"not parts of one run: {word} differ"):
        merge([one, two])


def test_nothing_to_merge() -> None:
    with pytest.raises(StoreError, match="nothing to merge"):
        merge([])


def test_profiles_keep_the_answer_of_the_shard_that_probed(tmp_path: Path) -> None:
    silent = ProfileInfo("a64fx", "qemu-11.1", "a64fx")
    spoken = ProfileInfo("a64fx", "qemu-11.1", "a64fx", hello={"variant": "x.so"})
    dirs = [shard(tmp_path / name, info(profiles=(entry,))) for name, entry in (("1", spoken), ("2", silent))]
    assert read_run_info(merge(dirs)).profiles == (spoken,)


@pytest.mark.parametrize(("second", "total"), [(3, [3]), (4, [7])])
def test_equal_exclusions_are_counted_once(tmp_path: Path, second: int, total: list[int]) -> None:
    dirs = [
        shard(tmp_path / str(at), info(exclusions=(Exclusion("r", "why", count),)))
        for at, count in enumerate((3, second))
    ]
    assert [entry.count for entry in read_run_info(merge(dirs)).exclusions] == total
