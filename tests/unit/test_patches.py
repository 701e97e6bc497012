# SPDX-License-Identifier: MIT
"""The patch series: what applies, what is refused, and that the refusal names patch, file and hunk."""

from __future__ import annotations

import difflib
import random
from typing import TYPE_CHECKING

import pytest

from tierlab.errors import PatchError
from tierlab.toolchain.diff import Patch, parse_patch
from tierlab.toolchain.patches import apply_series, load_series

if TYPE_CHECKING:
    from pathlib import Path

TEXT = "".join(f"line {number}\n" for number in range(1, 41))


def diff(old: str, new: str, name: str = "ggml/x.c", *, before: str = "a", after: str = "b") -> Patch:
    lines = list(
        difflib.unified_diff(
            old.splitlines(keepends=True),
            new.splitlines(keepends=True),
            f"{before}/{name}",
            f"{after}/{name}",
        )
    )
    marked = [line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines]
    return Patch("0001-x.patch", "".join(marked).encode())


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "ggml").mkdir()
    (tmp_path / "ggml" / "x.c").write_text(TEXT)
    return tmp_path


def read(tree: Path, name: str = "x.c") -> str:
    return (tree / "ggml" / name).read_text()


def test_change(tree: Path) -> None:
    wanted = TEXT.replace("line 7\n", "seven\n").replace("line 30\n", "")
    apply_series([diff(TEXT, wanted)], tree)
    assert read(tree) == wanted


@pytest.mark.parametrize("seed", range(40))
def test_any_difference_applies_back(tree: Path, seed: int) -> None:
    rng = random.Random(seed)
    words = ["", "a", "b", "  c", "{", "}", "a"]
    old, new = ("".join(rng.choice(words) + "\n" for _ in range(rng.randrange(1, 60))) for _ in range(2))
    if rng.random() < 0.5:
        new = new[:-1] + "end"
    (tree / "ggml" / "x.c").write_text(old)
    if old != new:
        apply_series([diff(old, new)], tree)
        assert read(tree) == new


def test_lines_moved_by_an_earlier_patch(tree: Path) -> None:
    first = diff(TEXT, "new 1\nnew 2\nnew 3\n" + TEXT)
    second = diff(TEXT, TEXT.replace("line 20\n", "twenty\n"))
    apply_series([first, second], tree)
    assert read(tree) == "new 1\nnew 2\nnew 3\n" + TEXT.replace("line 20\n", "twenty\n")


def test_a_moved_hunk_goes_to_the_nearest_place(tree: Path) -> None:
    block = "begin\nwork\nend\n"
    old = block + "".join(f"{n}\n" for n in range(20)) + block
    (tree / "ggml" / "x.c").write_text("shift\n" + old)
    apply_series([diff(old, old[: -len(block)] + "begin\nplay\nend\n")], tree)
    assert read(tree) == "shift\n" + old[: -len(block)] + "begin\nplay\nend\n"


def test_new_and_removed_files(tree: Path) -> None:
    made = Patch("m", b"new file mode 100755\n--- /dev/null\n+++ b/ggml/new/y.sh\n@@ -0,0 +1,2 @@\n+a\n+b\n")
    apply_series([made], tree)
    assert (tree / "ggml/new/y.sh").read_text() == "a\nb\n"
    assert (tree / "ggml/new/y.sh").stat().st_mode & 0o111
    gone = Patch("r", b"--- a/ggml/new/y.sh\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-a\n-b\n")
    apply_series([gone], tree)
    assert not (tree / "ggml/new/y.sh").exists()


def test_diff_n_writes_an_absent_file_as_one_of_the_epoch(tree: Path) -> None:
    here, absent = (
        b"ggml/y.c\t2026-01-02 03:04:05.0 +0100\n",
        b"ggml/y.c\t1970-01-01 01:00:00.000000000 +0100\n",
    )
    apply_series([Patch("m", b"--- a/" + absent + b"+++ b/" + here + b"@@ -0,0 +1 @@\n+a\n")], tree)
    assert read(tree, "y.c") == "a\n"
    apply_series([Patch("o", b"--- a/" + absent + b"+++ b/" + here + b"@@ -1 +1 @@\n-a\n+b\n")], tree)
    assert read(tree, "y.c") == "b\n", "the date alone says nothing"
    apply_series([Patch("r", b"--- a/" + here + b"+++ b/" + absent + b"@@ -1 +0,0 @@\n-b\n")], tree)
    assert not (tree / "ggml/y.c").exists()


def test_new_file_must_not_be_there(tree: Path) -> None:
    made = Patch("m.patch", b"--- /dev/null\n+++ b/ggml/x.c\n@@ -0,0 +1 @@\n+a\n")
    with pytest.raises(PatchError, match=r"m.patch makes ggml/x.c, which is there already"):
        apply_series([made], tree)


