# SPDX-License-Identifier: MIT
"""The one place where errors become messages and exit codes."""

from __future__ import annotations

import os
import sys
import traceback
from typing import TYPE_CHECKING, Any, ParamSpec

from invoke import parser as invoke_parser
from invoke.exceptions import Exit, ParseError

from tierlab.errors import ExitCode, TierlabError

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")


def install_exit_contract() -> None:
    """Make Invoke's own parse errors exit with 3.

    Invoke ends with 1 on an unknown task or option, which here would read "a cell is not as expected".
    It loads `tasks.py` before it parses task arguments, so a wrapper set from there is in time.
    """
    original = invoke_parser.Parser.parse_argv
    if getattr(original, "keeps_exit_contract", False):
        return

    def parse_argv(self: invoke_parser.Parser, argv: list[str]) -> Any:
        try:
            return original(self, argv)
        except ParseError as error:
            hint = "see `invoke --list`, or `invoke --help TASK` for a task's options"
            message = f"tierlab: wrong use: {error}\n{hint}"
            raise Exit(message, int(ExitCode.WRONG_USE)) from error

    parse_argv.keeps_exit_contract = True  # type: ignore[attr-defined]
    invoke_parser.Parser.parse_argv = parse_argv  # type: ignore[method-assign]


def finish(function: Callable[P, ExitCode], *args: P.args, **kwargs: P.kwargs) -> None:
    """Run one task; end the process with its exit code. `TIERLAB_TRACEBACK=1` adds the traceback."""
    try:
        code = function(*args, **kwargs)
    except TierlabError as error:
        if os.environ.get("TIERLAB_TRACEBACK"):
            traceback.print_exc()
        print(f"tierlab: {error}", file=sys.stderr)
        code = error.exit_code
    except KeyboardInterrupt:
        print("\ntierlab: interrupted; what was finished is kept, the same command goes on", file=sys.stderr)
        code = ExitCode.UNDETERMINED
    except BrokenPipeError:
        # `invoke cells | head`: the reader has seen enough. Keep Python from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = ExitCode.AS_EXPECTED
    if code != ExitCode.AS_EXPECTED:
        raise Exit(code=int(code))
