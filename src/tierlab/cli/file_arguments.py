# SPDX-License-Identifier: MIT
"""Tasks that take files as plain arguments: `invoke scan a b` means `invoke scan --file a --file b`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from invoke import parser as invoke_parser

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMON = ("--json", "--file", "-f", "-j")
TASKS: dict[str, tuple[str, ...]] = {
    "scan": COMMON,
    "gguf": (*COMMON, "--markdown", "--require", "--profile", "--engine", "--reports", "--matrix"),
}
"""Task → its options that take a value. All else that follows and is no option is a file."""


def install_file_arguments() -> None:
    """Teach Invoke's parser the tasks of TASKS: it knows no list of plain arguments.

    Such a task takes all that follows, so that it is the last of a command line.
    """
    original = invoke_parser.Parser.parse_argv
    if getattr(original, "takes_files", False):
        return

    def parse_argv(self: invoke_parser.Parser, argv: list[str]) -> Any:
        return original(self, with_file_options(argv) if TASKS.keys() & set(self.contexts) else argv)

    parse_argv.takes_files = True  # type: ignore[attr-defined]
    # Seen by `install_exit_contract`, whichever of the two comes first.
    parse_argv.keeps_exit_contract = getattr(original, "keeps_exit_contract", False)  # type: ignore[attr-defined]
    invoke_parser.Parser.parse_argv = parse_argv  # type: ignore[method-assign]


def with_file_options(argv: Sequence[str]) -> list[str]:
    """Command-line words with `--file` in front of each plain argument of the first task of TASKS."""
    task = next((word for word in argv if word in TASKS), None)
    if task is None:
        return list(argv)
    begin = list(argv).index(task) + 1
    words, plain_only, value = list(argv[:begin]), False, False
    for word in argv[begin:]:
        if value or (word.startswith("-") and not plain_only and word != "--"):
            words.append(word)
            value = not value and word in TASKS[task]
        elif word == "--" and not plain_only:
            plain_only = True
        else:
            words.append(f"--file={word}")
    return words
