# SPDX-License-Identifier: MIT
"""The harness against the real ggml: what it says of the CPU, what it computes, what it refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import dequantize
from harness_rig import ARENA_BYTES, Conversation, Rig

from tierlab.harness.messages import Answer, Crash, Request, Span

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from numpy.typing import NDArray

pytestmark = pytest.mark.engine

M, N, K = 5, 64, 512
SVE512 = "max,sve512=on,sve-default-vector-length=64"
TYPES = ("q4_0", "q8_0", "q4_k", "iq4_xs", "mxfp4", "f16", "f32")

# CPU string, emulator, variant that ggml must choose, SVE bits, streaming bits, FA64, SME version.
CPUS = (
    ("cortex-a53", "qemu-11.1", "libggml-cpu-armv8.0_1.so", 0, 0, False, 0),
    ("neoverse-n1", "qemu-11.1", "libggml-cpu-armv8.2_2.so", 0, 0, False, 0),
    ("neoverse-v1", "qemu-11.1", "libggml-cpu-armv8.6_1.so", 256, 0, False, 0),
    ("neoverse-n2", "qemu-11.1", "libggml-cpu-armv8.6_2.so", 128, 0, False, 0),
    (
        "max,sve512=on,sve-default-vector-length=64",
        "qemu-11.1",
        "libggml-cpu-armv9.2_2.so",
        512,
        256,
        True,
        2,
    ),
    ("max,sve=off,sme512=on,sme_fa64=off", "qemu-11.1", "libggml-cpu-armv8.2_2.so", 0, 512, False, 2),
    ("max,sme_fa64=off", "qemu-10.0", "libggml-cpu-armv9.2_2.so", 512, 256, False, 1),
)


@pytest.fixture(scope="module")
def rig() -> Rig:
    return Rig()


@pytest.fixture(scope="module")
def reference(rig: Rig) -> Iterator[Conversation]:
    with rig.reference() as conversation:
        yield conversation


@pytest.fixture(scope="module")
def n2(rig: Rig) -> Iterator[Conversation]:
    with rig.arm("neoverse-n2") as conversation:
        yield conversation


@pytest.fixture(scope="module")
def problem(reference: Conversation) -> dict[str, tuple[NDArray[Any], NDArray[np.float64]]]:
    """Type → (blocks, their exact values) of one Gaussian weight matrix [N, K]."""
    values = np.random.default_rng(1).standard_normal((N, K), np.float32)
    return {kind: _weights(reference, kind, values) for kind in TYPES}


def _weights(
    reference: Conversation, kind: str, values: NDArray[np.float32]
) -> tuple[NDArray[Any], NDArray[np.float64]]:
    if kind in ("f16", "f32"):
        floats = values.astype(np.float16 if kind == "f16" else np.float32)
        return floats, floats.astype(np.float64)
    blocks = reference.quantised(kind, values)
    types = {member.name.lower(): member for member in GGMLQuantizationType}
    return blocks, dequantize(blocks, types[kind]).astype(np.float64)


def _activations(m: int, k: int = K) -> NDArray[np.float32]:
    return np.random.default_rng(m).standard_normal((m, k), np.float32)


def nmse(output: NDArray[Any], expected: NDArray[np.float64]) -> float:
    return float(((output - expected) ** 2).sum() / (expected**2).sum())


@pytest.mark.parametrize(("cpu", "emulator", "variant", "vector", "streaming", "fa64", "sme"), CPUS)
def test_hello_tells_the_cpu(
    rig: Rig, cpu: str, emulator: str, variant: str, vector: int, streaming: int, fa64: bool, sme: int
) -> None:
    with rig.arm(cpu, emulator) as conversation:
        hello = conversation.hello
    assert (hello.arch, hello.build, hello.variant) == ("aarch64", "test", variant)
    assert (hello.vector_bits, hello.streaming_bits) == (vector, streaming)
    assert (hello.fa64, hello.sme_version) == (fa64, sme)
    assert ("sme_fa64" in hello.features) == fa64
    assert ("sve" in hello.features) == (vector > 0)
    assert ("sme2" in hello.features) == (sme == 2)
    assert hello.kernels > 100
    assert hello.counters_error == ""
    # What the backend says of itself is what it was compiled for, and the vector length it found.
    banner = dict(hello.banner)
    assert banner["NEON"] == "1"
    compiled_for_sve = any(name in variant for name in ("8.2_3", "8.6", "9.2"))
    assert ("SVE" in banner) == compiled_for_sve
    assert hello.variant in {name.rpartition("/")[2] for name in hello.objects}
    assert any("libggml-base" in name for name in hello.objects)
    scores = dict(hello.scores)
    assert len(scores) == 8
    assert scores[variant] == max(scores.values()) > 0


def test_hello_lists_types(n2: Conversation) -> None:
    types = {info.name: info for info in n2.hello.types}
    assert (types["iq4_xs"].block, types["iq4_xs"].nbytes, types["iq4_xs"].vec_dot) == (256, 136, "q8_k")
    assert types["q8_k"].vec_dot is None
    assert types["q8_k"].from_float
    assert not types["iq2_xxs"].from_float
    assert {"f32", "f16", "bf16", "nvfp4", "tq1_0", "q1_0", "q2_0"} <= set(types)


def test_the_reference_build_says_so(reference: Conversation) -> None:
    hello = reference.hello
    assert (hello.variant, hello.features, hello.scores) == ("static", frozenset(), ())


@pytest.mark.parametrize(
    ("cpu", "emulator"), [(cpu, emulator) for cpu, emulator, *_ in CPUS], ids=[c[0] for c in CPUS]
)
def test_products_on_every_path(
    rig: Rig, problem: dict[str, tuple[NDArray[Any], NDArray[np.float64]]], cpu: str, emulator: str
) -> None:
    """Right to the activations' own 8-bit rounding; what is not claimed is not computed."""
    activations = _activations(M)
    claimed = 0
    with rig.arm(cpu, emulator) as conversation:
        for kind, (blocks, values) in problem.items():
            for path in ("default", "repack", "kleidiai"):
                for threads in (1, 4):
                    outcome, output = conversation.product(
                        kind, blocks, activations, N, path=path, threads=threads
                    )
                    assert isinstance(outcome, Answer), outcome
                    assert outcome.status == ("ok" if outcome.claimed else "unclaimed"), outcome.message
                    assert outcome.claimed or path != "default"
                    if outcome.claimed:
                        claimed += 1
                        assert nmse(output, activations @ values.T) < 2e-4
                        assert (outcome.unwritten, outcome.guard, outcome.unstable) == (0, "", 0)
                        assert sum(outcome.ran.values()) > 0
                        assert outcome.kernel_ns > 0
    assert claimed >= 2 * len(TYPES)


