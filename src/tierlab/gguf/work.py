# SPDX-License-Identifier: MIT
"""The matmuls of a model: for each weight, what one token costs, when the model decodes and when it reads a
prompt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tierlab.gguf.roles import EMBEDDING_NAME, OUTPUT_NAME, by_expert, multiplied, tied

if TYPE_CHECKING:
    from tierlab.gguf.header import Tensor
    from tierlab.gguf.model import Model

DECODE, PREFILL = "decode", "prefill"
WORKLOADS = (DECODE, PREFILL)
PROMPT = 512
"""Tokens of the prompt in `prefill`; llama.cpp's own batch, and what it asks with when it places a weight."""


@dataclass(frozen=True)
class Matmul:
    """A weight that is multiplied with activations.

    `shape` is as `tierlab.cells.shapes` writes it, with llama.cpp's 512 columns. `nbytes` and `macs` give
    for each of WORKLOADS the bytes of weights read and the multiply-accumulates: of one decoded token, and
    of a prompt of PROMPT tokens. Of experts, a token reads those that are used; a prompt reads all of them.
    The output matrix is multiplied once a prompt: only the last token is answered.
    """

    tensor: Tensor
    shape: str
    nbytes: dict[str, int]
    macs: dict[str, int]


def matmuls(model: Model) -> tuple[Matmul, ...]:
    """All of them, in the order of the file."""
    architecture = model.text("general.architecture")
    is_tied = tied(architecture, frozenset(tensor.name for tensor in model.tensors))
    used = model.integer(f"{architecture}.expert_used_count") or 1
    return tuple(_matmul(tensor, used) for tensor in model.tensors if multiplied(tensor, is_tied))


def _matmul(tensor: Tensor, used: int) -> Matmul:
    k, n, planes = (*tensor.shape, 1)[:3]
    text = f"m{PROMPT}n{n}k{k}"
    experts = planes if by_expert(tensor) else 0
    if experts > 1:
        used = min(used, experts)
        text += f"e{experts}u{used}i0"
    elif planes > 1:
        text += f"b{planes}x1w{planes}x1"
    share = used if experts > 1 else planes
    once = tensor.name in (OUTPUT_NAME, EMBEDDING_NAME)
    macs = n * k * share
    return Matmul(
        tensor,
        text,
        {DECODE: tensor.nbytes // planes * share, PREFILL: tensor.nbytes},
        {DECODE: macs, PREFILL: macs if once else macs * PROMPT},
    )
