# SPDX-License-Identifier: MIT
"""What a machine may lack: a skip on a person's machine, a failure where everything must be there."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def absent(what: str) -> NoReturn:
    """Skip the test for want of `what`; under CI (variable `CI`) fail it, because `.ci/run` installs it."""
    if os.environ.get("CI"):
        pytest.fail(f"{what}; continuous integration must have it")
    pytest.skip(what)
