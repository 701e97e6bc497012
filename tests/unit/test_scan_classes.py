# SPDX-License-Identifier: MIT
"""Instruction words and their classes; each word is what an assembler makes of the text beside it."""

from __future__ import annotations

import numpy as np
import pytest

from tierlab.dispatch.instruction_classes import CLASSES, GROUPS, class_counts, classes_of, group_numbers

WORDS = [
    (0x4E20D400, "neon", "fadd v0.4s, v0.4s, v0.4s"),
    (0x4C407000, "neon", "ld1 {v0.16b}, [x0]"),
    (0x5EE08400, "neon", "add d0, d0, d0"),
    (0x4E401400, "fp16", "fadd v0.8h, v0.8h, v0.8h"),
    (0x1EE02800, "fp16", "fadd h0, h0, h0"),
    (0x4E20EC00, "fp16", "fmlal v0.4s, v0.4h, v0.4h"),
    (0x4E809400, "dotprod", "sdot v0.4s, v0.16b, v0.16b"),
    (0x6F80E000, "dotprod", "udot v0.4s, v0.16b, v0.4b[0]"),
    (0x4E80A400, "i8mm", "smmla v0.4s, v0.16b, v0.16b"),
    (0x4F00F000, "i8mm", "sudot v0.4s, v0.16b, v0.4b[0]"),
    (0x6E40EC00, "bf16", "bfmmla v0.4s, v0.8h, v0.8h"),
    (0x0EA16800, "bf16", "bfcvtn v0.4h, v0.4s"),
    (0x04200000, "sve", "add z0.b, z0.b, z0.b"),
    (0x44800000, "sve", "sdot z0.s, z0.b, z0.b"),
    (0x45009800, "sve+i8mm", "smmla z0.s, z0.b, z0.b"),
    (0x658AA000, "sve+bf16", "bfcvt z0.h, p0/m, z0.s"),
    (0x04206000, "sve2", "mul z0.b, z0.b, z0.b"),
    (0x25203000, "sve2", "whilewr p0.b, x0, x0"),
    (0x80800000, "sme", "fmopa za0.s, p0/m, p0/m, z0.s, z0.s"),
    (0xD503477F, "sme", "smstart"),
    (0x04BF5800, "sme", "rdsvl x0, #0"),
    (0xC0900000, "sme", "addha za0.s, p0/m, p0/m, z0.s"),
    (0xE11F8000, "sme2", "ldr zt0, [x0]"),
    (0xA0400000, "sme2", "ld1b {z0.b-z1.b}, pn8/z, [x0]"),
    (0xC08A0000, "sme2", "luti4 {z0.b-z1.b}, zt0, z0[0]"),
    (0x1E202800, "", "fadd s0, s0, s0"),
    (0x1EE24000, "", "fcvt s0, h0: half precision of the first Armv8"),
    (0x3DC00000, "", "ldr q0, [x0]"),
    (0x4E284800, "", "aese v0.16b, v0.16b"),
    (0x8B000000, "", "add x0, x0, x0"),
    (0xD503201F, "", "nop"),
    (0x00000000, "", "udf #0"),
]


@pytest.mark.parametrize(("word", "classes", "text"), WORDS, ids=[text for *_, text in WORDS])
def test_one_word(word: int, classes: str, text: str) -> None:
    assert "+".join(classes_of(word)) == classes, text


def test_counts_are_those_of_the_words_one_by_one() -> None:
    words = np.array([word for word, *_ in WORDS] * 3, np.uint32)
    assert class_counts(words) == {
        name: 3 * sum(name in classes.split("+") for _, classes, _ in WORDS) for name in CLASSES
    }


def test_nothing_counts_nothing() -> None:
    assert class_counts(np.empty(0, np.uint32)) == dict.fromkeys(CLASSES, 0)


def test_groups_are_sound_data() -> None:
    for group in GROUPS[1:]:
        assert group.value & ~group.mask == 0, group.name
        assert set(group.classes) <= set(CLASSES), group.name
        assert group_numbers(np.array([group.value], np.uint32)).size == 1


def test_each_group_wins_somewhere() -> None:
    """A group that wider later lines shadow wholly would be dead data."""
    generator = np.random.default_rng(1)
    for number, group in enumerate(GROUPS[1:], start=1):
        noise = generator.integers(0, 1 << 32, 4096, dtype=np.uint64).astype(np.uint32)
        words = (noise & np.uint32(~group.mask & 0xFFFFFFFF)) | np.uint32(group.value)
        assert np.any(group_numbers(words) == number), group.name
