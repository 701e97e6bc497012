# SPDX-License-Identifier: MIT
"""pytest plugin: writes the reports of a run that pytest itself prepared (`pytest matrix.yaml`)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tierlab.run.plugin import OWN_RUN

if TYPE_CHECKING:
    import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """In the controlling process, when all lanes have ended."""
    run_dir = config.stash.get(OWN_RUN, None)
    if run_dir is None:
        return
    from tierlab.report.text import headline
    from tierlab.report.writing import conclude
    from tierlab.run.store import now, read_cells, read_run_info, write_run_info

    info = read_run_info(run_dir)
    write_run_info(run_dir, replace(info, asked=len(read_cells(run_dir)), finished=now()))
    summary = conclude(run_dir)
    terminalreporter.write_line(f"tierlab: {headline(summary)}; reports in {run_dir}")
