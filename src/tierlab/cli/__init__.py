# SPDX-License-Identifier: MIT
"""What a person types. `finish` turns errors into messages and exit codes; the rest are the tasks' bodies."""

from tierlab.cli.app import finish, install_exit_contract
from tierlab.cli.checks import test
from tierlab.cli.chip import chip
from tierlab.cli.claims import claims
from tierlab.cli.cost import cost
from tierlab.cli.file_arguments import install_file_arguments
from tierlab.cli.gguf import Outputs, gguf
from tierlab.cli.gguf_coverage import Wanted
from tierlab.cli.ledger import ledger
from tierlab.cli.ledger_options import ledger_words
from tierlab.cli.maintenance import build, clean, doctor, image
from tierlab.cli.matrix import cells, matrix, report
from tierlab.cli.options import build_options, build_wish, selection
from tierlab.cli.scan import scan
from tierlab.cli.variants import variants

__all__ = [
    "Outputs",
    "Wanted",
    "build",
    "build_options",
    "build_wish",
    "cells",
    "chip",
    "claims",
    "clean",
    "cost",
    "doctor",
    "finish",
    "gguf",
    "image",
    "install_exit_contract",
    "install_file_arguments",
    "ledger",
    "ledger_words",
    "matrix",
    "report",
    "scan",
    "selection",
    "test",
    "variants",
]
