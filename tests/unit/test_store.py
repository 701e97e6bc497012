# SPDX-License-Identifier: MIT
"""The store: nothing stored is ever lost, whoever writes, dies or runs out of room."""

from __future__ import annotations

import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tierlab.errors import StoreError, UsageError
from tierlab.judge.verdict import Verdict
from tierlab.run.record import CellRecord, RunInfo
from tierlab.run.store import (
    RESULTS,
    RUN,
    Store,
    answered,
    create_run_dir,
    find_run,
    iter_records,
    mark_latest,
    read_cells,
    read_records,
    read_run_info,
    write_run_info,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from test_store import record
from tierlab.run.store import Store
with Store(Path(sys.argv[1])) as store:
    number = 0
    while number != int(sys.argv[4]):
        store.append(record(f"{sys.argv[2]}-{number}"))
        number += 1
        if number == 100:
            print("hundred", flush=True)
"""


def record(name: str, verdict: Verdict = Verdict.PASS, **more: object) -> CellRecord:
    base = CellRecord(
        cell=f"ggml.mul_mat/q4_0/{name}/blocks.gauss/default/t1/stock/a64fx",
        verdict=verdict,
        profile="a64fx",
        suite="ggml.mul_mat",
        build="stock",
        path="default",
        threads=1,
        type="q4_0",
        shape=name,
        inputs="blocks.gauss",
    )
    return replace(base, **more)  # type: ignore[arg-type]


def info(run_id: str = "r", **more: object) -> RunInfo:
    return replace(RunInfo(run_id, 1, 2, "2026-01-15T03:00:00+00:00"), **more)  # type: ignore[arg-type]


def shapes(run_dir: Path) -> list[str]:
    return [entry.shape for entry in iter_records(run_dir)]


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """No file may grow beyond `size` bytes: the kernel cuts the write short, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def writer(run_dir: Path, name: str, number: int) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", WRITER, str(run_dir), name, str(Path(__file__).parent), str(number)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def test_records_come_back_in_order(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.append(record("a"))
        store.append_many([record("b"), record("c")])
        store.append_many([])
    assert shapes(tmp_path) == ["a", "b", "c"]


def test_a_later_record_supersedes(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.append_many([record("a", Verdict.UNTESTED), record("b"), record("a")])
    kept = read_records(tmp_path)
    assert [(entry.shape, entry.verdict) for entry in kept.values()] == [("a", "pass"), ("b", "pass")]


def test_resume_repeats_only_what_is_undetermined(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.append_many([record("a", Verdict.UNTESTED), record("b", Verdict.CRASH), record("c")])
    assert answered(tmp_path) == {record("b").cell, record("c").cell}


def test_a_torn_last_line_is_left_out_and_named(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.append(record("a"))
    with (tmp_path / RESULTS).open("ab") as stream:
        stream.write(record("b").to_line()[:50])
    torn: list[str] = []
    assert list(read_records(tmp_path, torn)) == [record("a").cell]
    assert torn == [f"{tmp_path / RESULTS}:2"]


def test_appending_after_a_torn_line_loses_only_that_line(tmp_path: Path) -> None:
    (tmp_path / RESULTS).write_bytes(record("a").to_line() + record("b").to_line()[:50])
    with Store(tmp_path) as store:
        store.append(record("c"))
    assert shapes(tmp_path) == ["a", "c"]


def test_a_complete_line_that_is_no_record_is_an_error(tmp_path: Path) -> None:
    (tmp_path / RESULTS).write_bytes(record("a").to_line() + b'{"cell":"x"}\n')
    with pytest.raises(StoreError, match=r"results\.jsonl:2: not a record of this version"):
        read_records(tmp_path)


def test_several_processes_append_at_once(tmp_path: Path) -> None:
    writers = [writer(tmp_path, name, 300) for name in "abc"]
    for process in writers:
        process.communicate()
    torn: list[str] = []
    kept = [entry.shape for entry in iter_records(tmp_path, torn)]
    assert sorted(kept) == sorted(f"{name}-{number}" for name in "abc" for number in range(300))
    assert ([process.returncode for process in writers], torn) == ([0, 0, 0], [])


def test_a_killed_writer_loses_nothing_it_stored(tmp_path: Path) -> None:
    process = writer(tmp_path, "a", -1)
    assert process.stdout is not None
    assert process.stdout.readline() == "hundred\n"
    process.kill()
    process.communicate()
    with Store(tmp_path) as store:
        store.append(record("after"))
    kept = shapes(tmp_path)
    assert kept[:100] == [f"a-{number}" for number in range(100)]
    assert kept[-1] == "after"


def test_a_full_disk_keeps_what_is_stored(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.append(record("a"))
        size = (tmp_path / RESULTS).stat().st_size
        with (
            file_size_limit(size + 100),
            pytest.raises(StoreError, match=r"cannot write .*results\.jsonl: File too large.*intact.*resume"),
        ):
            store.append(record("b"))
        assert (tmp_path / RESULTS).stat().st_size == size
        store.append(record("c"))
    assert shapes(tmp_path) == ["a", "c"]


def test_the_reason_of_a_full_disk_is_named(tmp_path: Path) -> None:
    (tmp_path / RESULTS).symlink_to("/dev/full")
    store = Store(tmp_path)
    with pytest.raises(StoreError, match="No space left on device"):
        store.append(record("a"))


def test_a_full_disk_keeps_the_old_run_info(tmp_path: Path) -> None:
    write_run_info(tmp_path, info(preset="old"))
    with file_size_limit(20), pytest.raises(StoreError, match=r"cannot write .*run\.json"):
        write_run_info(tmp_path, info(preset="new"))
    assert read_run_info(tmp_path).preset == "old"
    assert [path.name for path in tmp_path.iterdir()] == [RUN]


def test_a_reports_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "reports").write_text("")
    with pytest.raises(UsageError, match=r"reports is \(or is below\) a file"):
        create_run_dir(tmp_path / "reports")


def test_runs_at_once_never_share_a_directory(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: create_run_dir(tmp_path / "reports"), range(64)))
    assert len(set(made)) == 64


def test_a_name_that_is_taken_is_drawn_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draws = iter(["same", "same", "other"])
    monkeypatch.setattr("tierlab.run.store.secrets.token_hex", lambda _: next(draws))
    first, second = create_run_dir(tmp_path), create_run_dir(tmp_path)
    assert first != second


def test_latest_follows_the_last_run(tmp_path: Path) -> None:
    for name in ("20260101-000000-a", "20260102-000000-b"):
        (tmp_path / name).mkdir()
        write_run_info(tmp_path / name, info(name))
        mark_latest(tmp_path / name)
        assert find_run(tmp_path) == tmp_path / name
    assert (tmp_path / "latest").is_symlink()


def test_a_real_latest_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "latest").mkdir()
    (tmp_path / "run").mkdir()
    mark_latest(tmp_path / "run")
    assert not (tmp_path / "latest").is_symlink()


def test_an_unknown_run_lists_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="`invoke matrix` makes the first one"):
        find_run(tmp_path, "nope")
    (tmp_path / "20260101-000000-a").mkdir()
    write_run_info(tmp_path / "20260101-000000-a", info())
    with pytest.raises(StoreError, match="20260101-000000-a"):
        find_run(tmp_path, "nope")


def test_cells_asked_for(tmp_path: Path) -> None:
    assert read_cells(tmp_path) == []
    with Store(tmp_path) as store:
        store.write_cells(["a/b", "c/d"])
    assert read_cells(tmp_path) == ["a/b", "c/d"]


@pytest.mark.parametrize(
    ("content", "message"), [(None, "No such file.*no run directory"), (b"{", "not valid JSON")]
)
def test_a_run_without_run_info(tmp_path: Path, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / RUN).write_bytes(content)
    with pytest.raises(StoreError, match=message):
        read_run_info(tmp_path)
