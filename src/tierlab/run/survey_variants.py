# SPDX-License-Identifier: MIT
"""ggml's loadable backends on each profile: which loads by itself, and what each does where it is forced.

A variant is forced by a view of the build in which it is the only backend: hard links, no copy, gone with
the survey. A verdict's key holds the digests of the files that took part, so that what a forced variant
computed is kept like any other verdict, and shared with the runs in which it loads by itself.
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import contextmanager
from dataclasses import dataclass, replace
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tierlab.cells.claims import expected_claim
from tierlab.dispatch.variants import backend_of
from tierlab.errors import HarnessError
from tierlab.run.survey import BUILD, Survey, claim, forced, opened, product
from tierlab.toolchain.cache import cache_root

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tierlab.cells.matrix import Matrix, Variant
    from tierlab.cells.model import Cell
    from tierlab.harness.messages import Hello
    from tierlab.run.record import CellRecord
    from tierlab.toolchain.build import Build

TYPES = ("q4_0", "q8_0", "q5_k", "iq4_nl", "iq4_xs", "f16")
SHAPES = ("m1n16k256", "m5n16k256")
CLAIM_SHAPE = "m512n64k256"
REFUSAL = "no CPU backend that this CPU can run"
"""What the harness says when ggml loaded none (kernels/harness/backend.cpp)."""

_CODE = re.compile(r"return code (\d+)")
_FIRST_SIGNAL = 128


@dataclass(frozen=True)
class Loaded:
    """What a profile's own session said: `variant` loaded, `scores` by variant; or `problem`, in words."""

    profile: str
    variant: str = ""
    scores: tuple[tuple[str, int], ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class Refusal:
    """A variant forced where it must not load: `clean` if it was refused in words and no signal fell."""

    profile: str
    variant: str
    clean: bool
    said: str


@dataclass(frozen=True)
class VariantSurvey:
    """Everything that was found. `ran` maps (profile, variant) to the records of its cells, by cell id."""

    loaded: tuple[Loaded, ...]
    refusals: tuple[Refusal, ...]
    ran: dict[tuple[str, str], dict[str, CellRecord]]


def variant_survey(
    survey: Survey, profiles: Sequence[str], variants: Sequence[Variant], kinds: Sequence[str] = TYPES
) -> VariantSurvey:
    """Ask every profile what it loads, then force each variant on each profile."""
    said = [_hello(survey, profile) for profile in profiles]
    refusals: list[Refusal] = []
    ran: dict[tuple[str, str], dict[str, CellRecord]] = {}
    for variant in variants:
        fits = [each.profile for each in said if dict(each.scores).get(variant.name, 0) > 0]
        with _only(survey, variant, fits) as alone:
            cells = [cell for profile in fits for cell in cells_of(alone.matrix, profile, kinds)]
            records = alone.answers(cells)
            for profile in fits:
                ran[profile, variant.name] = {
                    cell.id: records[cell.id] for cell in cells if cell.profile == profile
                }
            refusals += [
                _refusal(alone, each.profile, variant.name) for each in said if each.profile not in fits
            ]
    return VariantSurvey(tuple(said), tuple(refusals), ran)


def cells_of(matrix: Matrix, profile: str, kinds: Sequence[str] = TYPES) -> list[Cell]:
    """A few products on every path that must take them, and the claims of both fast paths."""
    fast = [name for name, info in matrix.paths.items() if info.buffer]
    claims = [claim(profile, kind, CLAIM_SHAPE, path) for kind in kinds for path in fast]
    products = [
        product(profile, kind, shape, path) for kind in kinds for shape in SHAPES for path in matrix.paths
    ]
    return [*claims, *(cell for cell in products if expected_claim(matrix, cell))]


def is_clean(message: str) -> bool:
    """Whether a failed start was ggml's refusal in words: no death by signal, no silence."""
    code = _CODE.search(message)
    died = code is not None and int(code[1]) >= _FIRST_SIGNAL
    return REFUSAL in message and not died


def _hello(survey: Survey, profile: str) -> Loaded:
    try:
        hello: Hello = survey.hello(profile)
    except HarnessError as error:
        return Loaded(profile, problem=str(error))
    scores = tuple((backend_of(name), score) for name, score in hello.scores)
    return Loaded(profile, backend_of(hello.variant), scores)


def _refusal(alone: Survey, profile: str, variant: str) -> Refusal:
    try:
        hello = alone.hello(profile)
    except HarnessError as error:
        return Refusal(profile, variant, is_clean(str(error)), str(error))
    return Refusal(profile, variant, False, f"{hello.variant} was loaded all the same")


@contextmanager
def _only(survey: Survey, variant: Variant, profiles: Sequence[str]) -> Iterator[Survey]:
    """The survey on a build with one backend, with the rules told which variant these profiles load."""
    with TemporaryDirectory(prefix="variant-", dir=cache_root()) as folder:
        build = view(survey.build, f"libggml-cpu-{variant.name}.so", folder)
        plan = replace(survey.plan, run_dir=survey.plan.run_dir / variant.name, builds={BUILD: build})
        with opened(plan, survey.plan.matrix_file) as bench:
            forced(bench, dict.fromkeys(profiles, variant))
            yield Survey(bench, survey.tree)


def view(build: Build, backend: str, folder: str) -> Build:
    """The build with one backend alone, as a tree of hard links in `folder` (copies across file systems)."""
    others = set(build.variants) - {backend}
    inside = type(build.directory)(folder)

    def link(source: str, target: str) -> None:
        try:
            os.link(source, target)
        except OSError:
            shutil.copy2(source, target)

    def left_out(_: str, names: list[str]) -> list[str]:
        return [name for name in names if name in others]

    shutil.copytree(
        build.directory, inside, symlinks=True, ignore=left_out, copy_function=link, dirs_exist_ok=True
    )

    def moved(path: Path) -> Path:
        return inside / path.relative_to(build.directory)

    return replace(
        build,
        directory=inside,
        harness=moved(build.harness),
        backend_dir=moved(build.backend_dir),
        file_digests={name: value for name, value in build.file_digests.items() if name not in others},
    )
