# SPDX-License-Identifier: MIT
"""What the compiler may use for a `-march` text, of the features by which kernels are chosen.

As GCC's predefined macros say (`gcc -march=… -dM -E`); a test asks the compiler of the image.
"""

from __future__ import annotations

from tierlab.cells.positions import nearest
from tierlab.errors import UsageError

_V8_6 = frozenset({"dotprod", "i8mm", "bf16"})
_V9 = frozenset({"dotprod", "fp16", "sve", "sve2"})

BASES = {
    **dict.fromkeys(("armv8-a", "armv8.1-a", "armv8.2-a", "armv8.3-a"), frozenset[str]()),
    **dict.fromkeys(("armv8.4-a", "armv8.5-a"), frozenset({"dotprod"})),
    **dict.fromkeys(("armv8.6-a", "armv8.7-a", "armv8.8-a", "armv8.9-a"), _V8_6),
    "armv9-a": _V9,
    **dict.fromkeys(("armv9.1-a", "armv9.2-a", "armv9.3-a", "armv9.4-a"), _V8_6 | _V9),
}
"""Architecture → what it compiles in."""

_SVE = frozenset({"sve", "fp16"})
_SME = frozenset({"sme", "bf16", "sve2"}) | _SVE

EXTENSIONS = {
    **{name: frozenset({name}) for name in ("dotprod", "fp16", "i8mm", "bf16")},
    "fp16fml": frozenset({"fp16"}),
    **dict.fromkeys(("sve", "f32mm", "f64mm"), _SVE),
    **dict.fromkeys(("sve2", "sve2-aes", "sve2-bitperm", "sve2-sha3", "sve2-sm4"), _SVE | {"sve2"}),
    "sme": _SME,
    "sme2": _SME | {"sme2"},
}
"""Extension → what it compiles in. Others (`+lse`, `+crypto`) choose no kernel."""

OLDEST = "armv8-a"
NEWER_THAN_OLDEST = "fp16"
"""The feature by which a CPU is known to be Armv8.2 or newer: code for armv8.1-a and up holds atomic
instructions that Armv8.0 lacks, and every Armv8.2 core of the matrix has half-precision arithmetic."""


def march_features(march: str) -> frozenset[str]:
    """The features, by the names of profiles, that code compiled for `march` may use.

    `+noNAME` takes NAME away and all that stands on it. UsageError for an architecture without entry.
    """
    base, *extensions = march.split("+")
    if base not in BASES:
        msg = f"-march={march}: it is not known what {base!r} compiles in; nothing was run; "
        raise UsageError(msg + nearest(base, BASES))
    features = BASES[base]
    for extension in extensions:
        lost = extension.removeprefix("no")
        if lost != extension:
            features -= {name for name, made in EXTENSIONS.items() if lost == name or lost in made}
        else:
            features |= EXTENSIONS.get(extension, frozenset())
    return features


def demanded(march: str) -> frozenset[str]:
    """The features that a CPU must have to run code for `march`."""
    newer = march.split("+")[0] != OLDEST
    return march_features(march) | ({NEWER_THAN_OLDEST} if newer else frozenset())
