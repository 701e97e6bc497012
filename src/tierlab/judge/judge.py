# SPDX-License-Identifier: MIT
"""The verdict on one answered cell.

Order matters: what makes the numbers meaningless comes first (a write outside a buffer, a path that
did not take the operation), then the numbers, then whether the kernel they are credited to ran at all.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tierlab.judge.budget import Bound, bound
from tierlab.judge.comparator import Comparison, compare
from tierlab.judge.patterns import describe
from tierlab.judge.verdict import Judgement, Verdict
from tierlab.oracle.expectation import Expectation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from tierlab.harness.messages import Answer
    from tierlab.judge.scheme import Scheme

Expected = tuple[tuple[str, ...], ...]
"""Sets of symbol patterns; of each set at least one must have run."""


class Judged(NamedTuple):
    """One candidate: what the output must be, how far from it it may lie, and how it compares."""

    expectation: Expectation
    bound: Bound
    comparison: Comparison


def judge_product(
    answer: Answer,
    output: NDArray[np.float32],
    candidates: Sequence[tuple[Scheme, Expectation]],
    *,
    expected_kernels: Expected = (),
    counting: bool = True,
    claim_expected: bool | None = None,
    lam: float | None = None,
) -> Judgement:
    """Judge a `mul_mat` or `mul_mat_id` cell.

    `output` is float32 [rows, N] (any shape of that size); `candidates` pairs each scheme of
    `judge.scheme.schemes` with its expectation. `counting` tells whether the harness counts calls, by the
    plain names of functions in `answer.ran`. `lam` replaces the lambda of roundings.yaml.
    """
    early = precondition(answer, claim_expected)
    if early is not None:
        return early
    if output.size != candidates[0][1].y.size:
        size = candidates[0][1].y.size
        return Judgement(Verdict.FAIL, detail=f"the output has {output.size} elements, {size} were asked for")
    judged = [_one(output, scheme, expectation, lam) for scheme, expectation in candidates]
    whole = judged[0] if len(judged) == 1 else _either(output, judged)
    comparison = whole.comparison
    verdict, detail = Verdict.PASS, ""
    if comparison.compared == 0:
        verdict, detail = Verdict.VACUOUS, "nothing was compared: no element is defined"
    elif comparison.over.any():
        verdict, detail = Verdict.FAIL, describe(output, whole.expectation, comparison)
    elif counting and (idle := idle_kernels(answer.ran, expected_kernels)):
        verdict, detail = Verdict.VACUOUS, idle
    return Judgement(
        verdict,
        share=comparison.share,
        max_abs=comparison.max_abs,
        nmse=comparison.nmse,
        ulp=comparison.ulp,
        resolution=float(np.fmin.reduce([resolution(one.expectation, one.bound) for one in judged])),
        detail=detail,
    )


def precondition(answer: Answer, claim_expected: bool | None = None) -> Judgement | None:
    """A verdict that needs no numbers, or None."""
    if answer.guard:
        return Judgement(Verdict.GUARD, detail=f"the kernel left its buffers: {answer.guard}")
    if answer.status == "error":
        return Judgement(Verdict.FAIL, detail=f"the backend refused the operation: {answer.message}")
    if claim_expected is not None and answer.claimed != claim_expected:
        return judge_claim(answer, claim_expected)
    if answer.status == "unclaimed":
        return Judgement(Verdict.VACUOUS, detail="the path does not take the operation: nothing was computed")
    if answer.unwritten:
        text = f"{answer.unwritten} elements of the output were never written"
        return Judgement(Verdict.FAIL, share=float("inf"), detail=text)
    if answer.unstable:
        text = f"{answer.unstable} elements differ between repetitions of the same computation"
        return Judgement(Verdict.FAIL, share=float("inf"), detail=text)
    return None


def judge_claim(answer: Answer, expected: bool) -> Judgement:
    """Judge a `ggml.claims` cell: does the path take what it should, and nothing else?"""
    if answer.status == "error":
        return Judgement(Verdict.FAIL, detail=f"the backend refused the question: {answer.message}")
    if answer.claimed == expected:
        return Judgement(Verdict.PASS)
    does = "takes" if answer.claimed else "does not take"
    should = "should not" if answer.claimed else "should"
    return Judgement(Verdict.DRIFT, detail=f"the path {does} an operation that it {should} take")


def idle_kernels(ran: Mapping[str, int], expected: Expected) -> str:
    """Which expected kernels did not run, as a sentence; empty if all did.

    A kernel that hands its work to its portable twin (`NAME_generic`, where it has no code for this CPU) was
    entered, but is not what computed.
    """
    for patterns in expected:
        hits = [s for s, calls in ran.items() if calls and any(fnmatchcase(s, p) for p in patterns)]
        if not hits:
            names = " or ".join(patterns)
            seen = ", ".join(sorted(s for s, calls in ran.items() if calls)) or "no counted kernel"
            return f"the numbers are right, but {names} ran 0 times; {seen} ran"
        for twin, calls in ((f"{hit}_generic", ran.get(f"{hit}_generic", 0)) for hit in hits):
            if calls:
                return f"the numbers are right, but portable code made them: {twin} ran {calls} times"
    return ""


def _one(output: NDArray[np.float32], scheme: Scheme, expectation: Expectation, lam: float | None) -> Judged:
    allowed = bound(expectation, scheme.counts_with(lam))
    return Judged(expectation, allowed, compare(output, expectation, allowed))


def _either(output: NDArray[np.float32], judged: Sequence[Judged]) -> Judged:
    """A hybrid product: whole columns come from one kernel or the other, so each column has one owner.

    The owner is the kernel whose answer the column fits best (fewest elements over budget, then the smallest
    share); the columns are then judged together, each by its owner's answer, budget and rules.
    """
    worst = np.stack([one.comparison.shares.max(axis=0) for one in judged])
    over = np.stack([one.comparison.over.sum(axis=0) for one in judged])
    owner = np.lexsort((worst, over), axis=0)[0]
    expectation = Expectation.select_columns([one.expectation for one in judged], owner)
    allowed = Bound.select_columns([one.bound for one in judged], owner)
    return Judged(expectation, allowed, compare(output, expectation, allowed))


def resolution(expectation: Expectation, allowed: Bound) -> float:
    """Smallest change that one step of one weight code makes, in budgets: above 1, every such fault shows.

    Taken over a sample of outputs. Steps that change nothing (a zero activation) do not count, nor outputs
    without a budget. NaN if nothing can be stepped.
    """
    fault = expectation.fault
    if not fault.size:
        return float("nan")
    budget = allowed.budget[expectation.fault_rows, : fault.shape[1]]
    visible = np.isfinite(fault) & (budget > 0)
    return float((fault[visible] / budget[visible]).min()) if visible.any() else float("nan")
