# SPDX-License-Identifier: MIT
"""Tests import the helpers that lie in this folder: pytest adds the folder of a conftest to the path."""
