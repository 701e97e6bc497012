# SPDX-License-Identifier: MIT
"""Model files that are cut, changed at random, or huge: a clear error or a census, in bounded memory.

The fuzz runs in a process of its own under limits of the kernel: one that hangs runs out of processor time,
one that believes a stated length runs out of memory.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from gguf_files import F32, IQ4_XS, LLAMA, Q4_0, Q8_0, Made, gguf_file, llama
from gguf_limits import CENSUS, GIB, MIB, PEAK, limited, peak

from tierlab.errors import ModelFileError
from tierlab.gguf.census import census
from tierlab.gguf.model import open_model

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("order", ["<", ">"])
def test_every_cut_is_told(tmp_path: Path, order: str) -> None:
    data = llama(order=order)
    path = tmp_path / "m.gguf"
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(ModelFileError) as error:
            open_model(path)
        assert str(error.value).startswith(f"{path}: "), length
    path.write_bytes(data)
    assert len(census(open_model(path)).model.tensors) == 11


FUZZ = """
import random
from pathlib import Path
from gguf_files import *
from tierlab.cli.gguf import gguf
from tierlab.errors import ExitCode, ModelFileError, TierlabError
from tierlab.gguf.census import census
from tierlab.gguf.model import open_model
from tierlab.gguf.require import judge, parse_requirement
from tierlab.report.gguf_report import census_json, census_markdown, unreadable_markdown

path, count, seed = Path(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
files = [llama(), llama(order=">"), llama(version=2), llama(Q4_K, 256, 15), llama(IQ4_NL, 64, 30)]
header = files[0].index(Made("token_embd.weight", Q8_0, (64, 32)).content)
wild = [0, 1, 2, 3, 7, 8, 9, 12, 13, 31, 32, 33, 0x7F, 0x80, 0xFF, 0xFFFF, 1 << 16, (1 << 31) - 1, 1 << 31]
wild += [(1 << 32) - 1, 1 << 32, 1 << 40, 1 << 60, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
requirement = parse_requirement("ffn>=90% q4_0")
chance = random.Random(seed)
told = read = 0
for turn in range(count):
    data = bytearray(chance.choice(files))
    for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
        at = chance.randrange(header)
        kind = chance.randrange(6)
        if kind == 0:
            data[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            data[at] = chance.randrange(256)
        elif kind == 2:
            size = chance.choice((4, 8))
            number = chance.choice(wild) % (1 << 8 * size)
            data[at : at + size] = number.to_bytes(size, chance.choice(("little", "big")))
        elif kind == 3:
            del data[at : at + chance.choice((1, 4, 8, 40))]
        elif kind == 4:
            data[at:at] = chance.randbytes(chance.choice((1, 4, 8, 40)))
        else:
            begin = chance.randrange(header)
            data[at : at + 24] = data[begin : begin + 24]
    path.write_bytes(data)
    try:
        model = open_model(path)
    except ModelFileError as error:
        text = str(error)
        assert text.startswith(str(path)) and len(text) < 600, text
        assert unreadable_markdown(error).isprintable() or unreadable_markdown(error).count("\\n") == 1, text
        told += 1
        continue
    except TierlabError as error:
        raise AssertionError(turn) from error
    found = census(model)
    text = census_markdown(found, [judge(requirement, found)])
    assert not any(ord(letter) < 32 and letter != "\\n" for letter in text), turn
    census_json(found, [])
    assert sum(tensor.nbytes for tensor in model.tensors) <= len(data)
    read += 1
print("TOLD", told, "READ", read)
"""


def test_ten_thousand_mutations(tmp_path: Path) -> None:
    printed = limited(FUZZ + PEAK, tmp_path / "m.gguf", 10_000, 20261201)
    words = printed.split()
    told, read = int(words[1]), int(words[3])
    assert told + read == 10_000
    # Both kinds of answers were exercised: a fuzz that only ever hits one says little.
    assert told > 3000
    assert read > 1000
    assert peak(printed) < 300 * MIB


def test_forty_gigabytes_in_bounded_memory(tmp_path: Path) -> None:
    """Two tensors of 20 GB each whose bytes the file system does not store."""
    rows = 32 * 5_000_000
    tensors = [Made(f"blk.{n}.ffn_up.weight", IQ4_XS, (256, rows), b"", n * rows * 136) for n in range(2)]
    data = gguf_file(LLAMA, tensors)
    path = tmp_path / "m-IQ4_XS.gguf"
    path.write_bytes(data)
    os.truncate(path, len(data) + 2 * rows * 136)
    assert path.stat().st_size > 43_000_000_000
    printed = limited(CENSUS + PEAK, path, "unhashed")
    assert f" {2 * rows * 136} 2\n" in printed
    assert peak(printed) < 100 * MIB


def test_a_digest_takes_no_memory(tmp_path: Path) -> None:
    data = gguf_file(LLAMA, [Made("a", F32, (GIB // 4,), b"")])
    path = tmp_path / "m.gguf"
    path.write_bytes(data)
    os.truncate(path, len(data) + GIB)
    assert peak(limited(CENSUS + PEAK, path, "hashed")) < 100 * MIB


STRINGS = """
import struct
from pathlib import Path
from tierlab.errors import ModelFileError
from tierlab.gguf.model import open_model
path = Path(sys.argv[3])
try:
    open_model(path)
except ModelFileError as error:
    print("TOLD", error)
"""


def test_endless_strings_end(tmp_path: Path) -> None:
    """Zeros are empty strings: a sparse file of 40 GB states five thousand million of them."""
    data = gguf_file({"k": ("[str]", [])}, [])
    path = tmp_path / "m.gguf"
    at = data.index(b"k\x09\0\0\0\x08\0\0\0") + 9
    path.write_bytes(data[:at] + (5_000_000_000).to_bytes(8, "little"))
    os.truncate(path, 40_000_000_100)
    printed = limited(STRINGS + PEAK, path, seconds=60)
    assert "TOLD" in printed
    assert "longer than 128 MiB" in printed
    assert peak(printed) < 100 * MIB


def test_the_limits_bite() -> None:
    """What the tests above rely on: a process that takes too much memory or time fails them."""
    with pytest.raises(AssertionError, match="MemoryError"):
        limited("x = bytes(3 << 30)")
    with pytest.raises(AssertionError):
        limited("while True: pass", seconds=1)


def test_q4_and_q8_sizes_are_those_of_the_table() -> None:
    assert len(Made("a", Q4_0, (64, 2)).content) == 72
    assert len(Made("a", Q8_0, (64, 2)).content) == 136
