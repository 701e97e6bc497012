# SPDX-License-Identifier: MIT
"""Receipts: which kernels a build has, which of them ran, how often."""

from tierlab.dispatch.expected import plain_names, ran_expected, uncountable
from tierlab.dispatch.receipt import Receipt, check_counters
from tierlab.dispatch.symbols import KERNEL_PATTERNS, is_kernel, kernel_symbols

__all__ = [
    "KERNEL_PATTERNS",
    "Receipt",
    "check_counters",
    "is_kernel",
    "kernel_symbols",
    "plain_names",
    "ran_expected",
    "uncountable",
]
