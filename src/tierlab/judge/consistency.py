# SPDX-License-Identifier: MIT
"""Agreement between executions: thread counts, paths, profiles, and the two independent oracles."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from tierlab.judge.budget import bound
from tierlab.judge.comparator import compare
from tierlab.judge.patterns import describe

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from numpy.typing import NDArray

    from tierlab.judge.scheme import Scheme
    from tierlab.oracle.expectation import Expectation


def odd_ones_out(digests: Mapping[Hashable, str]) -> tuple[Hashable, ...]:
    """The executions (thread counts, paths ...) whose output bytes differ from those of the majority.

    Equal counts: the digest of the smallest key counts as the majority. Empty if all agree.
    """
    if len(set(digests.values())) < 2:
        return ()
    order = sorted(digests, key=str)
    tally = Counter(digests.values())
    most = max(tally.values())
    usual = next(digests[key] for key in order if tally[digests[key]] == most)
    return tuple(key for key in order if digests[key] != usual)


def differing(a: NDArray[np.float32], b: NDArray[np.float32]) -> int:
    """Number of elements whose bits differ; NaNs with equal bits are equal."""
    return int((np.ascontiguousarray(a).view(np.uint32) != np.ascontiguousarray(b).view(np.uint32)).sum())


def agree(
    expectation: Expectation, reference: NDArray[np.float32], scheme: Scheme, lam: float | None = None
) -> str | None:
    """None if the portable C reference agrees with the NumPy oracle, else what is wrong.

    `reference` is the output of the scalar x86-64 build on the same bytes, `scheme` the one that
    `judge.scheme.schemes` gives for that machine. Until this is None no kernel may be judged by
    either: one of the two oracles is wrong. `lam` as in `judge_product`.
    """
    if reference.size != expectation.y.size:
        return f"the reference gave {reference.size} elements, the oracle {expectation.y.size}"
    comparison = compare(reference, expectation, bound(expectation, scheme.counts_with(lam)))
    if not comparison.over.any():
        return None
    return f"the two oracles disagree: {describe(reference, expectation, comparison)}"
