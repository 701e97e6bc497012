# SPDX-License-Identifier: MIT
"""Step one: are the quantised activations themselves right? And the way back: dequantised weights.

A stored block is compared field by field with the published formula: the scale exactly, each code
exactly unless its scaled value lies in the ambiguous zone around a half (then either neighbour).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tierlab.errors import UsageError
from tierlab.judge.verdict import Judgement, Verdict
from tierlab.oracle.activations import Codes, encode_q8_0, encode_q8_1, encode_q8_k
from tierlab.oracle.weights import Weights, decode_rows, to_bf16

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

LAYOUTS: dict[str, tuple[int, int]] = {"q8_0": (32, 34), "q8_1": (32, 36), "q8_k": (256, 292)}
"""Activation format -> weights and bytes of a block."""
ENCODERS: dict[str, Callable[[NDArray[np.float32]], Codes]] = {
    "q8_0": encode_q8_0, "q8_1": encode_q8_1, "q8_k": encode_q8_k
}  # fmt: skip


@dataclass(frozen=True)
class Stored:
    """Fields of stored blocks: scale [rows, blocks], code [rows, blocks, block], sums as stored."""

    scale: NDArray[np.float64]
    code: NDArray[np.float64]
    total: NDArray[np.float64] | None


def parse(name: str, raw: NDArray[np.uint8], rows: int) -> Stored:
    """Fields of activation blocks, uint8 [any] of `rows` rows of format `name`."""
    block, nbytes = LAYOUTS[name]
    b = np.ascontiguousarray(raw).reshape(-1, nbytes)

    def field(part: NDArray[np.uint8], kind: str) -> NDArray[np.float64]:
        return np.ascontiguousarray(part).view(kind).astype(np.float64)

    start = {"q8_0": 2, "q8_1": 4, "q8_k": 4}[name]
    scale = field(b[:, :4], "<f4") if name == "q8_k" else field(b[:, :2], "<f2")
    code = field(b[:, start : start + block], "i1")
    total = None
    if name == "q8_1":
        total = field(b[:, 2:4], "<f2")
    elif name == "q8_k":
        total = field(b[:, 260:], "<i2").reshape(rows, -1, 16)
    shape = (rows, -1)
    if name == "q8_1" and total is not None:
        total = total.reshape(shape)
    return Stored(scale.reshape(shape), code.reshape(rows, -1, block), total)


def judge_codes(name: str, raw: NDArray[np.uint8], x: NDArray[np.float32]) -> Judgement:
    """Judge a `ggml.quantize` cell: blocks `raw` made of activations x, float32 [rows, K].

    `name` is the activation format; f32, f16 and bf16 are conversions, judged bit by bit.
    """
    name = name.lower()
    if name in ("f32", "f16", "bf16"):
        return _conversion(name, raw, x)
    if name not in LAYOUTS:
        msg = f"no formula is known for activation blocks of type '{name}'; known are {', '.join(LAYOUTS)}"
        raise UsageError(msg)
    want = ENCODERS[name](x)
    got = parse(name, raw, len(x))
    defined = np.asarray(np.isfinite(x).reshape(len(x), want.scale.shape[1], -1).all(axis=2))
    if not defined.any():
        return Judgement(Verdict.VACUOUS, detail="no block has a defined result")
    return _fields(name, got, want, defined)


def _fields(name: str, got: Stored, want: Codes, defined: NDArray[np.bool_]) -> Judgement:
    wrong_scale = defined & (got.scale != want.scale)
    if wrong_scale.any():
        row, block = np.argwhere(wrong_scale)[0]
        return Judgement(
            Verdict.FAIL, share=float("inf"),
            detail=f"row {row} block {block}: scale {got.scale[row, block]:.9g}, the formula gives "
            f"{want.scale[row, block]:.9g}; {int(wrong_scale.sum())} of {defined.sum()} scales differ",
        )  # fmt: skip
    # A stored scale of 0 makes the codes meaningless (subnormal activations have no reciprocal).
    matters = (defined & (want.scale != 0))[..., None]
    wrong = matters & (got.code != want.code) & (got.code != want.other)
    if wrong.any():
        row, block, k = np.argwhere(wrong)[0]
        distance = float(np.abs(got.code - want.code)[wrong].max())
        return Judgement(
            Verdict.FAIL, share=float("inf"), max_abs=distance,
            detail=f"row {row} block {block} element {k}: code {got.code[row, block, k]:.0f}, the formula "
            f"gives {want.code[row, block, k]:.0f}; {int(wrong.sum())} codes differ by up to {distance:.0f}",
        )  # fmt: skip
    text = _sums(name, got, want, matters[..., 0])
    if text:
        return Judgement(Verdict.FAIL, share=float("inf"), detail=text)
    ties = matters & (got.code != want.code)
    return Judgement(Verdict.PASS, share=0.0, max_abs=float(ties.any()), detail="")


def _sums(name: str, got: Stored, want: Codes, matters: NDArray[np.bool_]) -> str:
    if got.total is None:
        return ""
    if name == "q8_k":
        sums = got.code.reshape(*got.total.shape, 16).sum(axis=-1)
        wrong = matters[..., None] & (got.total != sums)
        noun = "bsums"
    else:
        assert want.total is not None
        assert want.total_slack is not None
        with np.errstate(invalid="ignore"):
            near = np.abs(got.total - want.total) <= want.total_slack
        wrong = matters & ~near & (got.total != want.total)
        noun = "stored sums"
    if not wrong.any():
        return ""
    where = ", ".join(str(i) for i in np.argwhere(wrong)[0])
    return f"{int(wrong.sum())} {noun} are not the sum of their codes (first at {where})"


def _conversion(name: str, raw: NDArray[np.uint8], x: NDArray[np.float32]) -> Judgement:
    with np.errstate(over="ignore"):
        want = {
            "f32": lambda: x.astype(np.float64),
            "f16": lambda: x.astype(np.float16).astype(np.float64),
            "bf16": lambda: to_bf16(x),
        }[name]()
    got = decode_rows(name, np.ascontiguousarray(raw).reshape(len(x), -1)).value
    same = (got == want) & (np.signbit(got) == np.signbit(want)) | (np.isnan(got) & np.isnan(want))
    return _exact(got, want, np.asarray(same))


def judge_dequantised(weight_type: str, raw: NDArray[np.uint8], output: NDArray[np.float32]) -> Judgement:
    """Judge a `ggml.dequantize` cell: output float32 [rows, K] of weight rows uint8 [rows, bytes].

    Scale times code is one float32 rounding (mostly none); a format with a minimum rounds the
    products and the difference: at most 2 u of the parts' magnitude.
    """
    weights = decode_rows(weight_type, raw)
    got = output.reshape(weights.value.shape).astype(np.float64)
    bound = 2 * 2.0**-24 * weights.magnitude if weights.offset is not None else _half_ulp(weights)
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(got - weights.value)
        same = (error <= bound) | (np.isnan(got) & np.isnan(weights.value)) | (got == weights.value)
        same |= np.isinf(got) & (np.abs(weights.value) > np.finfo(np.float32).max)
    return _exact(got, weights.value, np.asarray(same), bound)


def _half_ulp(weights: Weights) -> NDArray[np.float64]:
    return np.maximum(np.abs(weights.value) * 2.0**-24, 2.0**-150)


def _exact(
    got: NDArray[np.float64],
    want: NDArray[np.float64],
    same: NDArray[np.bool_],
    bound: NDArray[np.float64] | None = None,
) -> Judgement:
    if not got.size:
        return Judgement(Verdict.VACUOUS, detail="nothing was compared: the output is empty")
    finite = np.isfinite(got) & np.isfinite(want)
    error = np.zeros_like(want)
    np.subtract(got, want, where=finite, out=error)
    error = np.abs(error)
    max_abs = float(error.max())
    if same.all():
        share = 0.0
        if bound is not None:
            share = float(np.divide(error, bound, where=finite & (bound > 0), out=np.zeros_like(error)).max())
        return Judgement(Verdict.PASS, share=share, max_abs=max_abs)
    row, k = np.argwhere(~same)[0]
    text = f"row {row} element {k}: got {got[row, k]:.9g}, want {want[row, k]:.9g}; "
    text += f"{int((~same).sum())} of {same.size} elements differ"
    return Judgement(Verdict.FAIL, share=float("inf"), max_abs=max_abs, detail=text)
