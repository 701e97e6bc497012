# SPDX-License-Identifier: MIT
"""Published trees of another time: what of the matrix they do not have, asked of the built library.

The types and the rules of `matrix.yaml` describe the pinned tree. An older one knows fewer types and its
paths take less; cells of what it does not have are left out, each with a reason, and counted in the report.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

from tierlab.cells.builds import sdist_version
from tierlab.cells.claims import expected_claim
from tierlab.emulator.command_line import command
from tierlab.errors import HarnessError
from tierlab.harness.folder import SessionFolder
from tierlab.harness.messages import Answer, Request
from tierlab.harness.session import Session
from tierlab.run.keys import canonical, digest_of
from tierlab.run.record import Exclusion
from tierlab.run.workbench import BUILD_MOUNT, harness_command
from tierlab.toolchain.cache import cache_root
from tierlab.toolchain.engine import Limits, Mount

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from tierlab.cells.matrix import Matrix
    from tierlab.cells.model import Cell, Profile
    from tierlab.toolchain.build import Build
    from tierlab.toolchain.engine import Engine

SECONDS = 30.0
PRODUCTS = ("mul_mat", "mul_mat_id")


@dataclass
class Known:
    """What a build's harness said on one profile.

    `types` maps a type to (elements, bytes of a block; the type of its codes, "" for none; 1 if the backend
    quantises to it), `buffers` are the extra buffer types, `claims` the answers so far, by question.
    """

    types: dict[str, tuple[int, int, str, int]] = field(default_factory=dict)
    buffers: tuple[str, ...] = ()
    claims: dict[str, bool] = field(default_factory=dict)


def absent(
    engine: Engine, matrix: Matrix, builds: Mapping[str, Build], cells: Sequence[Cell]
) -> dict[str, str]:
    """Cell id → reason, of the cells of published trees that the tree, as it was built, does not have.

    Where a harness does not start nothing is left out: its cells will say so themselves.
    """
    found: dict[str, str] = {}
    wanted = [cell for cell in cells if cell.build in builds and sdist_version(cell.build) is not None]
    wanted.sort(key=lambda cell: (cell.build, cell.profile))
    for (build, profile), group in groupby(wanted, key=lambda cell: (cell.build, cell.profile)):
        of_profile = list(group)
        with suppress(HarnessError):
            known = _known(engine, matrix.profiles[profile], builds[build], _questions(matrix, of_profile))
            reasons = {cell.id: reason(matrix, cell, known, builds[build]) for cell in of_profile}
            found |= {cell: why for cell, why in reasons.items() if why}
    return found


def counted(found: Mapping[str, str]) -> list[Exclusion]:
    """What `absent` found, as exclusions by build and reason."""
    number = Counter((cell.split("/")[-2], why) for cell, why in found.items())
    return [Exclusion(rule=build, reason=why, count=count) for (build, why), count in number.items()]


def reason(matrix: Matrix, cell: Cell, known: Known, build: Build) -> str:
    """Why the tree does not have the cell, in words; empty if it has."""
    problem, name = cell.problem, cell.problem.weight_type
    kind = known.types.get(name)
    if kind is None:
        return f"type {name} does not exist in this tree"
    if problem.op == "quantize":
        return "" if kind[3] else f"this tree's CPU backend does not quantise to {name}"
    wanted = matrix.types[name]
    if kind[:3] != (wanted.block, wanted.bytes, wanted.codes):
        return f"type {name} has another block or other codes in this tree"
    if name == "f16" and build.f16_sums == "sve" and "sve" in matrix.variant(cell).needs:
        return "no budget is derived for F16 sums in binary16 registers of the SVE vector length"
    buffer = matrix.paths[cell.path].buffer
    if not buffer or problem.op not in (*PRODUCTS, "claim"):
        return ""
    if buffer not in known.buffers and expected_claim(matrix, cell):
        return f"path {cell.path} does not exist in this tree as it was built"
    claimed = known.claims.get(_key(cell), False)
    if claimed != expected_claim(matrix, cell):
        return f"path {cell.path} takes other types and shapes in this tree than in the pinned one"
    return ""


def _questions(matrix: Matrix, cells: Iterable[Cell]) -> dict[str, Cell]:
    """One cell for each question who takes what."""
    return {
        _key(cell): cell
        for cell in cells
        if cell.problem.op in (*PRODUCTS, "claim") and matrix.paths[cell.path].buffer
    }


def _key(cell: Cell) -> str:
    problem = cell.problem
    return f"{cell.path} {problem.weight_type}.{problem.activation_type} {problem.shape.id.removesuffix('s')}"


def _known(engine: Engine, profile: Profile, build: Build, questions: Mapping[str, Cell]) -> Known:
    """From the cache or, where a question is new, from a session."""
    promised = {key: value for key, value in canonical(profile).items() if key not in ("products", "note")}
    path = cache_root() / "hellos" / f"tree-{digest_of([build.binaries, promised, engine.emulated])}.json"
    known = _read(path)
    if known is None or not questions.keys() <= known.claims.keys():
        known = _ask(engine, profile, build, questions, {} if known is None else known.claims)
        _write(path, known)
    return known


def _ask(
    engine: Engine, profile: Profile, build: Build, questions: Mapping[str, Cell], answers: dict[str, bool]
) -> Known:
    emulator = tuple(command(profile)) if engine.emulated else ()
    with SessionFolder() as folder:
        mounts = [Mount(build.directory, BUILD_MOUNT), folder.mount]
        with engine.sandbox(mounts, Limits()) as sandbox:
            start = harness_command(build, emulator)
            with Session(folder, start, lambda argv, env: sandbox.spawn(argv, env)) as session:
                hello = session.start()
                types = {
                    item.name: (item.block, item.nbytes, item.vec_dot or "", int(item.from_float))
                    for item in hello.types
                }
                known = Known(types, hello.buffer_types, dict(answers))
                for key, cell in questions.items():
                    if key not in answers and cell.problem.weight_type in types:
                        known.claims[key] = _claims(session, cell)
                    known.claims.setdefault(key, False)
                return known


def _claims(session: Session, cell: Cell) -> bool:
    problem, shape = cell.problem, cell.problem.shape
    request = Request(
        cell=0,
        op="claim",
        weight_type=problem.weight_type,
        activation_type=problem.activation_type,
        shape=(shape.m, shape.n, shape.k),
        batch=(*shape.batch, *shape.weight_batch),
        experts=(shape.experts, shape.used) if shape.experts else None,
        path=cell.path,
    )
    session.submit(request)
    outcome = session.receive(SECONDS)
    if not isinstance(outcome, Answer):
        msg = f"the harness died of the question who takes {problem.id} on path {cell.path}"
        raise HarnessError(msg)
    return outcome.claimed


def _read(path: Path) -> Known | None:
    try:
        value = json.loads(path.read_text())
        types = {name: (int(b), int(n), str(c), int(q)) for name, (b, n, c, q) in value["types"].items()}
        return Known(types, tuple(value["buffers"]), {k: bool(v) for k, v in value["claims"].items()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _write(path: Path, known: Known) -> None:
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps(known.__dict__))
        draft.replace(path)
