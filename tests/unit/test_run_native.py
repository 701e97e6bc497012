# SPDX-License-Identifier: MIT
"""On real hardware the machine is one of the profiles, or the run ends with the reason."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tierlab.cells.load import load_matrix
from tierlab.errors import ProbeError
from tierlab.run.native import profile_of

MATRIX = load_matrix(Path(__file__).parents[2] / "matrix.yaml")
QUICK = MATRIX.presets["quick"].profiles


def hello(profile: str, **changes: Any) -> Any:
    made = MATRIX.profiles[profile]
    fields = {
        "arch": "aarch64",
        "features": made.features,
        "vector_bits": made.vector_bits or 0,
        "streaming_bits": made.streaming_bits or 0,
        "fa64": False,
        "sme_version": 0,
    }
    return SimpleNamespace(**{**fields, **changes})


@pytest.mark.parametrize("name", ["cortex-a53", "neoverse-n1", "neoverse-v1", "neoverse-n2"])
def test_the_machine_is_the_profile_whose_promises_it_keeps(name: str) -> None:
    assert profile_of(MATRIX, QUICK, hello(name)) == name


def test_an_unknown_machine_is_told_the_nearest_profile() -> None:
    odd = hello("neoverse-n2", vector_bits=640)
    with pytest.raises(ProbeError, match=r"the nearest is neoverse-n2, but .*640"):
        profile_of(MATRIX, QUICK, odd)
