# SPDX-License-Identifier: MIT
"""The written reports, over a made-up run with every verdict and a hostile text."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from synthetic_run import HOSTILE, info, records, write_run
from test_store import record

from tierlab.errors import StoreError
from tierlab.judge.verdict import Verdict
from tierlab.report import text
from tierlab.report.faults import Outcome
from tierlab.report.html import page
from tierlab.report.json_report import report, schema
from tierlab.report.junit import junit_lines
from tierlab.report.markdown import markdown
from tierlab.report.model import Summary, aggregate, summarise
from tierlab.report.page_data import page_data, type_order
from tierlab.report.writing import write_reports
from tierlab.run.store import RUN, Store

CELLS = 26_000


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("reports") / "20260115-030000-abc123"
    write_run(path, CELLS)
    write_reports(path)
    return path


@pytest.fixture(scope="module")
def summary(run_dir: Path) -> Summary:
    return summarise(run_dir)


def one(*entries: object) -> Summary:
    return aggregate(info("r", len(entries)), list(entries))  # type: ignore[arg-type]


def test_the_made_up_run_holds_every_outcome(summary: Summary) -> None:
    assert set(summary.total.outcomes) == set(Outcome)
    assert summary.total.cells == CELLS


def test_sizes_stay_within_bounds(run_dir: Path) -> None:
    assert (run_dir / "index.html").stat().st_size < 5_000_000
    assert (run_dir / "summary.md").stat().st_size < 1_000_000
    assert (run_dir / "junit.xml").stat().st_size < 10_000_000


def test_report_json_keeps_to_its_schema(summary: Summary) -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    value = json.loads(json.dumps(report(summary), allow_nan=False))
    jsonschema.validate(value, schema())
    assert value["total"]["verdicts"]["pass"] == summary.total.verdicts[Verdict.PASS]
    assert len(value["cells"]["declared"]) == summary.total.outcomes[Outcome.DECLARED]
    assert value["run"]["builds"][0]["flags"][0] == "-DGGML_BACKEND_DL=ON"
    value["cells"]["declared"][0]["verdict"] = "great"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(value, schema())


def test_junit_is_valid_and_complete(run_dir: Path, summary: Summary) -> None:
    root = ElementTree.parse(run_dir / "junit.xml").getroot()
    cases = root.findall("./testsuite/testcase")
    found = summary.total.outcomes
    assert [len(cases), len(root.findall(".//failure")), len(root.findall(".//error"))] == [
        CELLS,
        found[Outcome.UNEXPECTED] + found[Outcome.CURED],
        found[Outcome.UNDETERMINED],
    ]
    assert root.get("tests") == str(CELLS)
    assert len(root.findall(".//skipped")) == found[Outcome.DECLARED]
    guard = next(entry for entry in root.iter("failure") if entry.get("type") == "guard")
    assert guard.get("message") == "read 16 bytes past activations " + text.clean(HOSTILE)
    assert "invoke matrix --only 'ggml.mul_mat/f16/" in (guard.text or "")


@pytest.mark.parametrize("detail", ["\x00\x08\x1f", "]]>", "a\nb", "\ud800\ufffe", "<&>'\""])
def test_junit_carries_any_text(detail: str) -> None:
    lines = "".join(junit_lines(one(record("a", Verdict.FAIL, detail=detail))))
    failure = ElementTree.fromstring(lines.encode()).find(".//failure")
    assert failure is not None
    assert failure.get("message") == text.clean(detail)


def test_markdown_names_faults_and_cannot_be_broken_by_a_text(summary: Summary) -> None:
    whole = markdown(summary)
    assert whole.startswith("# ❌ ")
    assert "## Not as expected" in whole
    assert (
        "```sh\ninvoke matrix --only 'ggml.mul_mat/tq1_0/m7n3k256/blocks.gauss/default/t1/stock/a64fx'"
        in whole
    )
    assert re.search(r"(?<!\\)<script", whole) is None
    assert text.NO_SPEED in whole


def test_markdown_fits_a_job_summary_whatever_happened() -> None:
    many = [
        record(f"s{n}", verdict, type=f"t{n}", reason="r" * 3000, detail="d|`<" * 2000)
        for n in range(400)
        for verdict in (Verdict.FAIL, Verdict.UNTESTED, Verdict.PASS)
    ]
    declared = [replace(entry, expected=Verdict.FAIL) for entry in many]
    assert len(markdown(one(*many, *declared)).encode()) < 1_000_000


@pytest.mark.parametrize(
    ("entries", "mark"),
    [
        ([record("a")], "✅ Every cell as expected"),
        ([record("a", Verdict.UNTESTED)], "⚠️ 1 cell without an answer"),
    ],
)
def test_markdown_headline(entries: list[object], mark: str) -> None:
    assert markdown(one(*entries)).startswith(f"# {mark}")


class _Elements(HTMLParser):
    def __init__(self, whole: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(whole)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_the_page_is_self_contained_and_admits_only_its_own_script(run_dir: Path) -> None:
    whole = (run_dir / "index.html").read_text()
    parsed = _Elements(whole)
    assert [tag for tag, _ in parsed.tags].count("script") == 2
    for _, attributes in parsed.tags:
        assert not {"src", "style", "onclick", "onerror"} & attributes.keys()
        assert (attributes.get("href") or "#").startswith("#")
    policy = next(
        a["content"] or "" for _, a in parsed.tags if a.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none';")
    for element in ("script", "style"):
        (content,) = re.findall(f"<{element}>(.*?)</{element}>", whole, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{element}-src 'sha256-{digest}'" in policy


def test_the_page_escapes_every_text() -> None:
    about = replace(
        info(HOSTILE, 2), commit=HOSTILE, preset=HOSTILE, notes=(HOSTILE,), host={HOSTILE: HOSTILE}
    )
    names = dict.fromkeys(("profile", "type", "path", "build", "suite", "reason", "detail"), HOSTILE)
    entries = [
        record("a", Verdict.FAIL, ran={HOSTILE: 1}, **names),
        record("b", Verdict.FAIL, expected=Verdict.FAIL, **names),
    ]
    clean_run = page(aggregate(about, [record("a")]))
    hostile = page(aggregate(about, entries))
    tags = [tag for tag, _ in _Elements(hostile).tags]
    assert "<script>document" not in hostile
    assert tags.count("script") == [tag for tag, _ in _Elements(clean_run).tags].count("script") == 2


def test_the_page_holds_every_cell(summary: Summary) -> None:
    data = page_data(summary)
    assert {len(column) for column in data["columns"].values()} == {CELLS}
    at = next(n for n, entry in enumerate(summary.records) if entry.verdict is Verdict.CRASH)
    axes = [
        data["axes"][name][data["columns"][name][at]]
        for name in ("type", "shape", "path", "threads", "profile")
    ]
    assert axes == ["tq1_0", "m7n3k256", "default", 1, "a64fx"]
    assert data["ids"] == {}
    assert data["options"] == [" --seed 20260115"]


def test_a_cell_id_of_another_form_is_kept() -> None:
    data = page_data(one(record("a", cell="odd/id"), record("b", share=float("inf"))))
    assert (data["ids"], data["columns"]["share"]) == ({0: "odd/id"}, [None, "inf"])


def test_types_stand_in_the_order_of_their_families() -> None:
    mixed = ["tq1_0", "iq4_xs", "q4_k", "q8_0", "mxfp4", "bf16", "f32", "q4_0", "new"]
    assert sorted(mixed, key=type_order) == [
        "f32", "bf16", "q8_0", "q4_0", "q4_k", "iq4_xs", "tq1_0", "mxfp4", "new",
    ]  # fmt: skip


def test_a_partial_run_can_be_reported(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.write_run_info(replace(info("r", 3), finished=None))
    partial = write_reports(tmp_path)
    assert (partial.exit_code, partial.unnamed) == (2, 3)
    assert {path.name for path in tmp_path.iterdir()} >= {
        "report.json",
        "junit.xml",
        "summary.md",
        "index.html",
    }


def test_reports_need_a_run(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=rf"cannot read .*{RUN}"):
        write_reports(tmp_path)


def test_the_same_run_gives_the_same_reports(tmp_path: Path) -> None:
    made = records(500)
    first, second = (page(aggregate(info("r", 500), list(made))) for _ in range(2))
    assert first == second
