# SPDX-License-Identifier: MIT
"""The page in a real browser: what it shows, that it uses no network, and that no result runs as script."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect, sync_playwright

sys.path.insert(0, str(Path(__file__).parents[1]))

from synthetic_run import records, write_run

from tierlab.judge.verdict import Verdict
from tierlab.report.faults import Outcome
from tierlab.report.model import summarise
from tierlab.report.writing import write_reports

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

    from tierlab.report.model import Summary

pytestmark = pytest.mark.browser

CELLS = 26_000
CRASH = "ggml.mul_mat/tq1_0/m7n3k256/blocks.gauss/default/t1/stock/a64fx"
SQUARE = '#heat td[aria-label^="{profile}, {path} {type}:"]'


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("reports") / "20260115-030000-abc123"
    write_run(path, CELLS)
    write_reports(path)
    return path


@pytest.fixture(scope="module")
def summary(run_dir: Path) -> Summary:
    return summarise(run_dir)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.fail("no chromium in PATH: the page cannot be tested. Install it: apt-get install chromium")
    with sync_playwright() as playwright:
        # Chromium refuses its sandbox to root, which is what a CI container runs as.
        launched = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture
def page(browser: Browser, run_dir: Path) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1440, "height": 1000})
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    opened = context.new_page()
    complaints: list[str] = []
    requests: list[str] = []
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("console", lambda message: complaints.append(message.text))
    opened.on("request", lambda request: requests.append(request.url))
    address = (run_dir / "index.html").as_uri()
    opened.goto(address)
    yield opened
    assert complaints == []
    assert requests == [address]
    context.close()


def square(page: Page, profile: str, path: str, types: str) -> tuple[str, str]:
    found = page.locator(SQUARE.format(profile=profile, path=path, type=types))
    return found.inner_text(), found.get_attribute("class") or ""


def listed(page: Page) -> int:
    return int("".join(filter(str.isdigit, page.locator("#cells-title small").inner_text())))


def test_the_page_says_what_the_run_says(page: Page, summary: Summary) -> None:
    assert (
        page.locator("h1")
        .inner_text()
        .startswith(f"{summary.total.outcomes['unexpected']} cells not as expected")
    )
    assert listed(page) == CELLS
    assert "no time taken under emulation is a speed" in page.locator("footer").inner_text()


def test_squares_show_the_worst_of_their_cells(page: Page) -> None:
    assert square(page, "a64fx", "default", "tq1_0") == ("C", "sq bad-sq")
    assert square(page, "neoverse-n2", "repack", "q5_k") == ("V", "sq bad-sq")
    assert square(page, "sme1-512", "kleidiai", "f32") == ("?", "sq open-sq")
    assert square(page, "cortex-a72", "kleidiai", "q8_0") == ("F", "sq known-sq")
    assert square(page, "neoverse-v1", "default", "mxfp4") == ("!", "sq bad-sq")


def test_only_squares_whose_every_cell_passes_are_green(page: Page, summary: Summary) -> None:
    green = page.locator("#heat td.s0, #heat td.s1, #heat td.s2, #heat td.s3, #heat td.s4, #heat td.s5")
    clean = {
        f"{profile}, {path} {types}"
        for (profile, path, types), tally in summary.squares.items()
        if tally.outcomes[Outcome.PASS] == tally.cells
    }
    labels = green.evaluate_all("nodes => nodes.map(node => node.getAttribute('aria-label').split(':')[0])")
    assert set(labels) == clean


def test_a_square_opens_its_cells_with_figures_and_reproducer(page: Page) -> None:
    page.locator(SQUARE.format(profile="a64fx", path="default", type="tq1_0")).click()
    assert "a64fx · default · tq1_0" in page.locator("#cells-title").inner_text()
    page.locator("#list button.open").first.click()
    detail = page.locator("#list tr.detail").inner_text()
    assert "signal 4 at 0x5501a3c8 in ggml_vec_dot_tq1_0_q8_K+0x4c" in detail
    command = f"invoke matrix --only '{CRASH}' --seed 20260115"
    assert page.locator("#list tr.detail code").inner_text() == command
    page.locator("#list tr.detail button.copy").click()
    expect(page.locator("#said")).to_have_text("Command copied")
    assert page.evaluate("navigator.clipboard.readText()") == command


def test_every_square_is_within_reach_of_the_keyboard(page: Page) -> None:
    page.locator("#heat td.sq[tabindex='0']").focus()
    for key in ("ArrowDown", "ArrowRight", "End", "Home", "ArrowRight"):
        page.keyboard.press(key)
    assert page.evaluate("document.activeElement.getAttribute('aria-label')").startswith(
        "cortex-a72, default f16:"
    )
    page.keyboard.press("Enter")
    assert "cortex-a72 · default · f16" in page.locator("#cells-title").inner_text()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert listed(page) == CELLS


def test_rows_and_columns_can_be_selected(page: Page, summary: Summary) -> None:
    page.get_by_role("button", name="neoverse-n1", exact=True).click()
    assert listed(page) == summary.profiles["neoverse-n1"].cells
    page.locator("th.type").get_by_role("button", name="iq3_s", exact=True).click()
    assert listed(page) == sum(entry.type == "iq3_s" for entry in summary.records)


def test_filters(page: Page, summary: Summary) -> None:
    page.locator("input[type=search]").fill("m1n*/kleidiai")
    assert listed(page) == sum(
        entry.shape.startswith("m1n") and entry.path == "kleidiai" for entry in summary.records
    )
    page.get_by_role("button", name="Reset").click()
    page.locator("#verdicts button", has_text="pass").click()
    assert listed(page) == CELLS - summary.total.verdicts[Verdict.PASS]
    page.locator("select[name=threads]").select_option(label="4")
    wanted = [e for e in summary.records if e.threads == 4 and e.verdict is not Verdict.PASS]
    assert listed(page) == len(wanted)
    page.locator("input[type=search]").fill("no such cell")
    assert page.locator("#more").inner_text() == "No cell matches."


def test_rows_are_made_as_they_come_into_view(page: Page) -> None:
    before = page.locator("#list tr.cell").count()
    assert before < 1000
    page.locator("#more").scroll_into_view_if_needed()
    page.wait_for_function("count => document.querySelectorAll('#list tr.cell').length > count", arg=before)


def test_hostile_text_is_shown_as_text(page: Page) -> None:
    assert "owned" not in page.title()
    page.locator(SQUARE.format(profile="cortex-a53", path="default", type="f16")).click()
    page.locator("#list button.open").first.click()
    assert '<script>document.title="owned"</script>' in page.locator("#list tr.detail").inner_text()
    assert "owned" not in page.title()
    assert page.locator("script").count() == 2


def test_the_page_fits_a_narrow_screen(page: Page) -> None:
    page.set_viewport_size({"width": 400, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") == 400


def test_the_made_up_run_is_the_same_every_time() -> None:
    assert [entry.to_line() for entry in records(200)] == [entry.to_line() for entry in records(200)]
