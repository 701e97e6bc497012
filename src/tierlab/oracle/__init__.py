# SPDX-License-Identifier: MIT
"""Independent answers in NumPy float64: what a product must be for the operands a kernel really uses.

`weights` decodes ggml blocks, `activations` recomputes the codes a path gives its activations,
`product` multiplies the two; `expectation` is the answer, cacheable on disk. Nothing here is shared
with the code under test, and nothing here imports the harness.
"""