def test_receipts_are_exact(n2: Conversation, problem: dict[str, Any]) -> None:
    outcome, _ = n2.product("iq4_xs", problem["iq4_xs"][0], _activations(M), N)
    assert isinstance(outcome, Answer)
    assert outcome.ran["ggml_vec_dot_iq4_xs_q8_K"] == M * N
    repacked, _ = n2.product("q4_0", problem["q4_0"][0], _activations(8), N, path="repack")
    assert isinstance(repacked, Answer)
    assert repacked.ran["ggml_gemm_q4_0_4x8_q8_0"] == 1
    assert "ggml_vec_dot_q4_0_q8_0" not in repacked.ran


def test_repetition_gives_the_same_and_counts_once(n2: Conversation, problem: dict[str, Any]) -> None:
    once, first = n2.product("q4_k", problem["q4_k"][0], _activations(M), N)
    again, second = n2.product("q4_k", problem["q4_k"][0], _activations(M), N, repeat=5)
    assert isinstance(once, Answer)
    assert isinstance(again, Answer)
    assert again.unstable == 0
    assert again.ran == once.ran
    assert np.array_equal(first.view(np.uint32), second.view(np.uint32))


def test_broadcast(n2: Conversation, reference: Conversation) -> None:
    """Weights [ne03, ne02, N, K] serve r3 and r2 activations planes each."""
    rng = np.random.default_rng(2)
    weights = rng.standard_normal((3, 2, 8, 64), np.float32)
    activations = rng.standard_normal((6, 4, 3, 64), np.float32)
    given = {"weights": weights, "activations": activations, "batch": (4, 6, 2, 3)}
    outcome, output = n2.ask("mul_mat", "f32", (3, 8, 64), 6 * 4 * 3 * 8 * 4, **given)
    assert isinstance(outcome, Answer)
    assert outcome.status == "ok", outcome.message
    spread = weights.repeat(2, axis=0).repeat(2, axis=1).astype(np.float64)
    expected = np.einsum("abmk,abnk->abmn", activations.astype(np.float64), spread)
    assert nmse(output.view(np.float32).reshape(expected.shape), expected) < 1e-12


