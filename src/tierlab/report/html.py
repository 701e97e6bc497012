# SPDX-License-Identifier: MIT
"""`index.html`: the run as one self-contained page that asks the network for nothing.

The page's policy admits exactly the script and the style written here, by their hashes: even a result
that slipped through the escaping could not run.
"""

from __future__ import annotations

import base64
import hashlib
from html import escape
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING

from tierlab.report import text
from tierlab.report.html_comparison import comparison_sections
from tierlab.report.html_sections import facts, fault_section, sections
from tierlab.report.page_data import embed, page_data

if TYPE_CHECKING:
    from tierlab.report.model import Summary

SCRIPTS = ("data.js", "filters.js", "map.js", "list.js")


def page(summary: Summary) -> str:
    """The whole page."""
    style = "\n" + _part("page.css")
    script = "\n" + "".join(_part(name) for name in SCRIPTS)
    return Template(_part("page.html")).substitute(
        title=escape(f"{text.headline(summary)} · tierlab {text.clean(summary.info.run_id)}"),
        run_id=escape(text.clean(summary.info.run_id)),
        state=f"state-{int(summary.exit_code)}",
        headline=escape(text.headline(summary)),
        counts=escape(text.counts(summary)),
        cost=escape(text.cost(summary)),
        facts=facts(summary),
        faults=fault_section(summary) + comparison_sections(summary),
        sections=sections(summary),
        no_speed=escape(text.NO_SPEED),
        data=embed(page_data(summary)),
        style=style,
        style_hash=_hash(style),
        script=script,
        script_hash=_hash(script),
    )


def _part(name: str) -> str:
    return files(__package__).joinpath("page", name).read_text("utf-8")


def _hash(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
