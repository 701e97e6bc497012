# SPDX-License-Identifier: MIT
"""Model files: what they hold and whether two of them say the same.

Nothing here runs a model. The registry's package `gguf` (always imported by its absolute name) supplies type
sizes, dequantisation and tensor names; headers are read by a reader of our own, because the package's takes
seconds for a large vocabulary and trusts every length that a file states.
"""
