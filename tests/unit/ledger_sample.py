# SPDX-License-Identifier: MIT
"""A small ledger made by hand: one profile without SME, one with, rows that hold and rows that do not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tierlab.dispatch.predictions import Check
from tierlab.run.ledger_rows import OWN, Binary, Ledger, LedgerRun, Place, Row, Told

DOTPROD = "kai_run_matmul_clamp_f32_qsi8d32p1x8_qsi4c32p4x8_1x4x32_neon_dotprod"
I8MM = "kai_run_matmul_clamp_f32_qsi8d32p4x8_qsi4c32p4x8_16x4_neon_i8mm"
SME2 = "kai_run_matmul_clamp_f32_f16p1vlx2_qsi4c32p4vlx2_1vlx4vl_sme2_mopa"

HELD = Check("kleidiai.prefill-i8mm", "kernels.other", I8MM, I8MM, "held")
BROKEN = replace(HELD, observed=DOTPROD, outcome="broken")
BACKEND = Binary("backend", "/lab/build/libggml-cpu-armv8.6_2.so", "b" * 64, 1195640)

N2 = Told(
    profile="neoverse-n2",
    cpu="neoverse-n2",
    emulator="qemu-11.1",
    variant="libggml-cpu-armv8.6_2.so",
    features=("asimd", "dotprod", "i8mm", "sve", "sve2"),
    vector_bits=128,
    lines=("kleidiai: primary q4 kernel feature I8MM", "kleidiai: SME disabled"),
    banner=("DOTPROD = 1", "MATMUL_INT8 = 1", "SVE = 1"),
    cap=0,
    compiled={"I8MM": 9, "SVE": 4},
    instructions={"i8mm": 480, "sve": 418},
    binaries=(Binary("emulator", "/opt/qemu", "a" * 64, 17), BACKEND),
)
M4 = replace(N2, profile="sme2-nosve", features=("asimd", "dotprod", "i8mm", "sme", "sme2"), cap=1)


def row(profile: str = "neoverse-n2", columns: int = 128, threads: int = 1, **changes: Any) -> Row:
    """A row of q4_0 on KleidiAI that holds, changed as said."""
    made = Row(
        run="run1@stock",
        profile=profile,
        type="q4_0",
        columns=columns,
        rows=256,
        k=256,
        threads=threads,
        asked=OWN,
        path="kleidiai",
        choice="I8MM",
        line="kleidiai: primary q4 kernel feature I8MM",
        compiled=("SME2", "SVE", "I8MM", "DOTPROD"),
        calls={I8MM: 4 * threads},
        families=("I8MM",),
        classes=("neon", "i8mm"),
        divergence="advertised and executed",
        checks=(HELD,),
        verdict="pass",
        as_expected=True,
        detail="",
        output="o1",
        nmse=3e-15,
        nmse_given=3e-5,
        cell=f"ggml.mul_mat/q4_0/m{columns}n256k256/gauss.gauss/kleidiai/t{threads}/stock/{profile}",
    )
    return replace(made, **changes)


def decode(profile: str = "neoverse-n2", threads: int = 1, **changes: Any) -> Row:
    """One column: DOTPROD where I8MM is advertised."""
    return row(
        profile,
        1,
        threads,
        **{
            "calls": {DOTPROD: 4 * threads},
            "families": ("DOTPROD",),
            "classes": ("neon", "dotprod"),
            "divergence": "advertised, other family executed",
            **changes,
        },
    )


def hybrid(threads: int, **changes: Any) -> Row:
    """The SME2 profile at 128 columns: one thread runs SME2, more split the product."""
    alone = threads == 1
    split = {SME2: 1} if alone else {SME2: 1, I8MM: 3}
    return row(
        "sme2-nosve",
        128,
        threads,
        **{
            "choice": "SME2",
            "calls": split,
            "families": ("SME2",) if alone else ("SME2", "I8MM"),
            "divergence": "advertised and executed" if alone else "hybrid",
            "output": "s1" if alone else "s2",
            "nmse_given": 7e-8 if alone else 2e-5,
            **changes,
        },
    )


ROWS = (*(decode(threads=t) for t in (1, 2)), *(row(threads=t) for t in (1, 2)), hybrid(1), hybrid(2))


def ledger(rows: tuple[Row, ...] = ROWS, name: str = "run1@stock", **changes: Any) -> Ledger:
    """A run with these rows."""
    run = LedgerRun(
        run=name,
        started="2026-12-01T12:00:00+00:00",
        finished="2026-12-01T12:01:00+00:00",
        command="invoke ledger",
        version="0.1.0",
        commit="c" * 40,
        dirty=False,
        seed=1,
        engine="rootfs",
        engine_identity="e" * 64,
        emulators={"qemu-user": "11.1"},
        host={"machine": "x86_64"},
        build=name.rpartition("@")[2],
        tree="llama-cpp-python 0.3.36 (llama.cpp commit 0c1e570, ggml 0.25.3)",
        tree_digest="d" * 64,
        build_digest="f" * 64,
        flags=("-DX=1",),
        environment={},
        matrix_digest="1" * 64,
        rules_digest="2" * 64,
        profiles=(N2, M4),
        places=(
            Place("kleidiai.prefill-i8mm", "ggml/src/k.cpp:7", "if (x)"),
            Place("never.sve-beside-256", missing="no such text"),
        ),
        rows=len(rows),
    )
    return Ledger(replace(run, **changes), tuple(replace(each, run=name) for each in rows))
