# SPDX-License-Identifier: MIT
"""Inputs: the same bytes for the same problem, and each distribution what its name says."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tierlab.cells import inputs
from tierlab.cells.distributions import activation_rows
from tierlab.cells.load import load_matrix
from tierlab.cells.model import Problem
from tierlab.cells.schema import ACTIVATION_DISTRIBUTIONS
from tierlab.cells.shapes import parse_shape
from tierlab.cells.streams import byte_array, normal
from tierlab.errors import HarnessError

if TYPE_CHECKING:
    from numpy.typing import NDArray

MATRIX = load_matrix(Path(__file__).parents[2] / "matrix.yaml")


def problem(
    types: str, shape: str, weights: str = "blocks", activations: str = "gauss", **more: str
) -> Problem:
    exact = parse_shape(shape).of(MATRIX.types[types].block if types in MATRIX.types else 1)
    op = more.get("op", "mul_mat_id" if exact.experts else "mul_mat")
    return Problem(f"ggml.{op}", op, types, more.get("activation_type", "f32"), exact, weights, activations)


def digest(array: NDArray[np.generic]) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]


def test_the_bytes_are_these_bytes() -> None:
    """Known answers: a change of formula must not go unseen, nor a NumPy whose stream differs."""
    assert byte_array("known", 8).tobytes().hex() == "b1c9b0a8a1ba502d"
    assert digest(normal("known", 1000)) == "ca62fa457877310a"
    for types, want in KNOWN_WEIGHTS.items():
        assert digest(inputs.weights(MATRIX, problem(types, "m5n8K2"), 1)) == want, types
    for name, want in KNOWN_ACTIVATIONS.items():
        one = problem("q4_k", "m5n8K2", activations=name)
        assert digest(inputs.activations(MATRIX, one, 1)) == want, name


KNOWN_WEIGHTS = {
    "f32": "e98dc253e7c5c4ae",
    "f16": "2d7c10aa7620db78",
    "bf16": "1f2ae65d1cfdda8c",
    "q1_0": "8223fdbda39c4705",
    "q2_0": "f11b565e31b91721",
    "q4_0": "0220934fdccdcaf3",
    "q4_1": "6c7c9daddd82a468",
    "q5_0": "9e62646926330a1f",
    "q5_1": "b61662ad161b7314",
    "q8_0": "a0c649b25bb1c76b",
    "mxfp4": "c5a7129c37f899c3",
    "nvfp4": "316d0fe930ebbb45",
    "q2_k": "90743c39e7066bec",
    "q3_k": "c8e5d12b345749a5",
    "q4_k": "f1b3416c4a7c0ef3",
    "q5_k": "954889df215f2d4a",
    "q6_k": "107cc0e845bc75f8",
    "iq1_s": "b30150a85c5b8fe6",
    "iq1_m": "c468b246908c5ddf",
    "iq2_xxs": "6db327685bfe833b",
    "iq2_xs": "52581c69072f5d9e",
    "iq2_s": "5db32d63a3980667",
    "iq3_xxs": "cf02695e39124c6c",
    "iq3_s": "b6c17ea59ba8277c",
    "iq4_nl": "ca7f8cac4fa8581e",
    "iq4_xs": "518310996bf1115a",
    "tq1_0": "afb5c188af75b785",
    "tq2_0": "cf33aa6c3871228a",
}
KNOWN_ACTIVATIONS = {
    "gauss": "4e828694ee841c54",
    "onehot": "60a5ae993d4fb309",
    "powers": "08d27ab598a89160",
    "tiny": "1a1f2be021733ba2",
    "negzero": "9fc538303e8dc00e",
    "denormals": "2c4d7db04c079c6d",
}


def test_weights_depend_on_what_names_them() -> None:
    one = inputs.weights(MATRIX, problem("q4_0", "m5n8K2"), 7)
    assert (one == inputs.weights(MATRIX, problem("q4_0", "m9n8K2", activations="huge"), 7)).all()
    for other in (problem("q4_0", "m5n8K2", weights="extremes"), problem("iq4_nl", "m5n8K2")):
        assert (one != inputs.weights(MATRIX, other, 7)).mean() > 0.5
    assert (one != inputs.weights(MATRIX, problem("q4_0", "m5n8K2"), 8)).mean() > 0.5


def test_activations_depend_on_what_names_them() -> None:
    one = inputs.activations(MATRIX, problem("q4_0", "m5n8k256"), 7)
    assert (one == inputs.activations(MATRIX, problem("q4_k", "m5n61k256", weights="extremes"), 7)).all()
    assert (one == inputs.activations(MATRIX, problem("q4_k", "m5n61k256s"), 7)).all()
    assert (one != inputs.activations(MATRIX, problem("q4_0", "m5n8k256"), 8)).mean() > 0.9


@pytest.mark.parametrize(
    ("types", "shape", "weights", "activations"),
    [
        ("q4_k", "m5n61K2", (1, 1, 61, 288), (1, 1, 5, 512)),
        ("f32", "m5n3k33", (1, 1, 3, 132), (1, 1, 5, 33)),
        ("q8_0", "m4n8K1b4x3w2x1", (1, 2, 8, 34), (3, 4, 4, 32)),
        ("q8_0", "m4n8K1e6u2i1", (6, 8, 34), (1, 1, 4, 32)),
    ],
)
def test_layouts(types: str, shape: str, weights: tuple[int, ...], activations: tuple[int, ...]) -> None:
    one = problem(types, shape)
    assert inputs.weights(MATRIX, one, 1).shape == weights
    assert inputs.activations(MATRIX, one, 1).shape == activations


def test_gauss_is_normal_and_bounded() -> None:
    values = normal("a key", 200_000).astype(np.float64)
    assert abs(values.mean()) < 0.01
    assert abs(values.std() - 1) < 0.01
    assert np.abs(values).max() <= 6
    assert 0.676 < (np.abs(values) < 1).mean() < 0.69
    assert (values * 65536 == np.round(values * 65536)).all(), "no rounding, hence no platform"


def rows(name: str, count: int = 40, k: int = 256, codes: str = "q8_0") -> NDArray[np.float32]:
    return activation_rows(name, count, k, "a key", codes)


def test_every_distribution_is_made() -> None:
    for name in ACTIVATION_DISTRIBUTIONS:
        if name != "none":
            made = rows(name, 3, 33)
            assert made.shape == (3, 33)
            assert made.dtype == np.float32


def test_onehot_visits_many_columns() -> None:
    values = rows("onehot")
    assert (np.count_nonzero(values, axis=1) == 1).all()
    assert len({int(np.flatnonzero(row)[0]) for row in values}) == 40
    assert rows("onehot", 5, 1).shape == (5, 1)


def test_constant_and_alternating() -> None:
    constant = rows("constant")
    assert (constant == constant[:, :1]).all()
    assert len(np.unique(constant[:, 0])) == 8
    alternating = rows("alternating")
    assert (np.abs(alternating) == 8).all()
    assert (alternating[:, 1:] == -alternating[:, :-1]).all()
    assert (alternating[1:] == -alternating[:-1]).all()


def test_powers() -> None:
    mantissa, exponent = np.frexp(rows("powers"))
    assert set(np.abs(mantissa).ravel()) == {0.5}
    assert set(np.unique(exponent - 1)) == set(range(-8, 8))


@pytest.mark.parametrize(
    ("codes", "smallest", "normal_from"),
    [("f32", 2.0**-149, 2.0**-126), ("bf16", 2.0**-133, 2.0**-126), ("f16", 2.0**-24, 2.0**-14)],
)
def test_denormals_are_subnormal_in_the_code_type(codes: str, smallest: float, normal_from: float) -> None:
    values = rows("denormals", codes=codes).astype(np.float64)
    size = np.abs(values[0::2])
    assert (size > 0).all()
    assert (size < normal_from).all()
    assert (size / smallest == np.round(size / smallest)).all(), "representable in the code type"
    mixed = np.abs(values[1::2]) >= normal_from
    assert 0.4 < mixed.mean() < 0.6


def test_tiny_makes_fp16_scales_subnormal_or_zero() -> None:
    largest = np.abs(rows("tiny").astype(np.float64)).max(axis=1)
    scales = (largest / 127).astype(np.float16)
    assert (scales == 0).any()
    assert ((scales > 0) & (scales < 2.0**-14)).any()


def test_huge_fits_f16_but_its_sums_do_not() -> None:
    values = np.abs(rows("huge").astype(np.float64))
    assert values.max() < 65504
    assert values.sum(axis=1).min() > 65504


def test_zeros_of_both_signs() -> None:
    values = rows("negzero")
    minus = (values == 0) & np.signbit(values)
    plus = (values == 0) & ~np.signbit(values)
    assert 0.47 < minus.mean() < 0.53
    assert 0.22 < plus.mean() < 0.28
    assert not np.signbit(rows("zeros")).any()
    assert not rows("zeros").any()


def test_nonfinite_rows() -> None:
    values = rows("nonfinite")
    assert np.isnan(values[0]).sum() == 1
    assert (values[1] == np.inf).sum() == 1
    assert (values[2] == -np.inf).sum() == 1
    assert np.isfinite(values[3:]).all()
    assert rows("nonfinite", 1).shape == (1, 256)


@pytest.mark.parametrize(("types", "error"), [("f16", 2.0**-9), ("bf16", 2.0**-6)])
def test_f16_and_bf16_activations_read_back(types: str, error: float) -> None:
    one = problem(types, "m5n8k33", activation_type=types)
    made = inputs.activations(MATRIX, one, 1)
    full = activation_rows("gauss", 5, 33, f"1/{inputs.activations_key(one, types)}", types)
    assert made.dtype == np.uint16
    assert 0 < np.abs(inputs.as_float32(types, made)[0, 0] - full).max() <= error


def test_f32_activations_read_back_as_they_are() -> None:
    made = inputs.activations(MATRIX, problem("f16", "m5n8k33"), 1)
    assert inputs.as_float32("f32", made) is made


def test_bf16_rounds_ties_to_even() -> None:
    bits = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0x7F800000, 0x7F800001, 0x80000000], dtype=np.uint32)
    want = [0x3F80, 0x3F82, 0x3F81, 0x7F80, 0x7FC0, 0x8000]
    assert inputs.to_bf16(bits.view(np.float32)).tolist() == want


def test_experts() -> None:
    one = problem("q4_0", "m50n8K1e8u3i2")
    chosen = inputs.ids(one, 1)
    assert chosen.shape == (50, 3)
    assert chosen.dtype == np.int32
    assert all(len(set(row)) == 3 for row in chosen.tolist())
    assert set(np.unique(chosen)) == set(range(6)), "the idle ones never, the others all"
    assert (chosen != inputs.ids(one, 2)).any()


@pytest.mark.parametrize("types", [n for n, k in MATRIX.types.items() if k.quantizer == "gguf"])
def test_quantised_gaussians_by_gguf(types: str) -> None:
    import gguf

    one = problem(types, "m1n8K2", weights="gauss")
    data = inputs.weights(MATRIX, one, 1)
    kind = MATRIX.types[types]
    assert data.shape == (1, 1, 8, kind.row_bytes(one.shape.k))
    values = gguf.quants.dequantize(data.reshape(8, -1), gguf.GGMLQuantizationType[types.upper()])
    assert 0.4 < values.std() < 1.6


def test_gaussians_as_floats() -> None:
    exact = inputs.weights(MATRIX, problem("f32", "m1n8k33", weights="gauss"), 1).view("<f4")
    assert 0.8 < exact.std() < 1.2
    half = inputs.weights(MATRIX, problem("f16", "m1n8k33", weights="gauss"), 1).view("<f2")
    assert half.shape == (1, 1, 8, 33)
    brain = inputs.weights(MATRIX, problem("bf16", "m1n8k33", weights="gauss"), 1)
    assert brain.shape == (1, 1, 8, 66)


def test_native_quantiser_is_called_with_the_rows() -> None:
    calls: list[tuple[str, tuple[int, ...]]] = []

    def quantize(name: str, values: NDArray[np.float32]) -> bytes:
        calls.append((name, values.shape))
        return bytes(MATRIX.types[name].row_bytes(values.shape[1]) * values.shape[0])

    data = inputs.weights(MATRIX, problem("iq2_s", "m5n8K2e4u1i0", weights="gauss"), 1, quantize)
    assert calls == [("iq2_s", (32, 512))]
    assert data.shape == (4, 8, 164)


def test_native_quantiser_missing_or_wrong() -> None:
    one = problem("iq2_s", "m5n8K2", weights="gauss")
    with pytest.raises(HarnessError, match="iq2_s need ggml's own quantiser, and none was given"):
        inputs.weights(MATRIX, one, 1)
    with pytest.raises(HarnessError, match="returned 3 bytes of iq2_s for 8 rows of 512, not 1312"):
        inputs.weights(MATRIX, one, 1, lambda _name, _values: b"abc")


def test_codes_of_the_quantize_suite() -> None:
    assert inputs.codes_of(MATRIX, problem("q8_k", "m5n1k256", "none", op="quantize")) == "q8_k"
    assert inputs.codes_of(MATRIX, problem("q4_1", "m5n1k32")) == "q8_1"
