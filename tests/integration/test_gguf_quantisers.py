# SPDX-License-Identifier: MIT
"""The steps that `gguf diff` allows, against ggml's own quantisers: each type stays inside, other weights
do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from harness_rig import Rig

from tierlab.gguf.compare import HALF_GAPS, Distance
from tierlab.oracle.formats import FORMATS
from tierlab.oracle.weights import decode_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness_rig import Conversation
    from numpy.typing import NDArray

pytestmark = pytest.mark.engine

QUANTISED = [kind for kind in FORMATS if kind not in ("f32", "f16", "bf16")]
SHARP = ["q3_k", "q4_0", "q4_1", "q4_k", "q5_0", "q5_1", "q5_k", "q6_k", "q8_0", "iq4_nl", "iq4_xs"]
"""Types under which a change of 0.3 standard deviations of Gaussian weights shows."""
SHAPE = (16, 1024)


@pytest.fixture(scope="module")
def reference() -> Iterator[Conversation]:
    with Rig().reference() as conversation:
        yield conversation


def drawn(name: str) -> NDArray[np.float32]:
    rng = np.random.default_rng(1)
    values = {
        "gauss": lambda: rng.standard_normal(SHAPE),
        "laplace": lambda: rng.laplace(size=SHAPE),
        "outliers": lambda: rng.standard_normal(SHAPE) * np.where(rng.random(SHAPE) < 0.01, 10, 1),
        "student": lambda: rng.standard_t(3, size=SHAPE),
        "uniform": lambda: rng.uniform(-1, 1, size=SHAPE),
    }
    return (values[name]() * 0.02).astype(np.float32)


def used(kind: str, blocks: NDArray[np.uint8], weights: NDArray[np.floating]) -> float:
    decoded = decode_rows(kind, blocks)
    found = Distance()
    found.add(
        decoded.value.ravel(),
        weights.astype(np.float64).ravel(),
        HALF_GAPS.get(kind, 0.5) * decoded.step.ravel(),
    )
    return found.used


@pytest.mark.parametrize("name", ["gauss", "laplace", "outliers", "student", "uniform"])
@pytest.mark.parametrize("kind", QUANTISED)
def test_quantisers_stay_inside(reference: Conversation, kind: str, name: str) -> None:
    weights = drawn(name)
    assert 0.1 < used(kind, reference.quantised(kind, weights), weights) < 0.8


@pytest.mark.parametrize("kind", SHARP)
def test_other_weights_do_not(reference: Conversation, kind: str) -> None:
    weights = drawn("gauss")
    change = 0.3 * weights.std() * np.random.default_rng(2).standard_normal(SHAPE)
    assert used(kind, reference.quantised(kind, weights), weights + change) > 1
