# SPDX-License-Identifier: MIT
"""A made-up run with every verdict and outcome, for tests of the reports; no figure in it is a result.

By hand: `python tests/synthetic_run.py DIR [CELLS]` writes a run directory and its reports.
"""

from __future__ import annotations

import hashlib
import random
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

from tierlab.judge.verdict import Verdict
from tierlab.report.writing import write_reports
from tierlab.run.record import BuildInfo, CellRecord, Exclusion, ProfileInfo, RunInfo
from tierlab.run.store import Store

PROFILES = {
    "cortex-a53": ("asimd", None, None),
    "cortex-a72": ("asimd", None, None),
    "cortex-a76": ("asimd fp16 dotprod", None, None),
    "neoverse-n1": ("asimd fp16 dotprod", None, None),
    "neoverse-v1": ("asimd fp16 dotprod i8mm sve", 256, None),
    "neoverse-n2": ("asimd fp16 dotprod i8mm bf16 sve sve2", 128, None),
    "a64fx": ("asimd fp16 sve", 512, None),
    "sve2-128": ("asimd fp16 dotprod i8mm bf16 sve sve2", 128, None),
    "sve2-256": ("asimd fp16 dotprod i8mm bf16 sve sve2", 256, None),
    "sve2-384": ("asimd fp16 dotprod i8mm bf16 sve sve2", 384, None),
    "sve2-512": ("asimd fp16 dotprod i8mm bf16 sve sve2", 512, None),
    "sve2-1024": ("asimd fp16 dotprod i8mm bf16 sve sve2", 1024, None),
    "sve2-2048": ("asimd fp16 dotprod i8mm bf16 sve sve2", 2048, None),
    "sme1-512": ("asimd fp16 dotprod i8mm bf16 sve sve2 sme", 256, 512),
    "sme2-sve-128": ("asimd fp16 dotprod i8mm bf16 sve sve2 sme sme2", 128, 128),
    "sme2-sve-512": ("asimd fp16 dotprod i8mm bf16 sve sve2 sme sme2", 128, 512),
    "apple-m4-like": ("asimd fp16 dotprod i8mm bf16 sme sme2", None, 512),
}
TYPES = [
    "f32",
    "f16",
    "bf16",
    "q4_0",
    "q4_1",
    "q5_0",
    "q5_1",
    "q8_0",
    "mxfp4",
    "nvfp4",
    "q2_k",
    "q3_k",
    "q4_k",
    "q5_k",
    "q6_k",
    "iq1_s",
    "iq1_m",
    "iq2_xxs",
    "iq2_xs",
    "iq2_s",
    "iq3_xxs",
    "iq3_s",
    "iq4_nl",
    "iq4_xs",
    "tq1_0",
    "tq2_0",
]
REPACK = ["q4_0", "q4_k", "q5_k", "q6_k", "q2_k", "q8_0", "iq4_nl", "mxfp4"]
KLEIDIAI = ["f32", "q4_0", "q8_0"]
SHAPES = [
    "m1n8k512",
    "m2n61k256",
    "m3n72k1024",
    "m4n8k256",
    "m5n64k512",
    "m7n3k256",
    "m16n72k512",
    "m33n1k256",
    "m129n64k512",
]
HOSTILE = '<script>document.title="owned"</script></script><b>&amp;"\'\x1b[31m \ud800'


def records(cells: int, seed: int = 7) -> list[CellRecord]:
    """About `cells` records in a fixed order; the same for the same arguments."""
    draw = random.Random(seed)
    pairs = (
        [("default", t) for t in TYPES]
        + [("repack", t) for t in REPACK]
        + [("kleidiai", t) for t in KLEIDIAI]
    )
    points = product(SHAPES, ("blocks.gauss", "gauss.onehot", "gauss.huge"), (1, 4), PROFILES, pairs)
    made = [_record(draw, *point) for point in points]
    return made[:cells] if cells < len(made) else made


def _record(
    draw: random.Random, shape: str, inputs: str, threads: int, profile: str, pair: tuple[str, str]
) -> CellRecord:
    path, types = pair
    cell = f"ggml.mul_mat/{types}/{shape}/{inputs}/{path}/t{threads}/stock/{profile}"
    content = f"{types}{shape}{inputs}{path}" + (
        str(threads) if (path, types) == ("kleidiai", "q4_0") else ""
    )
    share = (
        draw.betavariate(1.2, 6)
        * (1.6 if path == "kleidiai" else 1.0)
        * (1.4 if types.startswith("f") else 1)
    )
    record = CellRecord(
        cell=cell,
        verdict=Verdict.PASS,
        profile=profile,
        suite="ggml.mul_mat",
        build="stock",
        path=path,
        threads=threads,
        type=types,
        shape=shape,
        inputs=inputs,
        share=min(share, 0.995),
        max_abs=share * 3e-6,
        nmse=share * 1e-14,
        ulp=round(share * 40, 1),
        resolution=3.1e-6,
        digest=hashlib.sha256(content.encode()).hexdigest(),
        ran={
            f"ggml_vec_dot_{types}_q8_K" if path == "default" else f"ggml_gemm_{types}_8x8_q8_K": 40 + threads
        },
        claimed=True,
        wall_ms=round(draw.uniform(1, 9), 2),
        kernel_ms=round(draw.uniform(0.5, 6), 2),
    )
    return _with_faults(record, draw)


