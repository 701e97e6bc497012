# SPDX-License-Identifier: MIT
"""What a scan says of good files: symbols, classes, families, KleidiAI, versions, archives in archives."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import lzma
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from scan_files import (
    FADD,
    FMOPA,
    FUNCTION,
    GLOBAL,
    LOCAL,
    NOP,
    RET,
    SDOT,
    SMMLA,
    SVE_MUL,
    TEXT,
    UNTYPED,
    ar,
    elf,
)

from tierlab.cli.file_arguments import with_file_options
from tierlab.cli.scan import scan
from tierlab.dispatch.scan import FileScan, scan_file
from tierlab.dispatch.scan_families import family
from tierlab.dispatch.scan_text import as_json, as_text
from tierlab.errors import ExitCode, UsageError

DOT = "kai_run_matmul_clamp_f32_qsi8d32p1x8_qsi4c32p4x8_1x4x32_neon_dotprod"
SYMBOLS = [
    (DOT, 0, 3, FUNCTION, GLOBAL),
    ("label_1", 1, 0, UNTYPED, LOCAL),
    ("helper", 3, 1, FUNCTION, LOCAL),
    ("ggml_vec_dot_q4_0_q8_0", 4, 2, FUNCTION, GLOBAL),
]
WORDS = [FADD, SDOT, SDOT, FADD, SMMLA, NOP, SVE_MUL, FMOPA]


def scanned(tmp_path: Path, data: bytes, name: str = "file") -> FileScan:
    path = tmp_path / name
    path.write_bytes(data)
    return scan_file(path)


def counts(classes: dict[str, int]) -> dict[str, int]:
    return {name: count for name, count in classes.items() if count}


def test_classes_are_counted_in_all_and_by_family(tmp_path: Path) -> None:
    data = elf(WORDS, SYMBOLS)
    found = scanned(tmp_path, data)
    assert (found.exit_code, found.verdict) == (ExitCode.AS_EXPECTED, "scanned: 1 AArch64 binary")
    (binary,) = found.binaries
    assert (binary.size, binary.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert (binary.kind, binary.code_bytes, binary.stripped) == ("shared object", 32, False)
    assert counts(binary.classes) == {"neon": 2, "dotprod": 2, "i8mm": 1, "sve2": 1, "sme": 1}
    families = {title: counts(one.classes) for title, one in binary.families.items()}
    assert families == {
        "kleidiai matmul neon_dotprod": {"neon": 1, "dotprod": 2},
        "other functions": {"neon": 1},
        "ggml vec_dot": {"i8mm": 1},
        "no symbol": {"sve2": 1, "sme": 1},
    }
    assert binary.families["kleidiai matmul neon_dotprod"].symbols == (DOT,)


def test_words_marked_as_data_are_not_counted(tmp_path: Path) -> None:
    marks = [("$x", 0, 0, UNTYPED, LOCAL), ("$d", 1, 0, UNTYPED, LOCAL), ("$x.1", 3, 0, UNTYPED, LOCAL)]
    found = scanned(tmp_path, elf([FADD, SDOT, SDOT, SMMLA], [*marks, ("f", 0, 4, FUNCTION, LOCAL)]))
    (binary,) = found.binaries
    assert counts(binary.classes) == {"neon": 1, "i8mm": 1}
    assert binary.notes == ["2 words are marked as data between the code; not counted"]


@pytest.mark.parametrize(
    ("symbols", "stripped", "text", "verdict", "reason"),
    [
        (SYMBOLS, False, b"", "present", "1 symbols begin with kai_"),
        (SYMBOLS[:1], True, b"", "present", "1 symbols begin with kai_"),
        (
            SYMBOLS[2:],
            False,
            b"",
            "absent",
            "no symbol begins with kai_, and static functions have names here",
        ),
        (SYMBOLS[3:], False, b"", "cannot tell", "its text does not name KleidiAI, but"),
        (SYMBOLS[3:], True, b"CPU_KLEIDIAI\0", "cannot tell", "its text names KleidiAI, but"),
        ((), True, b"", "cannot tell", "its text does not name KleidiAI, but"),
    ],
)
def test_kleidiai(
    tmp_path: Path,
    symbols: list[tuple[str, int, int, int, int]],
    stripped: bool,
    text: bytes,
    verdict: str,
    reason: str,
) -> None:
    (binary,) = scanned(tmp_path, elf(WORDS, symbols, stripped=stripped, text=text)).binaries
    assert binary.kleidiai == verdict
    assert binary.kleidiai_reason.startswith(reason)
    assert binary.stripped == stripped


def test_ggml_version_is_read_from_the_function_that_returns_it(tmp_path: Path) -> None:
    adrp, add = 0xB0000000, 0x91001000  # the next page; 4 bytes into it
    symbols = [("ggml_version", 0, 3, FUNCTION, GLOBAL), ("ggml_commit", 3, 1, FUNCTION, GLOBAL)]
    words = [adrp, add, RET, RET]
    (binary,) = scanned(tmp_path, elf(words, symbols, stripped=True, text=b"....0.27.0\0")).binaries
    assert (TEXT, binary.ggml_version, binary.ggml_commit) == (0x1000, "0.27.0", "")


def test_static_library_is_the_sum_of_its_objects(tmp_path: Path) -> None:
    library = ar(
        ("/", b"\0\0\0\0"), ("a.o", elf(WORDS, SYMBOLS)), ("b.o", elf([SDOT], SYMBOLS[:0])), ("c.txt", b"x")
    )
    (binary,) = scanned(tmp_path, library).binaries
    assert (binary.kind, binary.members, binary.kleidiai) == ("static library", 2, "present")
    assert binary.classes["dotprod"] == 3


def tar(members: dict[str, bytes], mode: str = "w:xz") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:  # type: ignore[call-overload]
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        link = tarfile.TarInfo("loop")
        link.type, link.linkname = tarfile.SYMTYPE, "loop"
        archive.addfile(link)
    return out.getvalue()


def zipped(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return out.getvalue()


LIBRARY = elf(WORDS, SYMBOLS)
LONG = "usr/lib/" + "very-" * 30 + "long.so"


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (ar(("debian-binary", b"2.0\n"), ("data.tar.xz", tar({"./l.so": LIBRARY}))), "data.tar.xz » ./l.so"),
        (tar({"package/l.node": LIBRARY}, "w:gz"), "package/l.node"),
        (tar({LONG: LIBRARY}, "w:bz2"), LONG),
        (tar({LONG: LIBRARY}, "w:"), LONG),
        (zipped({"a.txt": b"x", "lib/arm64-v8a/l.so": LIBRARY}), "lib/arm64-v8a/l.so"),
        (zipped({"b.whl": zipped({"l.so": LIBRARY})}), "b.whl » l.so"),
        (gzip.compress(LIBRARY), ""),
        (lzma.compress(LIBRARY[:5000]) + lzma.compress(LIBRARY[5000:]), ""),
        (zipped({"../../etc/passwd": LIBRARY}), "../../etc/passwd"),
        (tar({"/abs/\x1b[31m.so": LIBRARY}), "/abs/\ufffd[31m.so"),
    ],
)
def test_archives_in_archives(tmp_path: Path, data: bytes, name: str) -> None:
    found = scanned(tmp_path, data)
    assert found.exit_code == ExitCode.AS_EXPECTED, found.verdict
    (binary,) = found.binaries
    assert (binary.name, binary.sha256) == (name, hashlib.sha256(LIBRARY).hexdigest())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def test_other_machines_are_counted_beside(tmp_path: Path) -> None:
    found = scanned(tmp_path, zipped({"x86.so": elf([NOP], machine=62), "arm.so": LIBRARY}))
    assert found.exit_code == ExitCode.AS_EXPECTED
    assert found.others == {"x86-64": 1}
    assert len(found.binaries) == 1


def test_a_package_compressed_with_zstd_is_read_or_says_what_is_missing(tmp_path: Path) -> None:
    """A frame with one raw block of the tar: no compressor is needed to write it."""
    inside = tar({"l.so": LIBRARY}, "w:")
    assert len(inside) < 1 << 17
    frame = b"\x28\xb5\x2f\xfd\x00\x58" + (len(inside) << 3 | 1).to_bytes(3, "little") + inside
    found = scanned(tmp_path, ar(("debian-binary", b"2.0\n"), ("data.tar.zst", frame)))
    if found.exit_code == ExitCode.AS_EXPECTED:
        assert found.binaries[0].name == "data.tar.zst » l.so"
    else:
        assert "pip install zstandard" in found.verdict


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("kai_run_matmul_clamp_f32_qai8dxp1vlx4_qsi8cxp4vlx4_1vlx4vl_sme2_mopa", "kleidiai matmul sme2_mopa"),
        ("kai_kernel_matmul_clamp_f32_qsi8d32p4x8_qsi4c32p8x8_16x8_sve_i8mm", "kleidiai matmul sve_i8mm"),
        ("kai_run_lhs_quant_pack_qsi8d32p4x8sb_f32_neon", "kleidiai pack neon"),
        ("kai_run_rhs_pack_nxk_qsi4c32pscalef16_qsu4c32s16s0", "kleidiai pack"),
        ("kai_get_m_step_matmul_clamp_f32_f32p2vlx1_f32p2vlx1b_2vlx2vl_sme_mopa", "other functions"),
        ("ggml_gemm_q4_0_4x8_q8_0", "ggml repack gemm"),
        ("ggml_gemv_q4_K_8x8_q8_K_generic", "ggml repack gemv generic"),
        ("ggml_vec_dot_q6_K_q8_K.constprop.0", "ggml vec_dot"),
        ("dequantize_row_q4_0", "ggml quantize_row"),
        ("_Z15llamafile_sgemmPK19ggml_compute_paramslllPKvlS3_lPvliii", "ggml sgemm"),
        ("xnn_f16_gemm_minmax_ukernel_4x16__neonfp16arith_ld64", "xnnpack matmul fp16"),
        ("xnn_qs8_gemm_minmax_ukernel_4x8c8__neoni8mm", "xnnpack matmul i8mm"),
        ("sgemm_kernel_NEOVERSEN1", "openblas neoversen1"),
        ("printf", "other functions"),
    ],
)
def test_families_by_name(name: str, expected: str) -> None:
    assert family(name) == expected


def test_the_text_names_the_layer_and_the_json_holds_all(tmp_path: Path) -> None:
    found = scanned(tmp_path, LIBRARY)
    lines = list(as_text([found]))
    assert lines[-1].startswith("L1: what is compiled in.")
    assert any(line.split()[:4] == ["kleidiai", "matmul", "neon_dotprod", "1"] for line in lines)
    data = json.loads(json.dumps(as_json([found])))
    assert data["layer"] == "L1"
    assert data["files"][0]["binaries"][0]["families"]["ggml vec_dot"]["classes"]["i8mm"] == 1


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["scan", "a", "b"], ["scan", "--file=a", "--file=b"]),
        (["scan", "a", "--json", "o", "b"], ["scan", "--file=a", "--json", "o", "--file=b"]),
        (["scan", "--json=o", "a"], ["scan", "--json=o", "--file=a"]),
        (["scan", "--file", "a"], ["scan", "--file", "a"]),
        (["scan", "--", "-a"], ["scan", "--file=-a"]),
        (["matrix", "--only", "x"], ["matrix", "--only", "x"]),
    ],
)
def test_plain_arguments_are_files(argv: list[str], expected: list[str]) -> None:
    assert with_file_options(argv) == expected


def test_json_never_overwrites_what_is_scanned(tmp_path: Path) -> None:
    path = tmp_path / "good"
    path.write_bytes(LIBRARY)
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(UsageError, match="would be overwritten"):
        scan([str(path)], str(tmp_path / "link"))
    assert path.read_bytes() == LIBRARY


def test_the_task(tmp_path: Path) -> None:
    (tmp_path / "good").write_bytes(LIBRARY)
    (tmp_path / "bad").write_bytes(b"words")
    for names, code in ((["good"], 0), (["good", "bad"], 2), (["good", "bad", "none"], 3), ([], 3)):
        command = [sys.executable, "-m", "invoke", "scan", *(str(tmp_path / name) for name in names)]
        command += ["--json", str(tmp_path / "out.json")]
        done = subprocess.run(
            command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        if names:
            files = json.loads((tmp_path / "out.json").read_text())["files"]
            assert [Path(file["path"]).name for file in files] == names
