# SPDX-License-Identifier: MIT
"""`invoke gguf`: the census of model files as Markdown (which a terminal shows as well) and JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tierlab.gguf.roles import EMBEDDING_NAME, layer_pattern
from tierlab.report.tables import code, table
from tierlab.report.text import one_line, plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tierlab.errors import ModelFileError
    from tierlab.gguf.census import Census, Count
    from tierlab.gguf.header import Tensor
    from tierlab.gguf.labels import Label
    from tierlab.gguf.require import Answer

FORMAT = 1
"""Of the JSON; a field that is added leaves it."""

MOST_NAMED = 12


def census_markdown(found: Census, answers: Sequence[Answer]) -> str:
    """Types, roles, labels, fallbacks, requirements of one model."""
    parts = [f"# {one_line(found.model.name)}", _facts(found), _types(found), _roles(found), _findings(found)]
    if answers:
        parts.append("\n".join(f"- {_answer(answer)}" for answer in answers))
    return "\n\n".join(parts) + "\n"


def unreadable_markdown(error: ModelFileError) -> str:
    """The one line for a file that is damaged or foreign."""
    return f"cannot be determined: {one_line(str(error))}\n"


def percent(nbytes: int, total: int) -> str:
    """`68.7 %`; `–` of nothing."""
    return f"{100 * nbytes / total:.1f} %" if total else "–"


def named(tensors: Iterable[Tensor]) -> str:
    """Names with the layers joined: `blk.*.ffn_down.weight (30 × iq4_nl, rows of 1536)`."""
    groups: dict[tuple[str, str, int], int] = {}
    for tensor in tensors:
        key = layer_pattern(tensor.name), tensor.type.name, tensor.row
        groups[key] = groups.get(key, 0) + 1
    shown = [
        f"{code(one_line(name))} ({n} × {kind}, rows of {row})" for (name, kind, row), n in groups.items()
    ]
    more = f" and {len(shown) - MOST_NAMED} more kinds" if len(shown) > MOST_NAMED else ""
    return ", ".join(shown[:MOST_NAMED]) + more


def _facts(found: Census) -> str:
    head = found.model.head
    architecture = one_line(found.architecture) or "no architecture"
    lines = [
        f"- {architecture}, {plural(len(found.model.tensors), 'tensor')}, "
        f"{found.nbytes:,} bytes of them, GGUF version {head.version}"
        + (", big-endian" if head.order == ">" else "")
    ]
    for file in found.files:
        digest = f", sha256 {file.sha256}" if file.sha256 else ""
        lines.append(f"- {one_line(file.path)}: {file.size:,} bytes{digest}")
        if file.hole:
            lines.append(
                f"  - {file.hole:,} bytes between tensors belong to none; llama.cpp refuses such a file"
            )
    return "\n".join(lines)


def _types(found: Census) -> str:
    rows = [
        [kind, str(count.tensors), f"{count.nbytes:,}", percent(count.nbytes, found.nbytes)]
        for kind, count in found.types.items()
    ]
    return table(["type", "tensors", "bytes", "share"], rows)


def _roles(found: Census) -> str:
    rows = []
    for kind, counts in found.roles.items():
        nbytes = sum(count.nbytes for count in counts.values())
        inside = ", ".join(
            f"{count.tensors} {name} {percent(count.nbytes, nbytes)}" for name, count in counts.items()
        )
        tensors = sum(count.tensors for count in counts.values())
        rows.append([kind, str(tensors), f"{nbytes:,}", percent(nbytes, found.nbytes), inside])
    return table(["role", "tensors", "bytes", "share", "types"], rows)


def _findings(found: Census) -> str:
    lines = [_label(label) for label in found.labels] or [
        "no label: neither the name nor the metadata names a type"
    ]
    if found.tied:
        lines.append(f"tied: {EMBEDDING_NAME} ({found.embedding_type}) is the output matrix too")
    if found.fallbacks:
        lines.append(f"rows that are no multiple of 256 got another type: {named(found.fallbacks)}")
    return "\n".join(f"- {line}" for line in lines)


def _label(label: Label) -> str:
    says = f"{label.source} says {one_line(label.text)}"
    if label.holds is None:
        return f"{says}: not judged (it names no type that is known, or the file has no layers)"
    what = f"{100 * label.share:.1f} % of attention and ffn bytes are {' or '.join(label.promised)}"
    return f"{says}: holds, {what}" if label.holds else f"{says}: FALSE, {what}; most are {label.main}"


def _answer(answer: Answer) -> str:
    verb = "met" if answer.met else "NOT MET"
    if not answer.total:
        return f"require {code(answer.requirement.text)}: NOT MET, the file has no such weights"
    share = f"{100 * answer.nbytes / answer.total:.4f} % ({answer.nbytes:,} of {answer.total:,} bytes)"
    return f"require {code(answer.requirement.text)}: {verb}, {share}"


def census_json(found: Census, answers: Sequence[Answer]) -> dict[str, Any]:
    """All of it as plain data, every tensor too."""
    return {
        "model": found.model.name,
        "architecture": found.architecture,
        "bytes": found.nbytes,
        "files": [
            {
                "path": file.path,
                "size": file.size,
                "sha256": file.sha256 or None,
                "version": file.version,
                "byte_order": file.order,
                "tensors": file.tensors,
                "hole": file.hole,
            }
            for file in found.files
        ],
        "types": _counts(found.types),
        "roles": {kind: _counts(counts) for kind, counts in found.roles.items()},
        "tied": found.tied,
        "labels": [
            {
                "source": label.source,
                "says": label.text,
                "promised": list(label.promised),
                "main": label.main,
                "share": label.share,
                "holds": label.holds,
            }
            for label in found.labels
        ],
        "fallbacks": [tensor.name for tensor in found.fallbacks],
        "requirements": [
            {
                "text": answer.requirement.text,
                "met": answer.met,
                "bytes": answer.nbytes,
                "of": answer.total,
            }
            for answer in answers
        ],
        "tensors": [_tensor(tensor) for tensor in found.model.tensors],
    }


def _counts(counts: Mapping[str, Count]) -> dict[str, Any]:
    return {
        kind: {"tensors": count.tensors, "bytes": count.nbytes, "elements": count.elements}
        for kind, count in counts.items()
    }


def _tensor(tensor: Tensor) -> dict[str, Any]:
    shape = list(tensor.shape)
    return {
        "name": tensor.name,
        "type": tensor.type.name,
        "shape": shape,
        "bytes": tensor.nbytes,
        "part": tensor.part,
    }
