# SPDX-License-Identifier: MIT
"""`invoke ledger` on real sessions: the seed facts of dispatch, rules that hold, rules that break."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tierlab.report.ledger_json import schema
from tierlab.run.ledger_file import LEDGER, read

pytestmark = pytest.mark.engine

ROOT = Path(__file__).parents[2]
RULES = ROOT / "src/tierlab/dispatch/rules.yaml"

Where = tuple[str, str, int, int]
"""Profile, type, columns, threads."""


def invoke(reports: Path, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "invoke", "ledger", "--reports", str(reports), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=1200)
    assert done.returncode == code, done.stdout[-3000:] + done.stderr[-3000:]
    return done


def value_of(reports: Path) -> dict[str, Any]:
    newest = sorted(reports.glob("ledger/2*/ledger.json"))[-1]
    value: dict[str, Any] = json.loads(newest.read_text())
    return value


def families(value: dict[str, Any]) -> dict[Where, str]:
    return {
        (row["profile"], row["type"], row["columns"], row["threads"]): "+".join(row["families"] or ())
        for row in value["rows"]
    }


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], str]:
    """One run on the CPUs of which it is known from hardware, or by the width gate, what they do."""
    reports = tmp_path_factory.mktemp("ledger")
    profiles = "neoverse-n2,sve2-256,sve2-512,sme2-nosve"
    done = invoke(
        reports, "--profile", profiles, "--type", "q4_0,q8_0,f16,q4_k", "--threads", "1,2,4",
        "--columns", "1,4,128",
    )  # fmt: skip
    return reports, value_of(reports), done.stdout


def test_every_prediction_held_and_every_row_was_predicted(
    recorded: tuple[Path, dict[str, Any], str],
) -> None:
    _, value, said = recorded
    jsonschema.validate(value, schema())
    assert len(value["rows"]) == 4 * 4 * 3 * 3
    assert all(row["checks"] for row in value["rows"])
    checks = [check for row in value["rows"] for check in row["checks"] if check["group"] != "family"]
    assert {check["outcome"] for check in checks} == {"held"}
    assert "0 broken (100 %)" in said
    assert "exit 0" in said


def test_a_128_bit_core_decodes_with_dotprod_and_prefills_with_i8mm(
    recorded: tuple[Path, dict[str, Any], str],
) -> None:
    _, value, _ = recorded
    found = families(value)
    for kind in ("q4_0", "q8_0"):
        for threads in (1, 2, 4):
            assert found["neoverse-n2", kind, 1, threads] == "DOTPROD"
            assert found["neoverse-n2", kind, 128, threads] == "I8MM"
    rows = [row for row in value["rows"] if row["profile"] == "neoverse-n2" and row["type"] == "q4_0"]
    assert {row["choice"] for row in rows} == {"I8MM"}, "both are announced as I8MM"
    assert {row["divergence"] for row in rows if row["columns"] == 1} == {"advertised, other family executed"}


def test_sve_is_reached_at_256_bits_alone(recorded: tuple[Path, dict[str, Any], str]) -> None:
    _, value, _ = recorded
    sve = {where[0] for where, ran in families(value).items() if where[1] == "q4_0" and ran == "SVE"}
    assert sve == {"sve2-256"}
    reach = {(each["profile"], each["type"]): each for each in value["reach"]}
    for profile in ("neoverse-n2", "sve2-512"):
        assert "SVE" in reach[profile, "q4_0"]["compiled"]
        assert "SVE" in reach[profile, "q4_0"]["unreachable"]


def test_sme2_up_to_the_cap_and_split_from_128_columns(recorded: tuple[Path, dict[str, Any], str]) -> None:
    _, value, _ = recorded
    found = families(value)
    for kind in ("q4_0", "q8_0"):
        assert found["sme2-nosve", kind, 1, 1] == "SME2"
        assert found["sme2-nosve", kind, 4, 1] == "SME2"
        for threads in (2, 4):
            assert found["sme2-nosve", kind, 1, threads] == "DOTPROD", "no SME above the cap"
            assert found["sme2-nosve", kind, 4, threads] == "I8MM"
            assert found["sme2-nosve", kind, 128, threads] == "SME2+I8MM"
    told = next(each for each in value["run"]["profiles"] if each["profile"] == "sme2-nosve")
    assert told["cap"] == 1
    assert any("primary q4 kernel feature SME2" in line for line in told["lines"])


def test_the_thread_count_changes_numbers(recorded: tuple[Path, dict[str, Any], str]) -> None:
    _, value, _ = recorded
    dependent = {(each["profile"], each["type"], each["columns"]): each for each in value["thread_dependent"]}
    assert {where[:2] for where in dependent} == {("sme2-nosve", "q4_0")}
    by_threads = {
        threads: part["nmse_given"]
        for part in dependent["sme2-nosve", "q4_0", 4]["parts"]
        for threads in part["threads"]
    }
    # SME2 rounds activations to binary16, the NEON kernels to 8 bits: two orders of magnitude.
    assert by_threads[1] < by_threads[2] / 50
    assert by_threads[2] == by_threads[4]


def test_every_file_that_took_part_is_named(recorded: tuple[Path, dict[str, Any], str]) -> None:
    reports, value, _ = recorded
    for told in value["run"]["profiles"]:
        files = {binary["path"]: binary for binary in told["binaries"]}
        roles = {binary["role"] for binary in files.values()}
        assert roles >= {"emulator", "harness", "backend", "library"}
        assert files[f"/lab/build/{told['variant']}"]["role"] == "backend"
        assert any(path.endswith("/libc.so.6") for path in files)
    ledger = read(reports / "ledger" / LEDGER)
    assert [len(each.rows) for each in ledger.values()] == [len(value["rows"])]
    assert all(place["at"] for place in value["run"]["places"]), "the pinned tree has every place"


def test_the_cap_follows_the_environment(tmp_path: Path) -> None:
    arguments = ("--profile", "sme2-nosve", "--type", "q4_0", "--columns", "1", "--threads", "1,2,4")
    for cap in ("0", "2", "4"):
        invoke(tmp_path, *arguments, "--env", f"GGML_KLEIDIAI_SME={cap}")
        value = value_of(tmp_path)
        assert value["run"]["environment"] == {"GGML_KLEIDIAI_SME": cap}
        ran = {threads: family for (*_, threads), family in families(value).items()}
        assert ran == {t: "SME2" if t <= int(cap) else "DOTPROD" for t in (1, 2, 4)}
    # A promise of one thread: only SME weights are packed, and they serve every thread count.
    invoke(tmp_path, *arguments, "--env", "GGML_TOTAL_THREADS=1")
    assert set(families(value_of(tmp_path)).values()) == {"SME2"}
    runs = list(read(tmp_path / "ledger" / LEDGER))
    done = invoke(tmp_path, "--diff", f"{runs[1]},{runs[2]}")
    assert "3 products: 2 same, 1 other family." in done.stdout


WIDTH = 'vector_bits: "== 256"}\n    predict: {advertised: SVE}'
HYBRID = 'columns: ">= 128", rows_per_thread: ">= 2", chunks'
CAP = "when: {cpu: [sme]}\n    predict: {cap: 1}"


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        (WIDTH, WIDTH.replace("256", "128"), "advertised.sve"),
        (HYBRID, HYBRID.replace("128", "64"), "slot.hybrid"),
        (CAP, CAP.replace("1", "2"), "cap.one"),
    ],
)
def test_a_rule_that_is_wrong_is_broken(tmp_path: Path, old: str, new: str, rule: str) -> None:
    text = RULES.read_text()
    assert old in text
    rules = tmp_path / "rules.yaml"
    rules.write_text(text.replace(old, new))
    done = invoke(
        tmp_path, "--profile", "neoverse-n2,sme2-nosve", "--type", "q4_0", "--columns", "64",
        "--threads", "2", "--rules", str(rules), code=1,
    )  # fmt: skip
    assert "## Rules that this tree breaks" in done.stdout
    assert f"| {rule}" in done.stdout


def test_wrong_use(tmp_path: Path) -> None:
    assert "did you mean 'neoverse-n2'?" in invoke(tmp_path, "--profile", "neoverse-n9", code=3).stderr
    assert "not of the form NAME=VALUE" in invoke(tmp_path, "--env", "X", code=3).stderr
    assert "no file of rules" in invoke(tmp_path, "--rules", "none.yaml", code=3).stderr
    assert "there is no ledger" in invoke(tmp_path, "--diff", "a,b", code=3).stderr
    assert not list(tmp_path.iterdir())
