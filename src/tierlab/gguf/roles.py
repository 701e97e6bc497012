# SPDX-License-Identifier: MIT
"""What a tensor is for, by its name, and which tensors are multiplied with activations."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gguf import MODEL_ARCH, MODEL_ARCH_NAMES, MODEL_TENSOR, MODEL_TENSORS

if TYPE_CHECKING:
    from tierlab.gguf.header import Tensor

ATTENTION, FFN, EXPERTS, EMBEDDING, NORMS, OTHER = (
    *("attention", "ffn", "experts", "embedding and output", "norms and biases", "other"),
)
ROLES = (ATTENTION, FFN, EXPERTS, EMBEDDING, NORMS, OTHER)

EMBEDDING_NAME = "token_embd.weight"
OUTPUT_NAME = "output.weight"

_BLOCK = re.compile(r"^(?:[a-z_]+\.)*blk\.\d+\.")
_LOOKED_UP = ("token_embd", "token_types", "position_embd", "per_layer_token_embd", "pos_embd")
_NOT_MULTIPLIED = (
    "ssm_conv1d",
    "ssm_a",
    "ssm_d",
    "shortconv.conv",
    "time_mix_lerp",
    "time_mix_first",
    "rope_",
)
"""Matrices of other operations: convolutions, scans, blends."""
_ENDS = ("output", "output_extra", "cls", "cls.output", *_LOOKED_UP)


def role(tensor: Tensor) -> str:
    """One of ROLES. Vectors of a layer (norms, biases, scales) are apart: no matmul takes them."""
    return role_of(tensor.name, len(tensor.shape))


def role_of(name: str, dimensions: int) -> str:
    """The role by the name and the number of dimensions."""
    stem, _, suffix = name.rpartition(".")
    part = _BLOCK.sub("", stem) or name
    if "norm" in part or suffix == "bias" or (dimensions < 2 and part not in _ENDS):
        return NORMS
    if part in _ENDS:
        return EMBEDDING
    if "exps" in part or "shexp" in part or part in ("ffn_gate_inp", "ffn_exp_probs_b"):
        return EXPERTS
    if part.startswith("ffn"):
        return FFN
    if part.startswith(("attn", "cross_attn")):
        return ATTENTION
    return OTHER


def layer_pattern(name: str) -> str:
    """The name with the number of its layer left open: `blk.*.ffn_down.weight`."""
    return re.sub(r"blk\.\d+\.", "blk.*.", name)


def tied(architecture: str, names: frozenset[str]) -> bool:
    """Whether the embedding is the output matrix too: the architecture has one and the file does not."""
    if EMBEDDING_NAME not in names or OUTPUT_NAME in names:
        return False
    known = {text: arch for arch, text in MODEL_ARCH_NAMES.items()}
    arch: MODEL_ARCH | None = known.get(architecture)
    return arch is None or MODEL_TENSOR.OUTPUT in MODEL_TENSORS[arch]


def multiplied(tensor: Tensor, is_tied: bool) -> bool:
    """Whether a matmul takes the tensor as weights. An embedding is looked up, multiplied only if tied."""
    if len(tensor.shape) < 2 or role(tensor) == NORMS:
        return False
    part = _BLOCK.sub("", tensor.name.rpartition(".")[0])
    if part in _LOOKED_UP:
        return is_tied and tensor.name == EMBEDDING_NAME
    return not part.startswith(_NOT_MULTIPLIED)


def by_expert(tensor: Tensor) -> bool:
    """Whether the tensor holds one matrix for each expert (MUL_MAT_ID)."""
    return len(tensor.shape) == 3 and "exps" in tensor.name
