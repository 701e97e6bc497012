# SPDX-License-Identifier: MIT
"""`ledger.json`: a run of the ledger for programs; its shape is `ledger.schema.json`."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from tierlab.report.ledger_summary import dependences, exit_code, reach, rule_totals
from tierlab.run.decode import encode
from tierlab.run.ledger_rows import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tierlab.dispatch.rules import Rule
    from tierlab.run.ledger_rows import Ledger


def ledger_json(ledger: Ledger, rules: Sequence[Rule]) -> dict[str, Any]:
    """The run, its rows as in the ledger file, and what they say together."""
    told = {each.profile: each for each in ledger.run.profiles}
    dependent, products = dependences(ledger.rows)
    totals = {each.rule: each for each in rule_totals(ledger.rows, [rule.id for rule in rules])}
    says = {rule.id: rule.says for rule in rules}
    return {
        "schema": SCHEMA,
        "exit_code": int(exit_code(ledger.rows, ledger.run.profiles)),
        "run": encode(ledger.run),
        "rules": [
            {
                "rule": name,
                "says": says.get(name, ""),
                "held": each.held,
                "broken": each.broken,
                "untold": each.untold,
            }
            for name, each in totals.items()
        ],
        "reach": [encode(each) for each in reach(ledger.rows, told)],
        "products": products,
        "thread_dependent": [encode(each) for each in dependent],
        "rows": [encode(row) for row in ledger.rows],
    }


def schema() -> dict[str, Any]:
    """The JSON schema of `ledger.json`, as shipped with the package."""
    loaded: dict[str, Any] = json.loads(files(__package__).joinpath("ledger.schema.json").read_text("utf-8"))
    return loaded
