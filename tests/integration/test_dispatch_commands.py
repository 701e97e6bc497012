# SPDX-License-Identifier: MIT
"""`invoke chip`, `claims` and `variants` on real sessions: known kernels, claims, lines and scores."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.engine

ROOT = Path(__file__).parents[2]


def invoke(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "invoke", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == code, done.stdout[-3000:] + done.stderr[-3000:]
    return done


def result(folder: Path, name: str) -> dict[str, Any]:
    found = list(folder.rglob(f"{name}.json"))
    assert len(found) == 1
    value: dict[str, Any] = json.loads(found[0].read_text())
    return value


def test_chip(tmp_path: Path) -> None:
    done = invoke("chip", "graviton3", "--reports", str(tmp_path))
    value = result(tmp_path, "graviton3")
    assert (value["profile"], value["variant"], value["variant_by_rule"]) == (
        "neoverse-v1",
        "armv8.6_1",
        "armv8.6_1",
    )
    q4_0 = value["types"]["q4_0"]
    kernels = {seen["workload"]: set(seen["kernels"]) for seen in q4_0["observed"]}
    # 256 bits is the one length at which KleidiAI's SVE kernels are chosen.
    assert q4_0["path"] == "kleidiai"
    assert kernels == {
        "decode": {"kai_run_matmul_clamp_f32_qsi8d32p1x8_qsi4c32p8x8_1x8_sve_dotprod"},
        "prefill": {"kai_run_matmul_clamp_f32_qsi8d32p4x8_qsi4c32p8x8_16x8_sve_i8mm"},
    }
    assert all(seen["kernels"] for item in value["types"].values() for seen in item["observed"])
    assert value["tier_gaps"] == []
    assert "sve_i8mm" in done.stdout


def test_claims(tmp_path: Path) -> None:
    invoke("claims", "--profile", "cortex-a53,neoverse-n2,sme2-nosve", "--reports", str(tmp_path))
    value = result(tmp_path, "claims")
    claims = value["claims"]
    assert claims["MUL_MAT"]["q4_0"] == {
        "cortex-a53": [],
        "neoverse-n2": ["kleidiai", "repack"],
        "sme2-nosve": ["kleidiai", "repack"],
    }
    assert claims["MUL_MAT"]["f32"]["sme2-nosve"] == ["kleidiai"]
    assert claims["MUL_MAT_ID"]["q4_0"]["neoverse-n2"] == ["repack"]
    assert all(not taken for taken in claims["MUL_MAT"]["iq4_xs"].values())
    assert (value["drift"], value["unanswered"]) == ([], 0)
    lines = value["deciders"]["repack"]["branches"]["q4_0"]
    assert "GGML_TYPE_Q4_0" in lines[0]["text"]
    assert lines[0]["at"].startswith("ggml/src/ggml-cpu/repack.cpp:")


def test_variants(tmp_path: Path) -> None:
    profiles = "cortex-a53,neoverse-n2,sme2-nosve"
    invoke("variants", "--profile", profiles, "--variant", "armv8.0_1,armv8.6_*", "--reports", str(tmp_path))
    value = result(tmp_path, "variants")
    assert {name: each["variant"] for name, each in value["loaded"].items()} == {
        "cortex-a53": "armv8.0_1",
        "neoverse-n2": "armv8.6_2",
        "sme2-nosve": "armv8.2_2",
    }
    assert value["loaded"]["neoverse-n2"]["scores"]["armv8.6_1"] == 31
    assert value["lacks"]["sme2-nosve"]["armv8.6_1"] == ["sve"]
    forced = {(each["profile"], each["variant"]): each["cells"] for each in value["forced"]}
    refused = {(each["profile"], each["variant"]): each["clean"] for each in value["refused"]}
    assert len(forced) == 5
    assert all(cell["verdict"] == "pass" for cells in forced.values() for cell in cells.values())
    assert refused == {
        (name, variant): True
        for name in ("cortex-a53", "sme2-nosve")
        for variant in ("armv8.6_1", "armv8.6_2")
    }
    name = "ggml.mul_mat/q5_k/m5n16k256/gauss.gauss/default/t1/stock/neoverse-n2"
    assert set(forced["neoverse-n2", "armv8.6_1"][name]["ran"]) >= {"ggml_vec_dot_q5_K_q8_K"}


def test_wrong_use() -> None:
    assert "did you mean 'graviton4'?" in invoke("chip", "gravtion4", code=3).stderr
    assert "engine native has none" in invoke("variants", "--engine", "native", code=3).stderr
    assert "did you mean 'armv8.6_2'?" in invoke("variants", "--variant", "armv8.6_3", code=3).stderr
    assert "did you mean 'neoverse-n2'?" in invoke("claims", "--profile", "neoverse-n9", code=3).stderr
