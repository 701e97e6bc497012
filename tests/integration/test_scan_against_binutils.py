# SPDX-License-Identifier: MIT
"""Instruction classes against binutils: its disassembler names the instruction, its assembler the extension.

A word that was disassembled is assembled again with one extension allowed after the other; the first that
takes it is what the instruction needs, from binutils' tables and not from ours. Once for every instruction of
the shipped backends, once for random words of the spaces that the masks divide.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from harness_rig import SHIPPED

from tierlab.dispatch.instruction_classes import GROUPS, classes_of, group_numbers
from tierlab.dispatch.scan import scan_file
from tierlab.toolchain.builds import build_tree
from tierlab.toolchain.choose import choose_engine
from tierlab.toolchain.engine import Mount
from tierlab.toolchain.sources import stock_tree

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from tierlab.toolchain.engine import Engine

pytestmark = pytest.mark.engine

BASE = "armv8.3-a+crypto"
EXTENSIONS = {
    "neon": "+sha3+sm4",
    "fp16": "+fp16fml",
    "dotprod": "+dotprod",
    "i8mm": "+i8mm",
    "bf16": "+bf16",
    "sve": "+sve+f32mm+f64mm",
    "sve+i8mm": "+sve+i8mm",
    "sve+bf16": "+sve+bf16",
    "sve2": "+sve2+sve2-aes+sve2-sha3+sve2-sm4+sve2-bitperm",
    "sme": "+sve2+sme+sme-f64f64+sme-i16i64",
    "sme2": "+sve2+sme2+sme-f64f64+sme-i16i64",
}
"""In the order in which they are tried; `neon` here is all that the first Armv8 has."""

SPACES = (
    (0x1E000000, 0x04000000),
    (0x9E000000, 0x80000000),
    (0x9E000000, 0x0E000000),
    (0xDE000000, 0x5E000000),
    (0x5E000000, 0x1E000000),
    (0xBE000000, 0x0C000000),
)
"""Mask and value: SVE, SME, Advanced SIMD of vectors and of scalars, floating point, structures."""

RANDOM_WORDS = 40_000
"""In each space."""

LINE = re.compile(r"^\s*[0-9a-f]+:\t([0-9a-f]{8}) \t(\S+)(?:\t([^/\n]*(?:/[zm][^/\n]*)*))?", re.MULTILINE)
COMPLEX = {"fcmla", "fcadd"}
"""On half precision they need FEAT_FP16 (Arm ARM); binutils asks for FEAT_FCMA alone."""


@dataclass(frozen=True)
class Binutils:
    engine: Engine
    folder: Path

    def run(self, command: str) -> None:
        mounts = [Mount(self.folder, "/lab", writable=True)]
        self.engine.run(["sh", "-c", command], mounts=mounts, log=self.folder / "log")

    def disassembled(self, words: NDArray[np.uint32]) -> list[tuple[int, str]]:
        """Word and text of those that are instructions and whose text can be assembled again."""
        (self.folder / "words").write_bytes(words.tobytes())
        self.run("aarch64-linux-gnu-objdump -D -z -b binary -m aarch64 -M no-aliases /lab/words >/lab/text")
        found = LINE.findall((self.folder / "text").read_text(encoding="utf-8"))
        return [
            (int(word, 16), f"{name} {operands.strip()}")
            for word, name, operands in found
            if name not in (".inst", "undefined") and "<" not in operands
        ]

    def needed(self, texts: list[str]) -> list[str]:
        """The first of EXTENSIONS that takes each line; empty where none does."""
        (self.folder / "lines.s").write_text("".join(f"\t{text}\n" for text in texts), encoding="utf-8")
        found = [""] * len(texts)
        for name, extension in reversed(EXTENSIONS.items()):
            self.run(f"aarch64-linux-gnu-as -march={BASE}{extension} -o /dev/null /lab/lines.s 2>/lab/errors")
            said = (self.folder / "errors").read_text(encoding="utf-8")
            assert "unknown" not in said.splitlines()[0] if said else True, said
            refused = {int(line) for line in re.findall(r"lines\.s:(\d+): Error", said)}
            found = [old if line in refused else name for line, old in enumerate(found, start=1)]
        return found


@pytest.fixture(scope="module")
def engine() -> Engine:
    engine = choose_engine(say=lambda _: None)
    if not engine.emulated:
        pytest.skip("the native engine has no cross binutils")
    engine.prepare()
    return engine


@pytest.fixture
def binutils(engine: Engine, tmp_path: Path) -> Binutils:
    return Binutils(engine, tmp_path)


def disagreements(binutils: Binutils, words: NDArray[np.uint32]) -> tuple[Counter[str], list[str]]:
    """How many words of each extension were compared, and the text of those on which the two disagree."""
    known = binutils.disassembled(words)
    needed = binutils.needed([text for _, text in known])
    groups = group_numbers(np.array([word for word, _ in known], np.uint32))
    compared: Counter[str] = Counter()
    wrong = []
    for (word, text), theirs, group in zip(known, needed, groups.tolist(), strict=True):
        ours = "+".join(GROUPS[group].classes)
        if not theirs or (theirs == "neon" and not ours):
            continue  # newer than the list, or of the first Armv8 and in no class
        if theirs == "neon" and ours == "fp16" and text.split()[0] in COMPLEX:
            continue
        compared[theirs] += 1
        if theirs != ours:
            wrong.append(f"{word:08x} {text}: binutils {theirs}, here {ours or 'none'}")
    return compared, wrong


@pytest.mark.parametrize("seed", [1, 2])
def test_random_words(binutils: Binutils, seed: int) -> None:
    generator = np.random.default_rng(seed)
    parts = []
    for mask, value in SPACES:
        noise = generator.integers(0, 1 << 32, RANDOM_WORDS, dtype=np.uint64).astype(np.uint32)
        parts.append((noise & np.uint32(~mask & 0xFFFFFFFF)) | np.uint32(value))
    compared, wrong = disagreements(binutils, np.unique(np.concatenate(parts)))
    assert not wrong, wrong[:20]
    assert set(compared) == set(EXTENSIONS)
    assert min(compared.values()) >= 20, compared


def test_every_instruction_of_the_shipped_backends(engine: Engine, binutils: Binutils) -> None:
    build = build_tree(engine, stock_tree(say=lambda _: None), SHIPPED, say=lambda _: None)
    parts, counted = [], 0
    for library in sorted(build.directory.glob("libggml-cpu-*.so")):
        scan = scan_file(library)
        assert scan.exit_code == 0, scan.verdict
        counted += sum(sum(binary.classes.values()) for binary in scan.binaries)
        parts.append(_text_of(library))
    words, times = np.unique(np.concatenate(parts), return_counts=True)
    compared, wrong = disagreements(binutils, words)
    assert not wrong, wrong[:20]
    assert set(compared) == set(EXTENSIONS) - {"bf16"}
    # What the scan counts is what these words are, each as often as it occurs.
    assert counted == sum(
        len(classes_of(word)) * int(n) for word, n in zip(words.tolist(), times, strict=True)
    )


def _text_of(library: Path) -> NDArray[np.uint32]:
    with library.open("rb") as stream:
        section = ELFFile(stream).get_section_by_name(".text")
        assert section is not None
        return np.frombuffer(section.data(), "<u4")
