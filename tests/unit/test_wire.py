# SPDX-License-Identifier: MIT
"""Records of the wire: what is said is what is read, and nonsense is refused."""

from __future__ import annotations

import pytest

from tierlab.errors import HarnessError
from tierlab.harness.messages import Answer, Request, Span, TypeInfo
from tierlab.harness.wire import MAX_RECORD_BYTES, RecordReader, format_request, parse_answer, parse_hello

HELLO = """\
protocol 1
build stock-1234
variant libggml-cpu-armv8.6_2.so
score libggml-cpu-armv8.0_1.so 1
score libggml-cpu-armv8.6_2.so 63
arch aarch64
hwcap 0x119fff
hwcap2 0x2f3e
features asimd dotprod sve2
vector_bits 128
streaming_bits 0
fa64 0
sme_version 0
buft CPU_KLEIDIAI
buft CPU_REPACK
banner DOTPROD 1
banner SVE_CNT 16
object /lab/build/libggml-base.so.0
kernels 226
uncounted odd_kernel its first instruction cannot be moved
type q4_k 12 256 144 q8_k 1
type q8_k 15 256 292 - 1
end
"""

ANSWER = """\
cell 17
status ok
claimed 1
ran ggml_vec_dot_q4_K_q8_K 320
ran name with blanks 2
unwritten 3
unstable 1
guard write output +4
kernel_ns 812345
end
"""


def read_one(text: str) -> tuple[tuple[str, str], ...]:
    records = RecordReader().feed(text.encode())
    assert len(records) == 1
    return tuple(records[0])


def without(text: str, key: str) -> str:
    return "".join(line for line in text.splitlines(True) if not line.startswith(key + " "))


def test_hello_is_read_whole() -> None:
    hello = parse_hello(read_one(HELLO))
    assert (hello.protocol, hello.build, hello.arch) == (1, "stock-1234", "aarch64")
    assert hello.variant == "libggml-cpu-armv8.6_2.so"
    assert hello.scores == (("libggml-cpu-armv8.0_1.so", 1), ("libggml-cpu-armv8.6_2.so", 63))
    assert (hello.hwcap, hello.hwcap2) == (0x119FFF, 0x2F3E)
    assert hello.features == {"asimd", "dotprod", "sve2"}
    assert (hello.vector_bits, hello.streaming_bits, hello.fa64, hello.sme_version) == (128, 0, False, 0)
    assert hello.buffer_types == ("CPU_KLEIDIAI", "CPU_REPACK")
    assert hello.kernels == 226
    assert hello.uncounted == (("odd_kernel", "its first instruction cannot be moved"),)
    assert hello.banner == (("DOTPROD", "1"), ("SVE_CNT", "16"))
    assert hello.objects == ("/lab/build/libggml-base.so.0",)
    assert hello.types == (
        TypeInfo("q4_k", 12, 256, 144, "q8_k", True),
        TypeInfo("q8_k", 15, 256, 292, None, True),
    )


def test_failed_counters_are_told() -> None:
    text = HELLO.replace("kernels 226", "kernels -1\ncounters_error no kernel in that file")
    hello = parse_hello(read_one(text))
    assert hello.kernels == -1
    assert hello.counters_error == "no kernel in that file"


def test_answer_is_read_whole() -> None:
    assert parse_answer(read_one(ANSWER)) == Answer(
        cell=17,
        status="ok",
        claimed=True,
        ran={"ggml_vec_dot_q4_K_q8_K": 320, "name with blanks": 2},
        unwritten=3,
        unstable=1,
        guard="write output +4",
        kernel_ns=812345,
    )


def test_error_answer_needs_little() -> None:
    answer = parse_answer(read_one("cell -1\nstatus error\nmessage unknown key 'x'\nend\n"))
    assert answer == Answer(cell=-1, status="error", message="unknown key 'x'")


def test_unknown_keys_are_ignored() -> None:
    assert parse_answer(read_one("weather fine\n" + ANSWER)).cell == 17