def test_strided_activations(n2: Conversation, problem: dict[str, Any]) -> None:
    """Padded rows give the very bytes of contiguous rows, whatever the padding holds."""
    activations = _activations(M)
    _, plain = n2.product("q4_0", problem["q4_0"][0], activations, N)
    padded = np.full((M, K + 16), 1e30, np.float32)
    padded[:, :K] = activations
    for sent in (padded, padded.reshape(-1)[: M * (K + 16) - 16]):
        given = {"weights": problem["q4_0"][0], "activations": sent, "row_stride": (K + 16) * 4}
        outcome, output = n2.ask("mul_mat", "q4_0", (M, N, K), M * N * 4, **given)
        assert isinstance(outcome, Answer)
        assert outcome.status == "ok", outcome.message
        assert np.array_equal(output, plain.reshape(-1).view(np.uint8))


@pytest.mark.parametrize(("path", "kind"), [("default", "f32"), ("default", "q4_0"), ("repack", "q4_0")])
def test_products_by_expert(n2: Conversation, reference: Conversation, path: str, kind: str) -> None:
    rng = np.random.default_rng(3)
    total, used, tokens, n, k = 5, 2, 7, 16, 256
    values = rng.standard_normal((total * n, k), np.float32)
    blocks, exact = _weights(reference, kind, values)
    activations = rng.standard_normal((tokens, k), np.float32)
    # The last expert is idle.
    ids = np.array([rng.permutation(total - 1)[:used] for _ in range(tokens)], np.int32)
    given = {"weights": blocks, "activations": activations, "ids": ids, "experts": (total, used)}
    outcome, output = n2.ask("mul_mat_id", kind, (tokens, n, k), tokens * used * n * 4, path=path, **given)
    assert isinstance(outcome, Answer)
    assert outcome.status == "ok", outcome.message
    chosen = exact.reshape(total, n, k)[ids]
    expected = np.einsum("tk,tunk->tun", activations.astype(np.float64), chosen)
    assert nmse(output.view(np.float32).reshape(expected.shape), expected) < 2e-4
    assert outcome.unwritten == 0


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_half_activations(n2: Conversation, kind: str) -> None:
    """ggml takes activations of the weights' own half type."""
    small = np.random.default_rng(4).integers(-8, 8, (M + N, K)).astype(np.float32)
    if kind == "f16":
        halves: NDArray[Any] = small.astype(np.float16)
    else:
        halves = (small.view(np.uint32) >> 16).astype(np.uint16)
    given = {"weights": halves[M:], "activations": halves[:M], "activation_type": kind}
    outcome, output = n2.ask("mul_mat", kind, (M, N, K), M * N * 4, **given)
    assert isinstance(outcome, Answer)
    assert outcome.status == "ok", outcome.message
    assert np.array_equal(output.view(np.float32).reshape(M, N), small[:M] @ small[M:].T)


