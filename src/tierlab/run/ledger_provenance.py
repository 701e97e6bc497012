# SPDX-License-Identifier: MIT
"""The header of a ledger's run: what was run, from what, on what."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import tierlab
from tierlab.dispatch.rule_places import find_places
from tierlab.run.ledger_rows import LedgerRun, Place
from tierlab.run.provenance import EMULATOR_PACKAGES, commit_of, host_facts
from tierlab.run.store import now

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tierlab.dispatch.rules import Rule
    from tierlab.errors import ExitCode
    from tierlab.run.survey_ledger import LedgerSurvey

_IN_TREE = re.compile(r"/\S*?/ggml/")
"""Where a tree lies on this machine is nobody's business elsewhere."""


def header(ledger: LedgerSurvey, started: str, code: ExitCode, rules_digest: str) -> LedgerRun:
    """The provenance of a finished survey. Lists every binary under the profile that loaded it."""
    survey = ledger.survey
    plan, build, tree = survey.plan, survey.build, survey.tree
    commit, dirty = commit_of(Path(tierlab.__file__).resolve().parents[2])
    packages = survey.bench.engine.manifest()
    return LedgerRun(
        run=ledger.run,
        started=started,
        finished=now(),
        command=shlex.join(["invoke", *sys.argv[1:]]),
        version=tierlab.__version__,
        commit=commit,
        dirty=dirty,
        seed=plan.seed,
        engine=plan.engine,
        engine_identity=plan.engine_identity,
        emulators={name: version for name, version in packages.items() if EMULATOR_PACKAGES in name},
        host=host_facts(),
        build=survey.name,
        tree=tree.origin,
        tree_digest=tree.digest,
        build_digest=build.binaries,
        flags=build.flags,
        environment=dict(plan.environment),
        matrix_digest=survey.matrix.digest,
        rules_digest=rules_digest,
        profiles=tuple(ledger.told),
        places=places(tree.ggml, ledger.rules),
        build_notes=tuple(_IN_TREE.sub("ggml/", note) for note in build.notes),
        rows=len(ledger.rows),
        exit_code=int(code),
    )


def places(ggml: Path, rules: Sequence[Rule]) -> tuple[Place, ...]:
    """Where that tree decides each rule."""
    found = find_places(ggml, rules)
    return tuple(
        Place(rule, missing=each.missing)
        if each.line is None
        else Place(rule, at=each.line.place, text=each.line.text)
        for rule, hits in found.items()
        for each in hits
    )
