# SPDX-License-Identifier: MIT
"""A full disk or an unwritable cache, told as what it is."""

from __future__ import annotations

import errno
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tierlab.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


@contextmanager
def disk_errors(cache: Path) -> Iterator[None]:
    """Turn an OSError of the body into a SourceError that names the place and what to do."""
    try:
        yield
    except OSError as error:
        place = error.filename or cache
        if error.errno in _FULL:
            msg = (
                f"the disk that holds {cache} is full (at {place}); what was begun there was removed. "
                "Free some space (invoke clean), or set TIERLAB_CACHE to a larger disk"
            )
        else:
            msg = (
                f"{place} cannot be written or read ({error.strerror}), so the cache {cache} is of no use. "
                "Set TIERLAB_CACHE to a directory that you may write to"
            )
        raise SourceError(msg) from error
