# SPDX-License-Identifier: MIT
"""`invoke chip`: what a product would do, as Markdown and JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tierlab.dispatch.variants import backend_of, loaded, sum_of
from tierlab.report.tables import code, table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tierlab.cells.model import Profile
    from tierlab.dispatch.chips import Chip, Gaps
    from tierlab.dispatch.variants import Backend
    from tierlab.harness.messages import Hello
    from tierlab.run.survey_chip import Observation, TypeAnswer


@dataclass(frozen=True)
class ChipAnswer:
    """Everything that is said about a chip; `sets` are ggml's declared variants by system."""

    chip: Chip
    profile: Profile
    hello: Hello
    gaps: Gaps
    sets: Mapping[str, Sequence[Backend]]
    types: Sequence[TypeAnswer]

    @property
    def by_rule(self) -> Backend | None:
        """The variant of the Linux set that ggml's rule picks for the chip's own features."""
        return loaded(self.sets["linux"], self.chip.features)

    @property
    def own(self) -> Backend | None:
        """The variant of the chip's own system, by the same rule."""
        return loaded(self.sets[self.chip.system], self.chip.features)

    @property
    def observed(self) -> str:
        """The variant that was loaded on the profile."""
        return backend_of(self.hello.variant)


def chip_markdown(answer: ChipAnswer) -> str:
    chip = answer.chip
    parts = [
        f"# {chip.title} ({chip.cores})",
        "\n".join(_facts(answer)),
        "## Where the emulated model differs",
        "\n".join(_gaps(answer.gaps)),
        "## Path and kernel of each weight type",
        f"Executed on profile {answer.profile.name}; calls are exact counts of the receipts. Decode is 1 "
        "column, prefill 128; the weights are 64 × 256. The path is the first buffer type in the library's "
        "own list that takes the weight.",
        _types(answer.types),
    ]
    return "\n\n".join(parts) + "\n"


def _facts(answer: ChipAnswer) -> list[str]:
    chip, profile = answer.chip, answer.profile
    score = dict(answer.hello.scores).get(answer.hello.variant, "not asked")
    lengths = [f"SVE {chip.vector_bits} bits"] if chip.vector_bits else []
    lengths += [f"streaming {chip.streaming_bits} bits"] if chip.streaming_bits else []
    lines = [
        f"- features in silicon: {', '.join([*sorted(chip.features), *lengths])}",
        f"- nearest profile: {profile.name} ({profile.emulator} -cpu {code(profile.cpu)})",
        f"- variant loaded on it: {code(answer.observed)}, score {score}",
    ]
    rule = answer.by_rule
    if rule is None or rule.name != answer.observed:
        name = "none" if rule is None else code(rule.name)
        lines.append(
            f"- **other variant**: ggml's rule picks {name} for the chip's own features, so the kernels "
            "below may be others than the chip's"
        )
    if chip.system != "linux":
        lines.append(_own_set(answer))
    lines += [f"- note: {chip.note}"] if chip.note else []
    lines += [f"- the profile's note: {profile.note}"] if profile.note else []
    return [*lines, *(f"- source: {source}" for source in chip.sources)]


def _own_set(answer: ChipAnswer) -> str:
    own, system = answer.own, answer.chip.system
    if own is None:
        return f"- a package for {system} declares no variant for it"
    return (
        f"- a package for {system} carries another set; by ggml's rule {code(own.name)} ({sum_of(own)} = "
        f"{own.worth}, {own.place}), not executed here: what follows is the Linux set's variant"
    )


def _gaps(gaps: Gaps) -> list[str]:
    lines = []
    if gaps.missing:
        lines.append(f"- in silicon, not in the model: {', '.join(gaps.missing)}")
    if gaps.surplus:
        lines.append(f"- in the model, not in silicon as the sources tell it: {', '.join(gaps.surplus)}")
    lines += [f"- {line}" for line in gaps.lengths]
    if gaps.tiers:
        lines.append(f"- **kernels are chosen by {', '.join(gaps.tiers)}**: results may not carry over")
    return lines or ["- nowhere that the probe can see"]


def _types(types: Sequence[TypeAnswer]) -> str:
    columns = [(seen.workload, seen.threads) for seen in types[0].observations] if types else []
    several = len({threads for _, threads in columns}) > 1
    head = ["type", "path", *(f"{work}, {count} threads" if several else work for work, count in columns)]
    rows = [[item.kind, item.path, *(_seen(seen) for seen in item.observations)] for item in types]
    return table(head, rows)


def _seen(seen: Observation) -> str:
    ran = ", ".join(f"{name} × {calls}" for name, calls in seen.kernels.items()) or "no kernel counted"
    if seen.verdict == "pass":
        return ran
    return f"{ran} ({seen.verdict}{'' if seen.expected else ', unexpected'})"


def chip_json(answer: ChipAnswer) -> dict[str, Any]:
    chip = answer.chip
    return {
        "schema": 1,
        "chip": chip.name,
        "title": chip.title,
        "cores": chip.cores,
        "system": chip.system,
        "features": sorted(chip.features),
        "vector_bits": chip.vector_bits,
        "streaming_bits": chip.streaming_bits,
        "sources": list(chip.sources),
        "note": chip.note,
        "profile": answer.profile.name,
        "missing_in_model": list(answer.gaps.missing),
        "surplus_in_model": list(answer.gaps.surplus),
        "lengths": list(answer.gaps.lengths),
        "tier_gaps": list(answer.gaps.tiers),
        "variant": answer.observed,
        "variant_by_rule": None if answer.by_rule is None else answer.by_rule.name,
        "variant_of_own_system": None if answer.own is None else answer.own.name,
        "scores": {backend_of(name): score for name, score in answer.hello.scores},
        "types": {
            item.kind: {
                "path": item.path,
                "observed": [
                    {
                        "workload": seen.workload,
                        "threads": seen.threads,
                        "kernels": dict(seen.kernels),
                        "verdict": seen.verdict,
                        "as_expected": seen.expected,
                        "cell": seen.cell,
                    }
                    for seen in item.observations
                ],
            }
            for item in answer.types
        },
    }
