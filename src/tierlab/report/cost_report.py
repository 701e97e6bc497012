# SPDX-License-Identifier: MIT
"""`invoke cost`: cycles a multiply-accumulate by a static model, as Markdown and JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tierlab.report.tables import code, table

if TYPE_CHECKING:
    from tierlab.dispatch.cost_plan import CostPlan, Ratio
    from tierlab.run.survey_cost import Cost, CostSurvey

STATIC = "Static model, no measurement"
NONE = "–"


def cost_markdown(found: CostSurvey, plan: CostPlan, origin: str) -> str:
    """One table a core, then what is expected and what was measured, then the loops that were modelled."""
    parts = [
        "# Static cost of matmul kernels",
        f"**{STATIC}.** Cycles of one multiply-accumulate in the loop over blocks, as llvm-mca's models of "
        f"the cores see it ({origin}): loads hit the first cache, branches are predicted. Speed beside "
        "another kernel's is the ratio of both: 2.00 × is half the cycles.",
    ]
    for model in found.models:
        parts += [f"## {model} ({found.libraries[model]})", _model(found, plan, model)]
    parts += ["## Model and measurement", _ratios(found, plan)]
    parts += ["## The loops", _loops(found, plan)]
    if found.failed:
        parts += ["## Not modelled", _failed(found)]
    return "\n\n".join(parts) + "\n"


def unmet(found: CostSurvey, plan: CostPlan) -> list[Ratio]:
    """Expected ratios that the model does not reach; those without both kernels do not count."""
    known = [(entry, _ratio(found, entry)) for entry in plan.expected]
    return [entry for entry, ratio in known if ratio is not None and ratio < entry.ratio]


def _model(found: CostSurvey, plan: CostPlan, model: str) -> str:
    kernels = list(plan.kernels)
    head = ["type"]
    for kernel in kernels:
        head += [f"{kernel}, cycles", f"beside {plan.base}"]
    head += ["gemv beside dot"]
    rows = []
    for kind in found.types:
        row = [kind]
        for kernel in kernels:
            cost = found.found.get((model, kind, kernel))
            row.append(f"{cost.per_product:.4f}" if cost else _why(found, (model, kind, kernel)))
            row.append(times(found.ratio(model, (kind, kernel), (plan.base, kernel))))
        row.append(times(found.ratio(model, (kind, "gemv"), (kind, "dot"))))
        rows.append(row)
    return table(head, rows)


def _why(found: CostSurvey, place: tuple[str, str, str]) -> str:
    return NONE if place in found.absent else "?"


def times(ratio: float | None) -> str:
    return NONE if ratio is None else f"{ratio:.2f} ×"


def _ratio(found: CostSurvey, entry: Ratio) -> float | None:
    kind, _, kernel = entry.kernel.partition(" ")
    other, _, of = entry.of.partition(" ")
    return found.ratio(entry.model, (kind, kernel), (other, of))


def _ratios(found: CostSurvey, plan: CostPlan) -> str:
    """Expected and measured ratios of one pair of kernels share a line."""
    pairs = dict.fromkeys((entry.model, entry.kernel, entry.of) for entry in (*plan.expected, *plan.measured))
    rows = []
    for model, kernel, of in pairs:
        if model not in found.models:
            continue
        wanted = [one for one in plan.expected if (one.model, one.kernel, one.of) == (model, kernel, of)]
        known = [one for one in plan.measured if (one.model, one.kernel, one.of) == (model, kernel, of)]
        ratio = _ratio(found, (wanted or known)[0])
        said = "; ".join(f"{one.ratio:.2f} × ({one.source}: {one.what})" for one in known)
        at_least = "; ".join(f"{one.ratio:.2f} ×" for one in wanted)
        verdict = ""
        if wanted and ratio is not None:
            verdict = "reached" if ratio >= wanted[0].ratio else "**not reached**"
        rows.append([model, kernel, of, times(ratio), at_least or NONE, verdict or NONE, said or NONE])
    head = ["core", "kernel", "beside", "model", "expected at least", "", "measured on silicon"]
    return table(head, rows) if rows else "Nothing is expected or known of these cores."


def _loops(found: CostSurvey, plan: CostPlan) -> str:
    rows = []
    for (model, _, _), cost in found.found.items():
        loop = cost.loop
        tile = f"{loop.products} for {loop.tile} elements"
        if loop.unrolled > 1:
            tile += f", {loop.unrolled} blocks"
        inner = ", ".join(f"{one.head:#x} × {one.runs}" for one in loop.inner) or NONE
        multipliers = ", ".join(f"{number} {name}" for name, number in loop.multipliers.items())
        cycles = f"{cost.cycles.cycles:.0f}, units alone {cost.cycles.bound:.0f}"
        place = f"{loop.loop.head:#x}" + (f", {loop.assumed} branches assumed" if loop.assumed else "")
        rows.append(
            [model, code(cost.symbol), place, inner, tile, multipliers, str(cost.cycles.instructions), cycles]
        )
    head = ["core", "kernel", "loop", "inner loops", "products", "of which", "instructions", "cycles"]
    return table(head, rows)


def _failed(found: CostSurvey) -> str:
    lines = [f"- {' '.join(place)}: {why}" for place, why in found.failed.items()]
    return "\n".join(lines)


def cost_json(found: CostSurvey, plan: CostPlan, origin: str) -> dict[str, Any]:
    """The same for programs. `cycles_per_product` is of the static model."""
    return {
        "kind": STATIC,
        "origin": origin,
        "libraries": found.libraries,
        "base": plan.base,
        "costs": [_entry(found, plan, place, cost) for place, cost in found.found.items()],
        "absent": [list(place) for place in sorted(found.absent)],
        "failed": [{"place": list(place), "why": why} for place, why in sorted(found.failed.items())],
        "expected": [_pair(found, entry) for entry in plan.expected],
        "measured": [{**_pair(found, e), "what": e.what, "source": e.source} for e in plan.measured],
    }


def _pair(found: CostSurvey, entry: Ratio) -> dict[str, Any]:
    model = _ratio(found, entry)
    return {
        "model": entry.model,
        "kernel": entry.kernel,
        "of": entry.of,
        "ratio": entry.ratio,
        "modelled": None if model is None else round(model, 4),
    }


def _entry(found: CostSurvey, plan: CostPlan, place: tuple[str, str, str], cost: Cost) -> dict[str, Any]:
    model, kind, kernel = place
    ratio = found.ratio(model, (kind, kernel), (plan.base, kernel))
    return {
        "model": model,
        "type": kind,
        "kernel": kernel,
        "symbol": cost.symbol,
        "cycles_per_product": round(cost.per_product, 6),
        "beside_base": None if ratio is None else round(ratio, 4),
        "cycles": round(cost.cycles.cycles, 2),
        "units_bound": cost.cycles.bound,
        "instructions": cost.cycles.instructions,
        "uops": round(cost.cycles.uops, 2),
        "products": cost.loop.products,
        "tile": cost.loop.tile,
        "blocks": cost.loop.unrolled,
        "loop": {"function": cost.loop.loop.function, "head": cost.loop.loop.head},
        "inner": [{"function": one.function, "head": one.head, "runs": one.runs} for one in cost.loop.inner],
        "multipliers": cost.loop.multipliers,
        "assumed_branches": cost.loop.assumed,
    }
