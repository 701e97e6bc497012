# SPDX-License-Identifier: MIT
"""Two models, tensor by tensor, and what follows: the same weights or not, and which tensors prove it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from tierlab.errors import ExitCode
from tierlab.gguf.compare import Outcome
from tierlab.gguf.conversion import converted
from tierlab.gguf.data import stored
from tierlab.gguf.hf_names import heads, sources
from tierlab.gguf.metadata_diff import MetadataDiff, metadata_diff
from tierlab.gguf.pairs import Pair, paired
from tierlab.gguf.roles import EMBEDDING_NAME, OUTPUT_NAME

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tierlab.gguf.model import Model
    from tierlab.gguf.safetensors_file import Checkpoint


T = TypeVar("T")
U = TypeVar("U")


class Answer(StrEnum):
    SAME = "same weights"
    NOT_SAME = "not the same weights"
    OTHER_MODEL = "not the same model"
    OPEN = "cannot be told"


@dataclass(frozen=True)
class Diff:
    """`only` holds the names that one side alone has; `proofs` the tensors on which the answer rests."""

    a: str
    b: str
    pairs: tuple[Pair, ...]
    only: tuple[tuple[str, ...], tuple[str, ...]]
    metadata: MetadataDiff | None
    answer: Answer
    verdict: str
    proofs: tuple[str, ...]

    @property
    def exit_code(self) -> ExitCode:
        """0 for the same weights (and tokenizers, where both have one), 1 for others, 2 if it cannot be
        told."""
        if self.answer is Answer.OPEN:
            return ExitCode.UNDETERMINED
        other_tokenizer = self.metadata is not None and self.metadata.same_tokenizer is False
        good = self.answer is Answer.SAME and not other_tokenizer
        return ExitCode.AS_EXPECTED if good else ExitCode.UNEXPECTED


def diff_models(a: Model, b: Model) -> Diff:
    """Compare two GGUF models."""
    left = {tensor.name: stored(a, tensor) for tensor in a.tensors}
    right = {tensor.name: stored(b, tensor) for tensor in b.tensors}
    for one, other in ((left, right), (right, left)):
        _untied(one, other)
    pairs = [paired(name, left[name], right[name]) for name in left if name in right]
    return _concluded((a.name, b.name), pairs, _only(left, right), metadata_diff(a, b))


def diff_checkpoints(a: Checkpoint, b: Checkpoint) -> Diff:
    """Compare two safetensors checkpoints under their own names."""
    pairs = [paired(name, a.tensors[name], b.tensors[name]) for name in a.tensors if name in b.tensors]
    return _concluded((str(a.path), str(b.path)), pairs, _only(a.tensors, b.tensors), None)


def diff_conversion(checkpoint: Checkpoint, model: Model) -> Diff:
    """Is the GGUF a faithful conversion of the checkpoint?"""
    found, lost = sources(checkpoint.tensors, model)
    target = {tensor.name: stored(model, tensor) for tensor in model.tensors}
    _untied(target, found)
    _untied(found, target)
    architecture = model.text("general.architecture")
    pairs = [
        converted(name, found[name], target[name], architecture, heads(name, model))
        for name in target
        if name in found
    ]
    missing, added = _only(found, target)
    # Tables of frequencies are computed by converters; no checkpoint has them.
    added = tuple(name for name in added if not name.startswith("rope_"))
    names = str(checkpoint.path), model.name
    return _concluded(names, pairs, ((*missing, *lost), added), None, converted=True)


def _untied(one: dict[str, T], other: dict[str, U]) -> None:
    """An output matrix facing a model whose embedding is tied is compared with that embedding."""
    if OUTPUT_NAME in one and OUTPUT_NAME not in other and EMBEDDING_NAME in other:
        other[OUTPUT_NAME] = other[EMBEDDING_NAME]


def _only(a: Mapping[str, object], b: Mapping[str, object]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return tuple(name for name in a if name not in b), tuple(name for name in b if name not in a)


def _concluded(
    names: tuple[str, str],
    pairs: Sequence[Pair],
    only: tuple[tuple[str, ...], tuple[str, ...]],
    metadata: MetadataDiff | None,
    *,
    converted: bool = False,
) -> Diff:
    answer, reason, proofs = _answered(pairs, only)
    verdict = f"{answer}{reason}"
    if converted and answer is not Answer.OPEN:
        verdict = f"{'' if answer is Answer.SAME else 'not '}a faithful conversion: {verdict}"
    if metadata is not None and metadata.same_tokenizer is False:
        verdict += "; other tokenizer"
    return Diff(*names, tuple(pairs), only, metadata, answer, verdict, proofs)


def _answered(
    pairs: Sequence[Pair], only: tuple[tuple[str, ...], tuple[str, ...]]
) -> tuple[Answer, str, tuple[str, ...]]:
    """Answer, the reason as it follows the answer in print, and the tensors that prove it."""
    shapes, alone = [pair.name for pair in pairs if not pair.same_shape], [*only[0], *only[1]]
    if shapes or alone:
        counts = {"of other shape": len(shapes), "only in one": len(alone)}
        told = " and ".join(f"{number} {what}" for what, number in counts.items() if number)
        return Answer.OTHER_MODEL, f": tensors differ, {told}", (*shapes, *alone)
    wrong = [pair for pair in pairs if pair.wrong]
    floats = [pair for pair in wrong if not pair.quantised]
    if floats:
        reason = f": {len(floats)} float tensors differ, which no quantiser touches"
        return Answer.NOT_SAME, reason, tuple(pair.name for pair in floats)
    if wrong:
        reason = f": {len(wrong)} quantised tensors are further apart than their quantisers' steps"
        return Answer.NOT_SAME, reason, tuple(pair.name for pair in wrong)
    odd = tuple(pair.name for pair in pairs if not pair.expected)
    if odd:
        reason = f": the rows of {len(odd)} tensors are not in the order that the architecture needs"
        return Answer.NOT_SAME, reason, odd
    return _agreed(pairs)


def _agreed(pairs: Sequence[Pair]) -> tuple[Answer, str, tuple[str, ...]]:
    """Nothing speaks against the same weights; does enough speak for it?"""
    unread = tuple(pair.name for pair in pairs if pair.unread)
    if unread or not pairs:
        what = f"the values of {len(unread)} tensors cannot be compared" if pairs else "there are no tensors"
        return Answer.OPEN, f": {what}", unread
    deciding = tuple(pair.name for pair in pairs if pair.decides)
    within = sum(pair.outcome is Outcome.EXPLAINED for pair in pairs)
    if within and not deciding:
        return Answer.OPEN, ": no float tensor decides, and quantised ones agree within their steps only", ()
    if within:
        told = f"{len(deciding)} float tensors agree, {within} others within their quantisers' steps"
        return Answer.SAME, f", other quantiser: {told}", deciding
    if all(pair.identical for pair in pairs):
        return Answer.SAME, ", byte for byte", deciding
    rounded = any(pair.outcome is Outcome.ROUNDED for pair in pairs)
    return Answer.SAME, ", every value equal" + (" within float rounding" if rounded else ""), deciding
