# SPDX-License-Identifier: MIT
"""The verdict on one answered cell.

Order matters: what makes the numbers meaningless comes first (a write outside a buffer, a path that
did not take the operation), then the numbers, then whether the kernel they are credited to ran at all.
"""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import numpy as np

from tierlab.judge.budget import bound
from tierlab.judge.comparator import Comparison, compare
from tierlab.judge.patterns import describe
from tierlab.judge.verdict import Judgement, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from tierlab.harness.messages import Answer
    from tierlab.judge.scheme import Scheme
    from tierlab.oracle.expectation import Expectation

Expected = tuple[tuple[str, ...], ...]
"""Sets of symbol patterns; of each set at least one must have run."""


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
    `judge.scheme.schemes` with its expectation. `counting` tells whether the harness counts calls.
    `lam` replaces the lambda of roundings.yaml.
    """
    early = precondition(answer, claim_expected)
    if early is not None:
        return early
    if output.size != candidates[0][1].y.size:
        size = candidates[0][1].y.size
        return Judgement(Verdict.FAIL, detail=f"the output has {output.size} elements, {size} were asked for")
    judged = [_one(output, scheme, expectation, lam) for scheme, expectation in candidates]
    comparison, expectation = judged[0] if len(judged) == 1 else _either(output, judged)
    verdict, detail = Verdict.PASS, ""
    if comparison.compared == 0:
        verdict, detail = Verdict.VACUOUS, "nothing was compared: no element is defined"
    elif comparison.over.any():
        verdict, detail = Verdict.FAIL, describe(output, expectation, comparison)
    elif counting and (idle := idle_kernels(answer.ran, expected_kernels)):
        verdict, detail = Verdict.VACUOUS, idle
    return Judgement(
        verdict,
        share=comparison.share,
        max_abs=comparison.max_abs,
        nmse=comparison.nmse,
        ulp=comparison.ulp,
        resolution=resolution(*candidates[0]),
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
        if claim_expected is False:
            return Judgement(Verdict.PASS, detail="the path does not take the operation, as expected")
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
    """Which expected kernels did not run, as a sentence; empty if all did."""
    for patterns in expected:
        hits = [s for s, calls in ran.items() if calls and any(fnmatchcase(s, p) for p in patterns)]
        if not hits:
            names = " or ".join(patterns)
            seen = ", ".join(sorted(s for s, calls in ran.items() if calls)) or "no counted kernel"
            return f"the numbers are right, but {names} ran 0 times; {seen} ran"
    return ""


def _one(
    output: NDArray[np.float32], scheme: Scheme, expectation: Expectation, lam: float | None
) -> tuple[Comparison, Expectation]:
    count = scheme.counts if lam is None else replace(scheme.counts, lam=lam)
    return compare(output, expectation, bound(expectation, count)), expectation


def _either(
    output: NDArray[np.float32], judged: list[tuple[Comparison, Expectation]]
) -> tuple[Comparison, Expectation]:
    """A hybrid product: whole columns come from one kernel or the other, so each column has one owner."""
    worst = np.stack([comparison.shares.max(axis=0) for comparison, _ in judged])
    owner = np.argmin(worst, axis=0)
    merged = judged[0][1].select_columns([expectation for _, expectation in judged], owner)
    columns = np.arange(len(owner))
    shares = np.stack([comparison.shares for comparison, _ in judged])[owner, :, columns].T
    first = judged[0][0]
    out = output.reshape(merged.y.shape).astype(np.float64)
    error = np.abs(out - merged.y)
    position = int(np.argmax(shares))
    power = float((merged.y**2).sum())
    comparison = Comparison(
        share=float(shares.flat[position]), max_abs=float(error.max()),
        nmse=float((error**2).sum()) / power if power else 0.0,
        ulp=max(c.ulp for c, _ in judged) if len(judged) == 1 else float("nan"),
        compared=first.compared, over=shares > 1, worst=position, shares=shares,
    )  # fmt: skip
    return comparison, merged


def resolution(scheme: Scheme, expectation: Expectation) -> float:
    """Smallest change that one step of one weight code makes, in budgets: above 1, every such fault shows.

    Steps that change nothing (a zero activation) do not count. NaN if nothing can be stepped.
    """
    fault = expectation.fault
    if not fault.size:
        return float("nan")
    rows, columns = fault.shape
    budget = bound(expectation, scheme.counts).budget[:rows, :columns]
    visible = np.isfinite(fault) & (budget > 0)
    return float((fault[visible] / budget[visible]).min()) if visible.any() else float("nan")
