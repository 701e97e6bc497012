# SPDX-License-Identifier: MIT
"""Every error a user can cause, each with the exit code that the command line promises.

A message states the fact, then the consequence, then the next step. The command line
(`tierlab.cli`) catches `TierlabError` once, prints the message and exits with `exit_code`.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes of every task; `git bisect run` may rely on them."""

    AS_EXPECTED = 0
    UNEXPECTED = 1
    UNDETERMINED = 2
    WRONG_USE = 3


class TierlabError(Exception):
    """Base of all errors that are reported as one message and no traceback."""

    exit_code: ExitCode = ExitCode.UNDETERMINED


class UsageError(TierlabError):
    """A command line option or environment variable is wrong."""

    exit_code = ExitCode.WRONG_USE


class ConfigError(TierlabError):
    """`matrix.yaml` (or another data file) is wrong; the message names file, line and column."""

    exit_code = ExitCode.WRONG_USE


class SelectionError(TierlabError):
    """The selection is well formed but selects nothing."""


class EngineError(TierlabError):
    """No engine answers, or the engine failed while it was used."""


class SourceError(TierlabError):
    """A source package could not be fetched, verified or unpacked, or is not what it should be."""


class PatchError(SourceError):
    """A patch does not apply; the message names patch, file and hunk."""


class BuildError(TierlabError):
    """The code under test does not compile: verdict `unbuildable`."""


class ProbeError(TierlabError):
    """The emulated CPU does not deliver what its profile promises."""


class HarnessError(TierlabError):
    """The harness answered something that the protocol does not allow."""


class StoreError(TierlabError):
    """Results cannot be written or read."""


class ModelFileError(TierlabError):
    """A model file is damaged, incomplete or of a kind that is not read; the message names file and place."""
