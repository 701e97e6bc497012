# SPDX-License-Identifier: MIT
"""What a build's log says: how far it is, and what stopped it."""

from __future__ import annotations

import re
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

POLL_SECONDS = 0.25
MANY_STEPS = 20
STEP = re.compile(rb"^\[(\d+)/(\d+)\] ", re.MULTILINE)
_ERRORS = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        r"^[^\s:][^:\n]*:\d+(?::\d+)?: (?:fatal )?error: .*$",
        r"^.*\b(?:fatal error|internal compiler error): .*$",
        r"^.*(?:undefined reference to|multiple definition of|cannot find -l).*$",
        r"^CMake Error.*(?:\n\n?  .*)*",
        r"^.*\berror: .*$",
        r"^ninja: .*$",
        r"^FAILED: .*$",
    )
)


def first_error(text: str, places: Mapping[str, str]) -> str:
    """The first line that says what went wrong, with the engine's `places` replaced by the host's paths.

    The compiler's `file:line: error: …` wins over whatever else stands before it; the last line of the log
    serves where nothing looks like an error.
    """
    for pattern in _ERRORS:
        if found := pattern.search(text):
            line = " ".join(found[0].split())
            break
    else:
        lines = text.strip().splitlines()
        line = lines[-1].strip() if lines else "the log is empty"
    for inside, outside in places.items():
        line = line.replace(f"{inside}/", f"{outside}/")
    return line


def quarters(name: str, say: Callable[[str], None]) -> Callable[[int, int], None]:
    """A progress that says a line at each quarter of the way, for builds that are long enough to wonder."""
    said = {0, 4}

    def tell(done: int, total: int) -> None:
        quarter = 4 * done // total if total >= MANY_STEPS else 0
        if quarter not in said:
            said.add(quarter)
            say(f"build {name}: {done} of {total} steps")

    return tell


@contextmanager
def watched(log: Path, progress: Callable[[int, int], None] | None) -> Iterator[None]:
    """While the body runs, tell `progress` each step that appears in `log`; the last one is always told."""
    if progress is None:
        yield
        return
    ended = threading.Event()
    thread = threading.Thread(target=_watch, args=(log, progress, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _watch(log: Path, progress: Callable[[int, int], None], ended: threading.Event) -> None:
    told: tuple[int, int] | None = None
    while True:
        last = ended.wait(POLL_SECONDS)
        step = _last_step(log)
        if step is not None and step != told:
            progress(*step)
            told = step
        if last:
            return


def _last_step(log: Path) -> tuple[int, int] | None:
    try:
        found = STEP.findall(log.read_bytes())
    except OSError:
        return None
    return (int(found[-1][0]), int(found[-1][1])) if found else None