@pytest.mark.parametrize("kind", ["q8_0", "q8_1", "q8_k"])
def test_quantize_gives_the_backends_codes(n2: Conversation, kind: str) -> None:
    """Each value is met to within half a step of its block; away from ties exactly so on any CPU."""
    activations = _activations(3)
    nbytes = 3 * n2.row_bytes(kind, K)
    outcome, output = n2.ask("quantize", kind, (3, 1, K), nbytes, activations=activations)
    assert isinstance(outcome, Answer)
    assert (outcome.status, outcome.unwritten, outcome.guard) == ("ok", 0, "")
    block, size = n2.block(kind)
    blocks = output.reshape(-1, size)
    if kind == "q8_k":
        scale = blocks[:, :4].copy().view(np.float32)
        codes = blocks[:, 4 : 4 + block].view(np.int8)
    else:
        scale = blocks[:, :2].copy().view(np.float16).astype(np.float32)
        codes = blocks[:, size - block :].view(np.int8)
    error = np.abs(codes * scale - activations.reshape(-1, block))
    assert (error <= np.abs(scale) * 0.57).all()
    assert np.abs(codes).max() == 127


def test_quantize_without_a_quantiser_is_unclaimed(n2: Conversation) -> None:
    given = {"activations": _activations(1)}
    outcome, _ = n2.ask("quantize", "iq2_xxs", (1, 1, K), n2.row_bytes("iq2_xxs", K), **given)
    assert isinstance(outcome, Answer)
    assert (outcome.status, outcome.claimed) == ("unclaimed", False)
    assert "from_float" in outcome.message


@pytest.mark.parametrize("kind", ["q4_0", "q8_0", "q4_k", "iq4_xs", "mxfp4"])
def test_dequantize_is_exact(n2: Conversation, problem: dict[str, Any], kind: str) -> None:
    blocks, values = problem[kind]
    outcome, output = n2.ask("dequantize", kind, (1, N, K), N * K * 4, weights=blocks)
    assert isinstance(outcome, Answer)
    assert (outcome.status, outcome.unwritten) == ("ok", 0)
    assert np.array_equal(output.view(np.float32).reshape(N, K), values.astype(np.float32))


def test_quantising_by_threads_gives_the_same_bytes(reference: Conversation) -> None:
    values = np.random.default_rng(5).standard_normal((7, 256), np.float32)
    nbytes = 7 * reference.row_bytes("iq2_xxs", 256)
    outputs = []
    for threads in (1, 2, 16):
        given = {"activations": values, "threads": threads}
        outcome, output = reference.ask("quantize_weights", "iq2_xxs", (1, 7, 256), nbytes, **given)
        assert isinstance(outcome, Answer)
        assert outcome.status == "ok", outcome.message
        outputs.append(output)
    assert np.array_equal(outputs[0], outputs[1])
    assert np.array_equal(outputs[0], outputs[2])


@pytest.mark.parametrize(
    ("cpu", "path", "kind", "claimed"),
    [
        ("neoverse-n2", "default", "iq4_xs", True),
        ("neoverse-n2", "repack", "q4_0", True),
        ("neoverse-n2", "repack", "f32", False),
        ("neoverse-n2", "kleidiai", "q4_0", True),
        ("neoverse-n2", "kleidiai", "q4_k", False),
        ("cortex-a53", "repack", "q4_0", False),
    ],
)
def test_claims(rig: Rig, cpu: str, path: str, kind: str, claimed: bool) -> None:
    with rig.arm(cpu) as conversation:
        outcome, _ = conversation.ask("claim", kind, (M, N, K), path=path)
    assert isinstance(outcome, Answer)
    assert (outcome.claimed, outcome.status) == (claimed, "ok" if claimed else "unclaimed")


