# SPDX-License-Identifier: MIT
"""Wrong use is exit 3 with one clear message, never a traceback and never exit 1."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tierlab.cells.builds import BuildWish
from tierlab.cli.options import build_options, given_path, selection, shard_of, whole_number
from tierlab.errors import UsageError

ROOT = Path(__file__).parents[2]


def invoke(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "invoke", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("matrxi",), "matrxi"),
        (("matrix", "--presett", "quick"), "--presett"),
        (("cells", "--preset", "quik"), "did you mean 'quick'?"),
        (("cells", "--profile", "neoverse-n9"), "did you mean 'neoverse-n2'"),
        (("cells", "--type", "q4_9"), "unknown type 'q4_9'"),
        (("cells", "--only", "ggml.mul_mat/iq4_sx/*"), "matches no cell"),
        (("cells", "--shard", "5/4"), "shard 5/4 does not exist"),
        (("cells", "--shard", "one"), "not of the form i/n"),
        (("cells", "--file", "missing.yaml"), "missing.yaml"),
        (("matrix", "--engine", "dokcer"), "did you mean docker?"),
        (("matrix", "--jobs", "0"), "--jobs"),
        (("matrix", "--seed", "-1"), "--seed"),
        (("matrix", "--build", "user"), "--llama-cpp PATH"),
        (("matrix", "--compare"), "stock is the only one selected"),
        (("matrix", "--each-patch", "--build", "stock"), "names the builds itself"),
        (("matrix", "--build", "patched-99"), "asks for 99 patches and the series has"),
        (("cost", "--model", "neoverse-n9"), "unknown model 'neoverse-n9'"),
        (("cost", "--build", "stock,patched"), "costs are of one build"),
        (("build", "--build", "stok"), "did you mean 'stock'?"),
        (("clean", "--what", "bulids"), "did you mean 'builds'?"),
    ],
)
def test_wrong_use_is_exit_3_with_one_message(arguments: tuple[str, ...], message: str) -> None:
    done = invoke(*arguments)
    said = done.stdout + done.stderr
    assert done.returncode == 3, said
    assert message.lower() in said.lower()
    assert "Traceback" not in said


def test_nothing_selected_is_exit_2() -> None:
    done = invoke("cells", "--type", "iq1_s", "--path", "kleidiai", "--suite", "ggml.mul_mat")
    assert done.returncode == 2
    assert "no cell of preset 'default' fits" in done.stderr


def test_cells_lists_exactly_what_the_selection_holds() -> None:
    done = invoke("cells", "--only", "ggml.mul_mat/iq4_*/*", "--profile", "neoverse-n1", "--path", "repack")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines
    assert all(line.startswith("ggml.mul_mat/iq4_nl/") for line in lines)
    assert all(line.endswith("/repack/t1/stock/neoverse-n1") or "/repack/t" in line for line in lines)
    assert f"{len(lines)} cells" in done.stderr


def test_a_closed_pipe_is_no_error() -> None:
    command = f"{sys.executable} -m invoke cells | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr


def test_every_task_has_help() -> None:
    listed = invoke("--list").stdout
    for task in ("matrix", "image", "build", "cells", "doctor", "test", "clean", "report"):
        assert task in listed
        shown = invoke("--help", task)
        assert shown.returncode == 0
        assert "Docstring:" in shown.stdout
        assert "none" not in shown.stdout.split("Docstring:")[1].split("Options:")[0]


def test_axis_values_may_be_given_with_commas() -> None:
    builds = ("stock, patched", "", "0.3.16, 0.3.17", build_options("armv8-a", True, False, True, False))
    words = selection("quick", None, ["a,b", "c"], None, None, None, builds, "2/4", "matrix.yaml")
    assert words.profiles == ("a", "b", "c")
    options = ("armv8-a", "assertions", "no-kleidiai")
    assert words.build_wish == BuildWish(("stock", "patched"), False, ("0.3.16", "0.3.17"), options)
    assert words.checked().shard == (2, 4)


@pytest.mark.parametrize("text", ["1", "1/", "/2", "a/b", "-1/2", "1/2/3"])
def test_malformed_shards(text: str) -> None:
    with pytest.raises(UsageError, match="i/n"):
        shard_of(text)


def test_numbers() -> None:
    assert whole_number("seed", "", 0, None) is None
    assert whole_number("seed", "0", 0, None) == 0
    with pytest.raises(UsageError, match="--jobs 'x'"):
        whole_number("jobs", "x", 1, 1)


def test_paths_are_relative_to_where_the_caller_stood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIERLAB_CALLER", str(tmp_path))
    assert given_path("tree") == tmp_path / "tree"
    assert given_path("/tree") == Path("/tree")
    assert given_path("reports") == Path("reports")
    monkeypatch.delenv("TIERLAB_CALLER")
    assert given_path("tree") == Path("tree")