def test_a_file_shared_by_hard_link_stays_whole_elsewhere(tree: Path) -> None:
    (tree / "other.c").hardlink_to(tree / "ggml" / "x.c")
    apply_series([diff(TEXT, TEXT.replace("line 7\n", ""))], tree)
    assert (tree / "other.c").read_text() == TEXT


def test_mail_around_the_diff(tree: Path) -> None:
    body = diff(TEXT, TEXT.replace("line 40\n", "forty\n")).content
    mail = b"From: someone\nSubject: [PATCH] x\n\n--- \nwords\n\n" + body + b"-- \n2.39.5\n\n"
    apply_series([Patch("m", mail)], tree)
    assert read(tree) == TEXT.replace("line 40\n", "forty\n")


def test_the_refusal_names_patch_file_and_hunk(tree: Path) -> None:
    wanted = TEXT.replace("line 7\n", "seven\n").replace("line 30\n", "thirty\n")
    (tree / "ggml" / "x.c").write_text(TEXT.replace("line 29\n", "line twenty-nine\n"))
    with pytest.raises(PatchError) as caught:
        apply_series([diff(TEXT, wanted)], tree)
    assert str(caught.value).startswith(
        "0001-x.patch: hunk 2 of 2 does not apply to ggml/x.c at line 29: it expects `line 29`, the tree has "
        "`line twenty-nine`; "
    )
    assert caught.value.exit_code == 2


def test_there_is_no_fuzz(tree: Path) -> None:
    (tree / "ggml" / "x.c").write_text(TEXT.replace("line 5\n", "line  5\n"))
    with pytest.raises(PatchError, match=r"hunk 1 of 1 .* at line 5: it expects `line 5`"):
        apply_series([diff(TEXT, TEXT.replace("line 7\n", "seven\n"))], tree)


def test_a_patch_that_is_in_already(tree: Path) -> None:
    patch = diff(TEXT, TEXT.replace("line 7\n", "seven\n"))
    with pytest.raises(PatchError, match=r"the tree holds its result already.*drop it from the series"):
        apply_series([patch, patch], tree)


def test_missing_file(tree: Path) -> None:
    with pytest.raises(PatchError, match=r"0001-x.patch changes ggml/gone.c, which cannot be read"):
        apply_series([diff("a\n", "b\n", "ggml/gone.c")], tree)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", r"bad:1: the file is empty"),
        (b"words\n", r"bad:1: there is no unified diff"),
        (b"rename from ggml/a.c\n", r"bad:1: this renames a file.*--no-renames"),
        (b"x\nGIT binary patch\n", r"bad:2: this changes a binary file"),
        (b"--- a/../../etc/x\n+++ b/../../etc/x\n@@ -1 +1 @@\n-a\n+b\n", r"bad:1: the file name"),
        (b"--- /etc/x\n+++ /etc/x\n@@ -1 +1 @@\n-a\n+b\n", r"bad:1: the file name"),
        (b"--- x\n+++ x\n@@ -1 +1 @@\n-a\n+b\n", r"bad:1: the file name 'x' does not have the form"),
        (b"--- a/x\n+++ b/y\n@@ -1 +1 @@\n-a\n+b\n", r"bad:1: it turns x into y"),
        (b"--- a/x\n+++ b/x\n", r"bad:3: x has no hunk"),
        (b"--- a/x\n+++ b/x\n@@ -1,3 +1 @@\n-a\n+b\n", r"bad:3: the hunk is shorter than its head says"),
        (b"--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n-a\n*b\n", r"bad:5: a hunk's line starts with none of"),
        (b"--- a/x\n+++ b/x\n@@ -1 +1,2 @@\n-a\n-b\n+c\n+d\n", r"bad:3: the hunk is longer"),
    ],
)
def test_malformed(content: bytes, words: str) -> None:
    with pytest.raises(PatchError, match=words):
        parse_patch(Patch("bad", content))


def test_series(tmp_path: Path) -> None:
    (tmp_path / "series").write_text("# first\n\nb.patch iq4_xs q4_k # why\na.patch\n")
    (tmp_path / "a.patch").write_bytes(b"A")
    (tmp_path / "b.patch").write_bytes(b"B")
    assert load_series(tmp_path) == (Patch("b.patch", b"B", ("iq4_xs", "q4_k")), Patch("a.patch", b"A"))


@pytest.mark.parametrize(
    ("series", "words"),
    [
        ("a.patch\ngone.patch\n", r"series:2: gone.patch cannot be read"),
        ("a.patch\na.patch\n", "series:2: .*twice"),
    ],
)
def test_bad_series(tmp_path: Path, series: str, words: str) -> None:
    (tmp_path / "series").write_text(series)
    (tmp_path / "a.patch").write_bytes(b"A")
    with pytest.raises(PatchError, match=words):
        load_series(tmp_path)


def test_missing_series(tmp_path: Path) -> None:
    with pytest.raises(PatchError, match=r"series cannot be read.*may be empty"):
        load_series(tmp_path)
