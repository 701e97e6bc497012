# SPDX-License-Identifier: MIT
"""The one place where errors become messages and exit codes."""

from __future__ import annotations

import io
import os
import signal
import sys
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ParamSpec

from invoke import parser as invoke_parser
from invoke.exceptions import Exit, ParseError

from tierlab.errors import ExitCode, TierlabError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

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
            hint = (
                "see `invoke --list`, or `invoke --help TASK` for a task's options; an option that takes one "
                "value may be given once"
            )
            message = f"tierlab: wrong use: {error}\n{hint}"
            raise Exit(message, int(ExitCode.WRONG_USE)) from error

    parse_argv.keeps_exit_contract = True  # type: ignore[attr-defined]
    invoke_parser.Parser.parse_argv = parse_argv  # type: ignore[method-assign]


def finish(function: Callable[P, ExitCode], *args: P.args, **kwargs: P.kwargs) -> None:
    """Run one task; end the process with its exit code. `TIERLAB_TRACEBACK=1` adds the traceback."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # `nohup` ignores one of them, and means it
            signal.signal(number, _interrupt)
    _speak_anywhere()
    try:
        code = function(*args, **kwargs)
        sys.stdout.flush()
    except KeyboardInterrupt:
        _tell("interrupted; what was finished is kept, the same command goes on", before="\n")
        code = ExitCode.UNDETERMINED
    except BrokenPipeError:
        # `invoke cells | head`: the reader has seen enough. Keep Python from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = ExitCode.AS_EXPECTED
    except Exception as error:
        code = _explained(error)
    if code != ExitCode.AS_EXPECTED:
        raise Exit(code=int(code))


def _speak_anywhere() -> None:
    """A terminal of another encoding, or a file name that is no text, changes a letter and ends nothing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")


def _interrupt(number: int, frame: FrameType | None) -> None:
    """A polite request to end, from a job scheduler or a closing terminal, is a Ctrl-C."""
    raise KeyboardInterrupt


def _explained(error: Exception) -> ExitCode:
    """Say what went wrong. Never exit code 1: that would read "a cell is not as expected"."""
    if os.environ.get("TIERLAB_TRACEBACK"):
        traceback.print_exc()
    if isinstance(error, TierlabError):
        _tell(str(error))
        return error.exit_code
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        _tell(
            f"{where}{error.strerror or error}; the task cannot go on, what was finished is kept. Make room "
            "or correct the permissions, then give the same command again (TIERLAB_TRACEBACK=1 shows where)"
        )
    elif isinstance(error, MemoryError):
        _tell("out of memory; what was finished is kept. Use fewer --jobs, then give the same command again")
    else:
        if not os.environ.get("TIERLAB_TRACEBACK"):
            traceback.print_exc()
        _tell(f"this is a fault of the lab itself ({type(error).__name__}); nothing can be concluded from it")
    return ExitCode.UNDETERMINED


def _tell(text: str, before: str = "") -> None:
    """To standard error; a terminal that is gone, or a name that is no text, stops no ending."""
    with suppress(OSError):
        print(f"{before}tierlab: {text}".encode(errors="backslashreplace").decode(), file=sys.stderr)
