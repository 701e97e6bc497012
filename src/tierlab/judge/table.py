# SPDX-License-Identifier: MIT
"""The rounding counts as a Markdown table; `python -m tierlab.judge.table` prints it for docs/budget.md."""

from __future__ import annotations

from tierlab.judge.budget import counts, families

EXAMPLES = (256, 4096)


def markdown() -> str:
    """One row a kernel family and type: its counts, what they give at two lengths, and what they count."""
    head = ["family", "type", "chain", "fixed", *(f"n({k})" for k in EXAMPLES), "what is counted"]
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for family, names in families().items():
        lines += [_row(family, name) for name in names]
    return "\n".join(lines) + "\n"


def _row(family: str, name: str) -> str:
    count = counts(family, name)
    chain = f"{count.each} / {count.block}" if count.each else "none"
    if count.tail:
        chain += f" + K mod {count.tail}"
    cells = [family, name, chain, str(count.fixed), *(str(count.chain(k)) for k in EXAMPLES), count.why]
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    print(markdown(), end="")
