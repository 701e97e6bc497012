# SPDX-License-Identifier: MIT
"""Writing every report of a run from what the run left behind."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tierlab.report.html import page
from tierlab.report.json_report import report_text
from tierlab.report.junit import junit_lines
from tierlab.report.markdown import markdown
from tierlab.report.model import Summary, summarise
from tierlab.run.appendlog import replace_file
from tierlab.run.store import write_run_info

if TYPE_CHECKING:
    from pathlib import Path


def write_reports(run_dir: Path) -> Summary:
    """Write report.json, junit.xml, summary.md and index.html from run.json and results.jsonl.

    Works at any time, also on a run that is unfinished or was killed: what has no answer is `untested`.
    Each file is replaced as a whole. Raises StoreError.
    """
    summary = summarise(run_dir)
    replace_file(run_dir / "report.json", (report_text(summary).encode(),))
    replace_file(run_dir / "junit.xml", (line.encode() for line in junit_lines(summary)))
    replace_file(run_dir / "summary.md", (markdown(summary).encode(),))
    replace_file(run_dir / "index.html", (page(summary).encode(),))
    return summary


def conclude(run_dir: Path) -> Summary:
    """Write every report and note the run's exit code in run.json. Raises StoreError."""
    summary = write_reports(run_dir)
    write_run_info(run_dir, replace(summary.info, exit_code=int(summary.exit_code)))
    return summary
