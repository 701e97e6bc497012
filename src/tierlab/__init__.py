# SPDX-License-Identifier: MIT
"""tierlab: a correctness lab for Arm CPU kernels on emulated CPUs."""

__version__ = "0.1.0"
