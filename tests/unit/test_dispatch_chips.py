# SPDX-License-Identifier: MIT
"""Chips: the data file is sound, the nearest profile is right, gaps are told, wrong names get a hint."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tierlab.cells.load import load_matrix
from tierlab.dispatch.chips import PROBED, Chip, find_chip, gaps, load_chips, nearest_profile
from tierlab.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from tierlab.cells.matrix import Matrix

ROOT = Path(__file__).parents[2]
CHIPS = load_chips()


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    return load_matrix(ROOT / "matrix.yaml")


@pytest.mark.parametrize(
    ("name", "profile"),
    [
        ("graviton2", "neoverse-n1"),
        ("graviton3", "neoverse-v1"),
        ("graviton4", "neoverse-n2"),
        ("altra", "neoverse-n1"),
        ("cobalt100", "neoverse-n2"),
        ("axion", "neoverse-n2"),
        ("a64fx", "a64fx"),
        ("apple-m1", "neoverse-n1"),
        ("apple-m4", "sme2-nosve"),
        ("rpi4", "cortex-a72"),
        ("rpi5", "cortex-a76"),
        ("dimensity-7300", "cortex-a76"),
        ("snapdragon-8-elite", "i8mm-nosve"),
        # SVE of 128 bits without SVE2: a profile with its length and SVE2 is nearer than SVE of 256 bits.
        ("snapdragon-8-gen1", "cortex-a710"),
        ("dimensity-9500", "sme2-svl512"),
    ],
)
def test_nearest_profile(matrix: Matrix, name: str, profile: str) -> None:
    assert nearest_profile(matrix, CHIPS[name]).name == profile


def test_every_chip_has_a_source_and_features_that_the_probe_knows() -> None:
    for chip in CHIPS.values():
        assert chip.sources, chip.name
        assert "asimd" in chip.features <= PROBED, chip.name
        assert not any(source in ("llvm", "socs") for source in chip.sources), chip.name


def test_the_probe_and_the_data_know_the_same_features() -> None:
    probe = (ROOT / "kernels/harness/cpu_probe.cpp").read_text()
    assert all(f'"{name}"' in probe for name in PROBED)


@pytest.mark.parametrize("word", ["graviton3", "Graviton 3", "GRAVITON_3", "graviton-3"])
def test_a_name_is_found_however_it_is_written(word: str) -> None:
    assert find_chip(CHIPS, word).name == "graviton3"


def test_an_unknown_name_gets_the_nearest_and_code_3() -> None:
    with pytest.raises(UsageError, match="did you mean 'graviton4'") as caught:
        find_chip(CHIPS, "gravtion4")
    assert caught.value.exit_code == 3
    with pytest.raises(UsageError, match="no name is near"):
        find_chip(CHIPS, "zzzz")


def test_gaps_tell_both_directions_and_the_lengths() -> None:
    chip = Chip("x", "X", "X", "linux", frozenset({"asimd", "dotprod", "sve", "sme"}), ("s",), 256, None)
    found = gaps(chip, {"asimd", "sve", "sme", "i8mm", "sve2p1"}, 128, 512)
    assert found.missing == ("dotprod",)
    assert found.surplus == ("i8mm", "sve2p1")
    assert found.tiers == ("dotprod", "i8mm")
    assert found.lengths == (
        "SVE vector length: 256 bits in silicon, 128 in the model",
        "SME streaming length: the model has 512 bits, no source tells the silicon's",
    )


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{title: T, cores: C, system: linux, features: [asimd]}", "keys missing: \\['sources'\\]"),
        (
            "{title: T, cores: C, system: linux, features: [neon], sources: [s]}",
            "without a name in the probe",
        ),
        ("{title: T, cores: C, system: dos, features: [asimd], sources: [s]}", "system 'dos'"),
        ("{title: T, cores: C, system: linux, features: [asimd], sources: []}", "no source"),
        (
            "{title: T, cores: C, system: linux, features: [asimd], sources: [s], vector_bits: 128}",
            "without its unit",
        ),
    ],
)
def test_a_wrong_entry_is_named(tmp_path: Path, entry: str, message: str) -> None:
    path = tmp_path / "chips.yaml"
    path.write_text(f"sources: {{}}\nchips:\n  odd: {entry}\n")
    with pytest.raises(ConfigError, match=f"chip 'odd': .*{message}"):
        load_chips(path)


def test_a_file_that_is_none_is_told(tmp_path: Path) -> None:
    path = tmp_path / "chips.yaml"
    path.write_text("just text")
    with pytest.raises(ConfigError, match="no file of chips"):
        load_chips(path)