def test_an_overread_of_the_pinned_tree_is_a_guard(rig: Rig, problem: dict[str, Any]) -> None:
    """At 512 bits the two-row Q4_K kernel loads whole vectors of a block's 32 last bytes."""
    with rig.arm(SVE512) as conversation:
        outcome, _ = conversation.product("q4_k", problem["q4_k"][0], _activations(8), N)
    assert isinstance(outcome, Crash)
    assert (outcome.signal, outcome.symbol) == (11, "ggml_vec_dot_q4_K_q8_K")
    assert outcome.guard == "read weights +0"


GOOD = Request(
    1, "mul_mat", "q4_0", (1, 8, 32), weights=Span(0, 144), activations=Span(192, 128), output=Span(320, 32)
)

MALFORMED = (
    ({"op": "divide"}, "unknown op 'divide'"),
    ({"weight_type": "q9_9"}, "not a type of this ggml"),
    ({"weight_type": "Q4_0"}, "not a type of this ggml"),
    ({"activation_type": "x"}, "not a type of this ggml"),
    ({"path": "scenic"}, "unknown path 'scenic'"),
    ({"shape": (0, 8, 32)}, "shape m must be a whole number"),
    ({"shape": (1, -8, 32)}, "shape n must be a whole number"),
    ({"shape": (1, 8, 33)}, "no multiple of the 32 elements"),
    ({"shape": (1 << 23, 1 << 23, 32)}, "more than 2^50 terms"),
    ({"threads": 0}, "threads must be"),
    ({"threads": 65}, "threads must be"),
    ({"repeat": 0}, "repeat must be"),
    ({"batch": (4, 1, 3, 1)}, "does not divide"),
    ({"experts": (4, 2)}, "not to mul_mat"),
    ({"op": "mul_mat_id"}, "needs experts"),
    ({"op": "mul_mat_id", "experts": (2, 3)}, "more experts used"),
    ({"row_stride": 100}, "cuts an activation row"),
    ({"row_stride": 130}, "cuts an activation row"),
    ({"weights": None}, "does not say where its weights lie"),
    ({"weights": Span(0, 143)}, "weights have 143 bytes, the request needs 144"),
    ({"weights": Span(1 << 39, 144)}, "weights lie outside the arena"),
    ({"weights": Span(ARENA_BYTES - 143, 144)}, "weights lie outside the arena"),
    ({"output": Span(0, 1 << 39)}, "output lie outside the arena"),
    ({"output": Span(320, 36)}, "output have 36 bytes"),
    ({"activations": Span(192, 129)}, "activations have 129 bytes"),
    ({"cell": -1}, "cell must be"),
    ({"fault": "nan"}, "unknown key 'fault'"),
)


@pytest.mark.parametrize(("change", "message"), MALFORMED, ids=[message for _, message in MALFORMED])
def test_malformed_requests_are_answered(n2: Conversation, change: dict[str, Any], message: str) -> None:
    """Each is answered with its reason, and the harness goes on working."""
    fields = {**GOOD.__dict__, **change}
    n2.session.submit(Request(**fields))
    answer = n2.session.receive(60)
    assert isinstance(answer, Answer)
    assert answer.status == "error"
    assert message in answer.message
    n2.session.submit(GOOD)
    after = n2.session.receive(60)
    assert isinstance(after, Answer)
    assert after.status == "ok"


def test_an_expert_that_is_not_there(n2: Conversation) -> None:
    given = {"weights": np.zeros((2, 8, 32), np.float32), "activations": np.zeros((1, 32), np.float32)}
    ids = np.array([[2]], np.int32)
    outcome, _ = n2.ask("mul_mat_id", "f32", (1, 8, 32), 32, ids=ids, experts=(2, 1), **given)
    assert isinstance(outcome, Answer)
    assert (outcome.status, outcome.message) == ("error", "expert 2 does not exist")
