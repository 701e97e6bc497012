# SPDX-License-Identifier: MIT
"""A tree that chooses its kernels otherwise: the ledger says which rules it breaks, with old and new."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from harness_rig import Rig

from tierlab.toolchain.cache import remove_tree
from tierlab.toolchain.sources import stock_tree

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.engine

ROOT = Path(__file__).parents[2]
KLEIDIAI = "ggml/src/ggml-cpu/kleidiai/kleidiai.cpp"
MARCH = "user:armv8.2-a+dotprod"

WIDTH = ("runtime_feat.sve_cnt == QK8_0", "runtime_feat.sve_cnt >= QK8_0")
HYBRID = ("(ne11 < 128)", "(ne11 < 64)")
CAP = ("sme_cap_detected ? (int)detected_smcus : 1;", "sme_cap_detected ? (int)detected_smcus : 2;")


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, Any], str]]:
    """The ledger of a tree with another width gate, hybrid threshold and cap; and what was said."""
    if not Rig().engine.emulated:
        pytest.skip("the profiles of this test are emulated")
    copy = tmp_path_factory.mktemp("user") / "llama.cpp"
    shutil.copytree(stock_tree(say=lambda _: None).ggml, copy / "ggml")
    source = copy / KLEIDIAI
    text = source.read_text()
    for old, new in (WIDTH, HYBRID, CAP):
        assert text.count(old) == 1
        text = text.replace(old, new)
    source.write_text(text)
    reports = tmp_path_factory.mktemp("reports")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "invoke", "ledger", "--reports", str(reports)),
            *("--llama-cpp", str(copy), "--build", MARCH, "--type", "q4_0"),
            *("--profile", "sve2-512,sme2-nosve", "--threads", "1,2,4", "--columns", "1,64"),
        ],
        cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False, timeout=1200,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout[-3000:] + done.stderr[-3000:]
    (written,) = reports.glob("ledger/2*/ledger.json")
    yield json.loads(written.read_text()), done.stdout
    remove_tree(copy)


def broken_rules(value: dict[str, Any], profile: str, columns: int, threads: int) -> set[str]:
    return {
        check["rule"]
        for row in value["rows"]
        if (row["profile"], row["columns"], row["threads"]) == (profile, columns, threads)
        for check in row["checks"]
        if check["outcome"] == "broken"
    }


def test_another_cap_is_told(broken: tuple[dict[str, Any], str]) -> None:
    value, said = broken
    assert broken_rules(value, "sme2-nosve", 1, 1) == {"cap.one"}
    assert "slot.second" in broken_rules(value, "sme2-nosve", 1, 2), "two threads run SME here"
    assert broken_rules(value, "sme2-nosve", 1, 4) == {"cap.one"}
    line = next(line for line in said.splitlines() if line.startswith("| cap.one"))
    assert [part.strip() for part in line.split("|")[2:4]] == ["1", "2"]


def test_another_hybrid_threshold_is_told(broken: tuple[dict[str, Any], str]) -> None:
    value, _ = broken
    rows = [
        check
        for row in value["rows"]
        if (row["profile"], row["columns"], row["threads"]) == ("sme2-nosve", 64, 4)
        for check in row["checks"]
        if check["rule"] == "slot.second"
    ]
    assert [(check["predicted"], check["observed"]) for check in rows] == [("other", "both")]


def test_another_width_gate_is_told(broken: tuple[dict[str, Any], str]) -> None:
    value, _ = broken
    for columns, rule in ((1, "kleidiai.decode-dotprod"), (64, "kleidiai.prefill-i8mm")):
        assert {"advertised.i8mm", rule} <= broken_rules(value, "sve2-512", columns, 1)
    told = next(each for each in value["run"]["profiles"] if each["profile"] == "sve2-512")
    assert "kleidiai: primary q4 kernel feature SVE" in told["lines"]


def test_the_places_that_are_gone_are_named(broken: tuple[dict[str, Any], str]) -> None:
    value, _ = broken
    missing = {place["rule"]: place["missing"] for place in value["run"]["places"] if place["missing"]}
    assert {"advertised.sve", "kleidiai.sve-at-256", "slot.hybrid", "slot.second"} <= set(missing)
    assert "runtime_feat.sve_cnt == QK8_0" in missing["advertised.sve"]
    assert "cap.one" not in missing, "its text is still there: only its meaning changed, which the rows show"
