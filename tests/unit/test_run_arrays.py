# SPDX-License-Identifier: MIT
"""Array files: what goes in comes out; what is damaged is not there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tierlab.run.arrays import load, save

if TYPE_CHECKING:
    from pathlib import Path


def some_arrays() -> dict[str, np.ndarray]:
    return {
        "bytes": np.arange(37, dtype=np.uint8).reshape(1, 37),
        "answer": np.array([[1.5, np.nan, -0.0], [np.inf, 2.0**-1074, -3]]),
        "transposed": np.arange(6, dtype=np.float32).reshape(2, 3).T,
        "length": np.array(512),
        "nothing": np.zeros((0, 4)),
        "text": np.array("two oracles, ±½ ulp"),
        "silence": np.array(""),
    }


def test_arrays_come_back_with_kind_shape_and_bits(tmp_path: Path) -> None:
    path = tmp_path / "ab" / "abcd"
    save(path, some_arrays())
    found = load(path)
    assert found is not None
    assert list(found) == list(some_arrays())
    for name, array in some_arrays().items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert found[name].tobytes() == array.tobytes()
    assert str(found["text"]) == "two oracles, ±½ ulp"
    assert str(found["silence"]) == ""


def test_nothing_else_is_left_in_the_folder(tmp_path: Path) -> None:
    save(tmp_path / "abcd", some_arrays())
    assert [entry.name for entry in tmp_path.iterdir()] == ["abcd"]


def test_arrays_cannot_be_written_through(tmp_path: Path) -> None:
    save(tmp_path / "abcd", some_arrays())
    found = load(tmp_path / "abcd")
    assert found is not None
    with pytest.raises(ValueError, match="read-only"):
        found["bytes"][0] = 1


@pytest.mark.parametrize("place", [0, 20, -200, -1])
def test_a_changed_byte_makes_the_file_a_miss(tmp_path: Path, place: int) -> None:
    path = tmp_path / "abcd"
    save(path, some_arrays())
    data = bytearray(path.read_bytes())
    data[place] ^= 0x10
    path.write_bytes(data)
    assert load(path) is None


@pytest.mark.parametrize("kept", [0, 1, 30, 400, -1])
def test_a_short_file_is_a_miss(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "abcd"
    save(path, some_arrays())
    path.write_bytes(path.read_bytes()[:kept])
    assert load(path) is None


def test_a_missing_file_is_a_miss_and_an_unwritable_folder_an_error(tmp_path: Path) -> None:
    assert load(tmp_path / "abcd") is None
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        save(tmp_path / "file" / "abcd", some_arrays())