@pytest.mark.parametrize(
    "key",
    [
        *("protocol", "build", "variant", "arch", "hwcap", "hwcap2", "features", "vector_bits"),
        *("streaming_bits", "fa64", "sme_version", "kernels"),
    ],
)
def test_hello_misses_nothing(key: str) -> None:
    with pytest.raises(HarnessError, match=f"0 lines '{key}'"):
        parse_hello(read_one(without(HELLO, key)))


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        ("protocol 1", "protocol one"),
        ("hwcap 0x119fff", "hwcap 119fff"),
        ("hwcap 0x119fff", "hwcap 0xzz"),
        ("fa64 0", "fa64 2"),
        ("vector_bits 128", "vector_bits 128\nvector_bits 256"),
        ("type q4_k 12 256 144 q8_k 1", "type q4_k 12 256 144 q8_k"),
        ("type q4_k 12 256 144 q8_k 1", "type q4_k 12 256 144 q8_k maybe"),
        ("score libggml-cpu-armv8.0_1.so 1", "score libggml-cpu-armv8.0_1.so"),
        ("kernels 226", "kernels 1_000"),
        ("kernels 226", "kernels ²"),
    ],
)
def test_bad_hello_is_refused(good: str, bad: str) -> None:
    assert good in HELLO
    with pytest.raises(HarnessError, match="cannot be trusted"):
        parse_hello(read_one(HELLO.replace(good, bad)))


def test_other_protocol_is_named() -> None:
    with pytest.raises(HarnessError, match="speaks protocol 2, the lab 1"):
        parse_hello(read_one(HELLO.replace("protocol 1", "protocol 2")))


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        ("cell 17", "cell seventeen"),
        ("status ok", "status fine"),
        ("claimed 1", "claimed yes"),
        ("ran ggml_vec_dot_q4_K_q8_K 320", "ran ggml_vec_dot_q4_K_q8_K"),
        ("ran ggml_vec_dot_q4_K_q8_K 320", "ran ggml_vec_dot_q4_K_q8_K often"),
        ("unwritten 3", "unwritten 3.0"),
    ],
)
def test_bad_answer_is_refused(good: str, bad: str) -> None:
    assert good in ANSWER
    with pytest.raises(HarnessError, match="cannot be trusted"):
        parse_answer(read_one(ANSWER.replace(good, bad)))


def test_records_come_in_any_pieces() -> None:
    text = (ANSWER + "cell 18\nstatus unclaimed\nend\n").encode()
    reader = RecordReader()
    records = [record for byte in text for record in reader.feed(bytes([byte]))]
    assert [parse_answer(record).cell for record in records] == [17, 18]


def test_two_records_at_once() -> None:
    assert len(RecordReader().feed((ANSWER + ANSWER).encode())) == 2


@pytest.mark.parametrize("line", [b"\xff\xfe 1", b"Cell 1", b" 1", b"a-b 1"])
def test_bad_line_is_refused(line: bytes) -> None:
    with pytest.raises(HarnessError):
        RecordReader().feed(line + b"\n")


@pytest.mark.parametrize("chunk", [b"x" * 4096, b"key value\n" * 400])
def test_endless_record_is_refused(chunk: bytes) -> None:
    reader = RecordReader()
    for _ in range(MAX_RECORD_BYTES // len(chunk) - 1):
        assert reader.feed(chunk) == []
    with pytest.raises(HarnessError, match="more than"):
        reader.feed(chunk * 3)


def test_plain_request() -> None:
    request = Request(17, "mul_mat", "iq4_xs", (5, 64, 512), weights=Span(0, 17408), output=Span(65536, 1280))
    assert format_request(request).decode() == (
        "cell 17\nop mul_mat\nwtype iq4_xs\nshape 5 64 512\npath default\nthreads 1\n"
        "weights 0 17408\noutput 65536 1280\nend\n"
    )


def test_request_with_everything() -> None:
    request = Request(
        cell=1,
        op="mul_mat_id",
        weight_type="f16",
        shape=(7, 64, 256),
        activation_type="bf16",
        batch=(4, 3, 2, 1),
        experts=(8, 2),
        path="repack",
        threads=4,
        repeat=3,
        weights=Span(0, 1),
        activations=Span(64, 2),
        ids=Span(128, 3),
        output=Span(192, 4),
        row_stride=1040,
        fault="nan",
    )
    lines = format_request(request).decode().splitlines()
    assert lines[-1] == "end"
    assert set(lines[:-1]) == {
        "cell 1",
        "op mul_mat_id",
        "wtype f16",
        "shape 7 64 256",
        "atype bf16",
        "batch 4 3 2 1",
        "experts 8 2",
        "path repack",
        "threads 4",
        "repeat 3",
        "weights 0 1",
        "activations 64 2",
        "ids 128 3",
        "output 192 4",
        "row_stride 1040",
        "fault nan",
    }


def test_a_line_break_cannot_smuggle_a_key() -> None:
    with pytest.raises(HarnessError, match="line break"):
        format_request(Request(1, "mul_mat", "f32\nop claim", (1, 1, 1)))
