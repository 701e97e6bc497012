# SPDX-License-Identifier: MIT
"""A finished build, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tierlab.toolchain.digests import digest_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

HARNESS_NAME = "tierlab-harness"
FAULTY_NAME = "tierlab-harness-faulty"


@dataclass(frozen=True)
class Build:
    """A finished build. All paths are the host's; nothing in `directory` changes any more.

    `digest` (SHA-256, hex) covers what went in: tree, toolchain, flags, wrapper, harness sources.
    `file_digests` covers what came out: file name → SHA-256 of every library and executable, so that a
    rebuild that gives the same bytes keeps its verdicts. `backend_dir` is for the harness' `--backend-dir`.
    `f16_sums` says how the tree's F16 dot product adds (toolchain.tree_facts).
    """

    name: str
    mode: str
    directory: Path
    harness: Path
    backend_dir: Path
    digest: str
    tree_digest: str
    flags: tuple[str, ...]
    log: Path
    file_digests: Mapping[str, str]
    notes: tuple[str, ...] = ()
    f16_sums: str = "wide"

    @property
    def binaries(self) -> str:
        """SHA-256 (hex) over all file digests."""
        return digest_of(dict(self.file_digests))

    @property
    def variants(self) -> tuple[str, ...]:
        """File names of the loadable CPU backends."""
        return tuple(sorted(name for name in self.file_digests if name.startswith("libggml-cpu")))

    @property
    def faulty_harness(self) -> Path:
        """The harness with deliberate faults; there with Options(faults=True)."""
        return self.directory / FAULTY_NAME

    def lane_digest(self, variant: str) -> str:
        """SHA-256 (hex) over the files that a process uses which loads `variant` (a name of `variants`).

        An unknown name (`static`, or a variant that is not foreseen) gives the digest over all files.
        """
        if variant not in self.variants:
            return self.binaries
        others = set(self.variants) - {variant}
        return digest_of({name: value for name, value in self.file_digests.items() if name not in others})