def _with_faults(record: CellRecord, draw: random.Random) -> CellRecord:
    place = (record.profile, record.path, record.type)
    if record.type == "iq3_s" and record.profile.startswith("sve2-") and record.shape == "m33n1k256":
        detail = "element [0, 0] is 3.1e-03 off, budget 7.2e-06: element 63 of row 0 looks skipped"
        return replace(record, verdict=Verdict.FAIL, share=430.6, max_abs=3.1e-3, nmse=2.4e-5, detail=detail)
    if place == ("neoverse-n2", "repack", "q5_k") and record.threads == 4:
        return replace(
            record, verdict=Verdict.VACUOUS, ran={}, detail="expected ggml_gemm_q5_k_8x8_q8_K, ran 0 times"
        )
    if place == ("a64fx", "default", "tq1_0") and record.shape == "m7n3k256":
        detail = "signal 4 at 0x5501a3c8 in ggml_vec_dot_tq1_0_q8_K+0x4c (instruction 0x4e80a000)"
        return replace(_blank(record), verdict=Verdict.CRASH, detail=detail)
    if record.path == "kleidiai" and record.type == "q8_0" and record.inputs == "gauss.huge":
        reason = "KleidiAI requantises Q8_0 per row; overflow of the row scale, reported upstream"
        return replace(
            record,
            verdict=Verdict.FAIL,
            expected=Verdict.FAIL,
            share=3.4,
            reason=reason,
            detail="over budget",
        )
    if place == ("sme1-512", "kleidiai", "f32"):
        detail = "the probe reports SVL 256, the profile promises 512"
        return replace(_blank(record), verdict=Verdict.UNTESTED, detail=detail)
    if place == ("cortex-a53", "default", "f16") and record.shape == "m1n8k512":
        return replace(record, verdict=Verdict.GUARD, detail=f"read 16 bytes past activations {HOSTILE}")
    if place == ("neoverse-v1", "default", "mxfp4") and record.shape == "m2n61k256":
        return replace(record, expected=Verdict.FAIL, reason="tail of MXFP4 at odd N")
    if record.type == "nvfp4" and record.profile == "sve2-2048" and draw.random() < 0.3:
        return replace(_blank(record), verdict=Verdict.TIMEOUT, detail="no answer within 20 s")
    return record


def _blank(record: CellRecord) -> CellRecord:
    nan = float("nan")
    return replace(record, share=nan, max_abs=nan, nmse=nan, ulp=nan, digest="", ran={})


def info(run_id: str, asked: int) -> RunInfo:
    profiles = [
        ProfileInfo(
            name=name,
            emulator="qemu-10.0" if name.startswith("sme1") else "qemu-11.1",
            cpu=name if name[0] in "cna" and name != "apple-m4-like" else "max,sme_fa64=off",
            features=tuple(features.split()),
            vector_bits=vector,
            streaming_bits=streaming,
            products=("Graviton2", "Ampere Altra") if name == "neoverse-n1" else (),
            hello={"variant": "libggml-cpu-armv8.6_2.so"},
        )
        for name, (features, vector, streaming) in PROFILES.items()
    ]
    return RunInfo(
        run_id=run_id,
        seed=20260115,
        asked=asked,
        started="2026-01-15T03:00:00+00:00",
        finished="2026-01-15T03:06:41+00:00",
        version="0.1.0",
        commit="4f0c2a9d1b7e5a3c8f60d2e94b1a7c5e3f8d0b62",
        preset="default",
        command="invoke matrix",
        engine="rootfs",
        engine_identity="sha256:" + "5e" * 32,
        emulators={"qemu-11.1": "qemu-aarch64 11.1.3", "qemu-10.0": "qemu-aarch64 10.0.13"},
        builds=(
            BuildInfo(
                name="stock",
                digest="sha256:" + "9a" * 32,
                mode="all variants, KleidiAI",
                flags=("-DGGML_BACKEND_DL=ON", "-DGGML_CPU_ALL_VARIANTS=ON", "-DGGML_CPU_KLEIDIAI=ON"),
                source="llama-cpp-python 0.3.36",
            ),
        ),
        profiles=tuple(profiles),
        host={"machine": "x86_64", "kernel": "Linux 6.12", "cores": "2", "python": "3.11.7"},
        exclusions=(
            Exclusion("ggml.mul_mat/*/*/*/kleidiai/*/a64fx", "KleidiAI needs DOTPROD, A64FX has none", 459),
            Exclusion("ggml.mul_mat/*/m129*/*/*/t16/*", "16 emulated threads only on small shapes", 1320),
        ),
    )


def write_run(run_dir: Path, cells: int) -> None:
    """A finished run in `run_dir`: run.json, cells.txt and results.jsonl; the last cell has no answer."""
    run_dir.mkdir(parents=True, exist_ok=True)
    made = records(cells)
    with Store(run_dir) as store:
        store.write_cells(record.cell for record in made)
        store.append_many(made[:-1])
        store.write_run_info(info(run_dir.name, len(made)))


if __name__ == "__main__":
    write_run(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 30_000)
    write_reports(Path(sys.argv[1]))
