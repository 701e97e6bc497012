# SPDX-License-Identifier: MIT
"""Activation distributions: ordinary ones, and hostile ones that each stress one thing.

| name | values | stresses | meant for |
| --- | --- | --- | --- |
| gauss | standard normal, within ±6 | the ordinary case | all |
| onehot | one ±2^e a row, the rest 0 | which weight meets which activation | all |
| constant | one value a row | sums, block sums, zero points | all |
| alternating | +8, −8, … | cancellation; codes ±127 everywhere | all |
| powers | ±2^e, e in −8 … 7 | small values beside large in one block | all |
| denormals | subnormals of the code type | flushing to zero | float types |
| tiny | gauss · 2^−8 … 2^−20 by row | fp16 scales that are subnormal or round to 0 | quantised types |
| huge | gauss · 2^13, within ±49152 | fp16 accumulators (65504) | codes f32, bf16, q8_0, q8_K |
| negzero | half −0, a quarter +0, the rest gauss | signs of zero | all |
| zeros | +0 | an output that must be exactly 0 | all |
| nonfinite | row 0 one NaN, row 1 +Inf, row 2 −Inf, rest gauss | spread of NaN and Inf | float types |

`huge` is not meant for f16 (its kernels may add in fp16), nor for q8_1, whose fp16 block sum
overflows by the format's own definition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tierlab.cells.streams import below, normal, words

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray


def activation_rows(name: str, rows: int, k: int, key: str, codes: str) -> NDArray[np.float32]:
    """`rows` × `k` float32 values of the distribution; `codes` is the type they will be converted to."""
    if name == "denormals":
        return _denormals(rows, k, key, codes)
    return _MAKE[name](rows, k, key)


def _gauss(rows: int, k: int, key: str) -> NDArray[np.float32]:
    return normal(key, rows * k).reshape(rows, k)


def _onehot(rows: int, k: int, key: str) -> NDArray[np.float32]:
    values = np.zeros((rows, k), dtype=np.float32)
    row = np.arange(rows)
    # 37 is coprime to every block size: successive rows visit all columns.
    column = (int(words(key, 1)[0] % np.uint64(k)) + 37 * row) % k
    values[row, column] = np.array([1.0, -2.0, 0.5, -1.0], dtype=np.float32)[row % 4]
    return values


def _constant(rows: int, k: int, key: str) -> NDArray[np.float32]:
    del key  # the same for every seed
    row = np.arange(rows)
    value = (1.0 + (row % 8) / 8.0) * np.where(row % 2, -1.0, 1.0)
    return np.repeat(value.astype(np.float32)[:, None], k, axis=1)


def _alternating(rows: int, k: int, key: str) -> NDArray[np.float32]:
    del key  # the same for every seed
    parity = (np.arange(rows)[:, None] + np.arange(k)[None, :]) % 2
    return np.where(parity, np.float32(-8.0), np.float32(8.0))


def _powers(rows: int, k: int, key: str) -> NDArray[np.float32]:
    source = words(key, rows * k)
    sign = np.where(source & np.uint64(1), np.float32(-1.0), np.float32(1.0))
    return (sign * _power_of_two(below(source, 16, 16) - 8)).reshape(rows, k)


def _power_of_two(exponent: NDArray[np.int64]) -> NDArray[np.float32]:
    """Exact 2^exponent as float32 for −126 … 127, by its bit pattern."""
    bits = (exponent + 127).astype(np.uint32) << np.uint32(23)
    return bits.view(np.float32)


def _tiny(rows: int, k: int, key: str) -> NDArray[np.float32]:
    scale = _power_of_two(-8 - 3 * (np.arange(rows, dtype=np.int64) % 5))
    return _gauss(rows, k, key) * scale[:, None]


def _huge(rows: int, k: int, key: str) -> NDArray[np.float32]:
    return _gauss(rows, k, key) * np.float32(8192.0)


def _negzero(rows: int, k: int, key: str) -> NDArray[np.float32]:
    place = below(words(f"{key}/place", rows * k), 0, 4).reshape(rows, k)
    values = np.where(place == 3, _gauss(rows, k, key), np.float32(0.0))
    return np.where(place < 2, np.float32(-0.0), values)


def _zeros(rows: int, k: int, key: str) -> NDArray[np.float32]:
    del key  # the same for every seed
    return np.zeros((rows, k), dtype=np.float32)


def _nonfinite(rows: int, k: int, key: str) -> NDArray[np.float32]:
    values = _gauss(rows, k, key)
    column = below(words(f"{key}/place", rows), 0, k)
    for row, value in enumerate((np.nan, np.inf, -np.inf)[:rows]):
        values[row, column[row]] = value
    return values


def _denormals(rows: int, k: int, key: str, codes: str) -> NDArray[np.float32]:
    """Even rows: subnormals of the code type alone; odd rows: half of them, half ordinary values."""
    source = words(f"{key}/{codes}", rows * k)
    sign = np.where(source & np.uint64(1), np.float32(-1.0), np.float32(1.0))
    # Steps of the smallest subnormal: 2^-149 (f32), 2^-133 (bf16), 2^-24 (f16, and the fp16 scales of codes).
    steps, unit = {"f32": (2**23, 2.0**-149), "bf16": (2**7, 2.0**-133)}.get(codes, (2**10, 2.0**-24))
    size = (source >> np.uint64(8)) % np.uint64(steps - 1) + np.uint64(1)
    # The product is exact: an integer below 2^24 times a power of two that float32 can hold.
    small = (sign * size.astype(np.float32) * np.float32(unit)).reshape(rows, k)
    ordinary = (np.arange(rows)[:, None] % 2 == 1) & ((source >> np.uint64(40)) & np.uint64(1) == 1).reshape(
        rows, k
    )
    return np.where(ordinary, _gauss(rows, k, key), small)


_MAKE: dict[str, Callable[[int, int, str], NDArray[np.float32]]] = {
    "gauss": _gauss,
    "onehot": _onehot,
    "constant": _constant,
    "alternating": _alternating,
    "powers": _powers,
    "tiny": _tiny,
    "huge": _huge,
    "negzero": _negzero,
    "zeros": _zeros,
    "nonfinite": _nonfinite,
}
