# SPDX-License-Identifier: MIT
"""`invoke gguf diff`: the same weights, other weights, and what proves it; checkpoints and their
conversions."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import gguf as package
import numpy as np
import pytest
from gguf_files import BF16, F16, F32, LLAMA, Q4_0, Q8_0, Made, gguf_file
from safetensors.numpy import save_file

from tierlab.cli.gguf import Outputs, gguf
from tierlab.errors import ExitCode, ModelFileError, UsageError
from tierlab.gguf.compare import Outcome
from tierlab.gguf.data import CHUNK
from tierlab.gguf.diff import Answer, Diff, diff_checkpoints, diff_conversion, diff_models
from tierlab.gguf.model import open_model
from tierlab.gguf.safetensors_file import open_checkpoint

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Values = dict[str, np.ndarray]
WIDTH, HEADS, KEY_HEADS = 64, 4, 2
SHAPES = {
    "token_embd": (48, WIDTH),
    "output_norm": (WIDTH,),
    **{f"blk.0.{name}_norm": (WIDTH,) for name in ("attn", "ffn")},
    **{
        f"blk.0.{name}": (WIDTH, WIDTH)
        for name in ("attn_q", "attn_output", "ffn_up", "ffn_gate", "ffn_down")
    },
    **{f"blk.0.{name}": (WIDTH // 2, WIDTH) for name in ("attn_k", "attn_v")},
}


def weights(seed: int = 1) -> Values:
    """GGUF name (without `.weight`) → float32 values, the last dimension the row."""
    rng = np.random.default_rng(seed)
    made = {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in SHAPES.items()}
    return {name: 1 + x / 8 if "norm" in name else x for name, x in made.items()}


def bf16(x: np.ndarray) -> np.ndarray:
    """float32 rounded to bfloat16, as the 16-bit patterns."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def encoded(x: np.ndarray, kind: int, order: str = "<") -> bytes:
    if kind == BF16:
        return bf16(x).astype(f"{order}u2").tobytes()
    if kind in (F32, F16):
        return x.astype(f"{order}f{4 if kind == F32 else 2}").tobytes()
    return package.quants.quantize(x, package.GGMLQuantizationType(kind)).tobytes()


def model(
    tmp_path: Path,
    values: Values,
    kind: int = Q4_0,
    *,
    norms: int = F32,
    name: str = "m.gguf",
    metadata: Mapping[str, tuple[str, Any]] = LLAMA,
    order: str = "<",
) -> Path:
    """A GGUF of the values: matrices as `kind`, vectors as `norms`."""
    tensors = []
    for key, x in values.items():
        this = kind if x.ndim > 1 else norms
        tensors.append(Made(f"{key}.weight", this, x.shape[::-1], encoded(x, this, order)))
    path = tmp_path / name
    path.write_bytes(gguf_file(metadata, tensors, order=order))
    return path


def diffed(a: Path, b: Path) -> Diff:
    return diff_models(open_model(a), open_model(b))


def outcomes(found: Diff) -> dict[str, Outcome | None]:
    return {pair.name.removesuffix(".weight"): pair.outcome for pair in found.pairs}


def test_a_copy(tmp_path: Path) -> None:
    found = diffed(model(tmp_path, weights()), model(tmp_path, weights(), name="b.gguf"))
    assert found.answer is Answer.SAME
    assert found.verdict == "same weights, byte for byte"
    assert all(pair.identical for pair in found.pairs)
    assert found.exit_code == ExitCode.AS_EXPECTED


@pytest.mark.parametrize(("a", "b"), [(Q4_0, Q8_0), (F16, Q4_0), (Q8_0, BF16), (3, 6), (7, Q4_0)])
def test_other_types_of_the_same_weights(tmp_path: Path, a: int, b: int) -> None:
    found = diffed(model(tmp_path, weights(), a), model(tmp_path, weights(), b, name="b.gguf"))
    assert found.verdict.startswith("same weights, other quantiser: 3 float tensors agree, 8 others")
    assert set(outcomes(found).values()) == {Outcome.EQUAL, Outcome.EXPLAINED}
    assert set(found.proofs) == {"output_norm.weight", "blk.0.attn_norm.weight", "blk.0.ffn_norm.weight"}
    # Nearest-code quantisers leave room, and not much: the limit is no barn door.
    used = [pair.distance.used for pair in found.pairs if pair.outcome is Outcome.EXPLAINED and pair.distance]
    assert 0.3 < min(used) < max(used) < 0.75


@pytest.mark.parametrize("change", [0.3, 1.0])
def test_other_weights_of_a_quantised_tensor_show(tmp_path: Path, change: float) -> None:
    """An adapter that was merged changes no norm: the quantised tensors themselves must tell."""
    other = weights()
    noise = np.random.default_rng(5).standard_normal(SHAPES["blk.0.attn_v"], dtype=np.float32)
    other["blk.0.attn_v"] = other["blk.0.attn_v"] + np.float32(change) * noise
    found = diffed(model(tmp_path, weights()), model(tmp_path, other, Q8_0, name="b.gguf"))
    assert found.answer is Answer.NOT_SAME
    assert found.proofs == ("blk.0.attn_v.weight",)
    assert found.exit_code == ExitCode.UNEXPECTED


def test_a_float_tensor_decides(tmp_path: Path) -> None:
    other = weights()
    other["blk.0.ffn_norm"] = other["blk.0.ffn_norm"].copy()
    other["blk.0.ffn_norm"][17] = np.nextafter(other["blk.0.ffn_norm"][17], np.float32(9))
    found = diffed(model(tmp_path, weights()), model(tmp_path, other, name="b.gguf"))
    assert found.verdict == "not the same weights: 1 float tensors differ, which no quantiser touches"
    assert found.proofs == ("blk.0.ffn_norm.weight",)
    (pair,) = (pair for pair in found.pairs if pair.name in found.proofs)
    assert pair.distance is not None
    assert (pair.distance.equal, pair.distance.count) == (63, 64)
    assert 0.999 < pair.distance.correlation < 1


def test_another_model_of_the_same_shape(tmp_path: Path) -> None:
    found = diffed(model(tmp_path, weights()), model(tmp_path, weights(2), name="b.gguf"))
    assert found.answer is Answer.NOT_SAME
    assert len(found.proofs) == 3
    correlations = [pair.distance.correlation for pair in found.pairs if pair.distance is not None]
    assert max(abs(value) for value in correlations) < 0.5


@pytest.mark.parametrize(
    ("a", "b", "values"),
    [
        (F32, F16, Outcome.ROUNDED),
        (F32, BF16, Outcome.ROUNDED),
        (F16, BF16, Outcome.ROUNDED),
        (F32, F32, Outcome.EQUAL),
    ],
)
def test_float_types(tmp_path: Path, a: int, b: int, values: Outcome) -> None:
    found = diffed(
        model(tmp_path, weights(), a, norms=a), model(tmp_path, weights(), b, norms=b, name="b.gguf")
    )
    assert found.answer is Answer.SAME
    assert set(outcomes(found).values()) == {values}


@pytest.mark.parametrize(("a", "b"), [(F32, F16), (F32, BF16)])
def test_more_than_rounding_between_float_types_shows(tmp_path: Path, a: int, b: int) -> None:
    other = weights()
    # Two places of the narrower type.
    other["output_norm"] = other["output_norm"] * np.float32(1 + (2**-9 if b == F16 else 2**-6))
    found = diffed(model(tmp_path, weights(), a, norms=a), model(tmp_path, other, b, norms=b, name="b.gguf"))
    assert found.proofs == ("output_norm.weight",)


def test_values_that_bfloat16_holds_are_equal_in_float32(tmp_path: Path) -> None:
    exact = {name: (bf16(x).astype(np.uint32) << 16).view(np.float32) for name, x in weights().items()}
    found = diffed(model(tmp_path, exact, BF16, norms=BF16), model(tmp_path, exact, F32, name="b.gguf"))
    assert found.verdict == "same weights, every value equal"


def test_without_a_float_tensor_nothing_decides(tmp_path: Path) -> None:
    matrices = {name: x for name, x in weights().items() if x.ndim > 1}
    found = diffed(model(tmp_path, matrices), model(tmp_path, matrices, Q8_0, name="b.gguf"))
    assert found.answer is Answer.OPEN
    assert found.exit_code == ExitCode.UNDETERMINED
    constant = {**matrices, "output_norm": np.ones(WIDTH, np.float32)}
    found = diffed(model(tmp_path, constant), model(tmp_path, constant, Q8_0, name="b.gguf"))
    assert found.answer is Answer.OPEN
    assert diffed(model(tmp_path, {}), model(tmp_path, {}, name="b.gguf")).answer is Answer.OPEN


def test_shapes_and_tensors_only_in_one(tmp_path: Path) -> None:
    fewer, wider = weights(), weights()
    del fewer["blk.0.ffn_up"]
    wider["token_embd"] = np.concatenate([wider["token_embd"], wider["token_embd"]])
    a = model(tmp_path, weights())
    found = diffed(a, model(tmp_path, fewer, name="b.gguf"))
    assert (found.answer, found.only) == (Answer.OTHER_MODEL, (("blk.0.ffn_up.weight",), ()))
    found = diffed(a, model(tmp_path, wider, name="b.gguf"))
    assert (found.answer, found.proofs) == (Answer.OTHER_MODEL, ("token_embd.weight",))


def test_a_tied_output_written_out(tmp_path: Path) -> None:
    written = {**weights(), "output": weights()["token_embd"]}
    for one, other in ((weights(), written), (written, weights())):
        assert diffed(model(tmp_path, one), model(tmp_path, other, name="b.gguf")).answer is Answer.SAME
    written["output"] = weights(3)["token_embd"]
    found = diffed(model(tmp_path, weights()), model(tmp_path, written, name="b.gguf"))
    assert found.proofs == ("output.weight",)


def test_nan_and_infinity(tmp_path: Path) -> None:
    odd, other = weights(), weights()
    odd["output_norm"] = odd["output_norm"].copy()
    odd["output_norm"][:3] = [np.nan, np.inf, -np.inf]
    assert diffed(model(tmp_path, odd), model(tmp_path, odd, Q8_0, name="b.gguf")).answer is Answer.SAME
    found = diffed(model(tmp_path, odd), model(tmp_path, other, name="b.gguf"))
    assert found.proofs == ("output_norm.weight",)


def test_byte_order_does_not_count(tmp_path: Path) -> None:
    for kind in (F32, F16, BF16):
        a, b = model(tmp_path, weights(), kind), model(tmp_path, weights(), kind, order=">", name="b.gguf")
        found = diffed(a, b)
        assert found.verdict == "same weights, every value equal"
        assert found.metadata is not None
        assert (found.metadata.changes, found.metadata.same_tokenizer) == ((), True)


def test_blocks_of_a_big_endian_file(tmp_path: Path) -> None:
    """The scale of each block, a 16-bit number, is the other way round there."""
    little = model(tmp_path, weights(), Q8_0)
    tensors = []
    for name, x in weights().items():
        data = bytearray(encoded(x, Q8_0 if x.ndim > 1 else F32, ">"))
        if x.ndim > 1:
            data[0::34], data[1::34] = data[1::34], data[0::34]
        tensors.append(Made(f"{name}.weight", Q8_0 if x.ndim > 1 else F32, x.shape[::-1], bytes(data)))
    big = tmp_path / "big.gguf"
    big.write_bytes(gguf_file(LLAMA, tensors, order=">"))
    assert diffed(little, big).verdict == "same weights, every value equal"


def test_values_of_odd_types_in_a_big_endian_file_are_not_read(tmp_path: Path) -> None:
    found = diffed(model(tmp_path, weights(), 6), model(tmp_path, weights(), 6, order=">", name="b.gguf"))
    assert found.answer is Answer.OPEN
    assert len(found.proofs) == 8


def test_a_tensor_larger_than_a_piece(tmp_path: Path) -> None:
    rng = np.random.default_rng(9)
    values = {
        "blk.0.ffn_up": rng.standard_normal((3, CHUNK // 2 + 256), dtype=np.float32),
        "output_norm": weights()["output_norm"],
    }
    other = {name: x.copy() for name, x in values.items()}
    other["blk.0.ffn_up"][2, -1] += 1
    a = model(tmp_path, values, F32)
    assert diffed(a, model(tmp_path, values, F32, name="b.gguf")).answer is Answer.SAME
    found = diffed(a, model(tmp_path, other, F32, name="b.gguf"))
    assert found.proofs == ("blk.0.ffn_up.weight",)


def test_metadata_and_tokenizer(tmp_path: Path) -> None:
    changed = {
        **LLAMA,
        "general.file_type": ("u32", 7),
        "tokenizer.ggml.tokens": ("[str]", ["a", "bc", "x", "def"]),
        "new": ("f32", float("nan")),
    }
    del changed["llama.block_count"]
    a, b = model(tmp_path, weights()), model(tmp_path, weights(), metadata=changed, name="b.gguf")
    found = diffed(a, b)
    assert found.metadata is not None
    told = {change.key: (change.a, change.b) for change in found.metadata.changes}
    assert told == {
        "general.file_type": ("2", "7"),
        "llama.block_count": ("1", ""),
        "tokenizer.ggml.tokens": ("arr[str], 4 items", "arr[str], 4 items, differs from item 2 on"),
        "new": ("", "nan"),
    }
    assert found.verdict.endswith("; other tokenizer")
    assert (found.answer, found.exit_code) == (Answer.SAME, ExitCode.UNEXPECTED)
    # A template is no part of the tokenizer.
    template = {**LLAMA, "tokenizer.chat_template": ("str", "{{ other }}")}
    found = diffed(a, model(tmp_path, weights(), metadata=template, name="b.gguf"))
    assert found.metadata is not None
    assert (found.metadata.same_tokenizer, found.exit_code) == (True, ExitCode.AS_EXPECTED)


# Checkpoints ----------------------------------------------------------------------------------------

HUGGING_FACE = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    **{
        f"blk.0.{ours}": f"model.layers.0.{theirs}"
        for ours, theirs in {
            "attn_norm": "input_layernorm",
            "ffn_norm": "post_attention_layernorm",
            "attn_q": "self_attn.q_proj",
            "attn_k": "self_attn.k_proj",
            "attn_v": "self_attn.v_proj",
            "attn_output": "self_attn.o_proj",
            "ffn_up": "mlp.up_proj",
            "ffn_gate": "mlp.gate_proj",
            "ffn_down": "mlp.down_proj",
        }.items()
    },
}


def unpermuted(x: np.ndarray, heads: int) -> np.ndarray:
    """The inverse of what a converter does: pairs of neighbours back to two halves."""
    return x.reshape(heads, x.shape[0] // heads // 2, 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def checkpoint(
    tmp_path: Path, values: Values, *, permute: bool = True, bits: str = "F32", name: str = "m.safetensors"
) -> Path:
    """The values as Hugging Face's code holds them, in one file of the element type `bits`."""
    tensors = {}
    for key, x in values.items():
        heads = {"blk.0.attn_q": HEADS, "blk.0.attn_k": KEY_HEADS}.get(key) if permute else None
        tensors[f"{HUGGING_FACE.get(key, key)}.weight"] = unpermuted(x, heads) if heads else x
    path = tmp_path / name
    if bits != "BF16":
        save_file(
            {
                key: np.ascontiguousarray(x, np.float16 if bits == "F16" else np.float32)
                for key, x in tensors.items()
            },
            path,
        )
        return path
    header, data = {}, b""
    for key, x in tensors.items():
        piece = bf16(x).tobytes()
        header[key] = {
            "dtype": "BF16",
            "shape": list(x.shape),
            "data_offsets": [len(data), len(data) + len(piece)],
        }
        data += piece
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def converted(a: Path, b: Path) -> Diff:
    return diff_conversion(open_checkpoint(a), open_model(b))


@pytest.mark.parametrize("bits", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("kind", [F32, F16, BF16, Q4_0, Q8_0])
def test_a_faithful_conversion(tmp_path: Path, bits: str, kind: int) -> None:
    found = converted(checkpoint(tmp_path, weights(), bits=bits), model(tmp_path, weights(), kind))
    assert found.verdict.startswith("a faithful conversion: same weights"), found.verdict
    assert len(found.pairs) == len(SHAPES)
    ways = {pair.name for pair in found.pairs if pair.conversion == "rows permuted for rope"}
    assert ways == {"blk.0.attn_q.weight", "blk.0.attn_k.weight"}
    assert found.exit_code == ExitCode.AS_EXPECTED


@pytest.mark.parametrize("kind", [F32, Q4_0])
def test_rows_that_were_not_permuted_are_a_finding(tmp_path: Path, kind: int) -> None:
    found = converted(checkpoint(tmp_path, weights(), permute=False), model(tmp_path, weights(), kind))
    assert found.verdict.startswith("not a faithful conversion")
    assert "not in the order that the architecture needs" in found.verdict
    assert found.proofs == ("blk.0.attn_q.weight", "blk.0.attn_k.weight")


def test_other_architectures_keep_their_rows(tmp_path: Path) -> None:
    metadata = {key.replace("llama.", "qwen2."): value for key, value in LLAMA.items()}
    metadata["general.architecture"] = ("str", "qwen2")
    found = converted(
        checkpoint(tmp_path, weights(), permute=False), model(tmp_path, weights(), F32, metadata=metadata)
    )
    assert found.verdict == "a faithful conversion: same weights, every value equal"
    assert {pair.conversion for pair in found.pairs} == {"as it is"}


def test_an_unfaithful_conversion_is_proved_by_its_norms(tmp_path: Path) -> None:
    other = {**weights(), "blk.0.attn_norm": weights(2)["blk.0.attn_norm"]}
    found = converted(checkpoint(tmp_path, weights()), model(tmp_path, other))
    assert found.verdict.startswith("not a faithful conversion: not the same weights: 1 float")
    assert found.proofs == ("blk.0.attn_norm.weight",)


def test_gemma_norms_are_stored_less_one(tmp_path: Path) -> None:
    metadata = {key.replace("llama.", "gemma."): value for key, value in LLAMA.items()}
    metadata["general.architecture"] = ("str", "gemma")
    source = {name: x - 1 if "norm" in name else x for name, x in weights().items()}
    # A converter adds one in float32, so what it writes is rounded once more.
    target = {name: x + np.float32(1) if "norm" in name else x for name, x in source.items()}
    found = converted(
        checkpoint(tmp_path, source, permute=False), model(tmp_path, target, F32, metadata=metadata)
    )
    assert found.answer is Answer.SAME, found.verdict
    assert {pair.conversion for pair in found.pairs if "norm" in pair.name} == {"plus one"}


def test_transposed_matrices(tmp_path: Path) -> None:
    metadata = {key.replace("llama.", "gpt2."): value for key, value in LLAMA.items()}
    metadata["general.architecture"] = ("str", "gpt2")
    values = {"blk.0.ffn_up": weights()["blk.0.attn_v"], "output_norm": weights()["output_norm"]}
    path = tmp_path / "m.safetensors"
    save_file(
        {
            "h.0.mlp.c_fc.weight": np.ascontiguousarray(values["blk.0.ffn_up"].T),
            "ln_f.weight": values["output_norm"],
        },
        path,
    )
    found = converted(path, model(tmp_path, values, F32, metadata=metadata))
    assert found.verdict == "a faithful conversion: same weights, every value equal"
    assert {pair.conversion for pair in found.pairs} == {"transposed", "as it is"}


def test_experts_are_stacked(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    experts = rng.standard_normal((4, 32, WIDTH), dtype=np.float32)
    values = {"blk.0.ffn_gate_exps": experts, "output_norm": weights()["output_norm"]}
    path = tmp_path / "m.safetensors"
    tensors = {f"model.layers.0.block_sparse_moe.experts.{n}.w1.weight": experts[n] for n in range(4)}
    save_file({**tensors, "model.norm.weight": values["output_norm"]}, path)
    target = model(tmp_path, values, Q8_0)
    assert converted(path, target).answer is Answer.SAME
    tensors["model.layers.0.block_sparse_moe.experts.1.w1.weight"] = experts[2]
    save_file({**tensors, "model.norm.weight": values["output_norm"]}, path)
    assert converted(path, target).proofs == ("blk.0.ffn_gate_exps.weight",)


def test_tied_checkpoints(tmp_path: Path) -> None:
    both = {**weights(), "output": weights()["token_embd"]}
    assert converted(checkpoint(tmp_path, both), model(tmp_path, weights())).answer is Answer.SAME
    assert converted(checkpoint(tmp_path, weights()), model(tmp_path, both)).answer is Answer.SAME


def test_what_has_no_counterpart_is_named(tmp_path: Path) -> None:
    more = {**weights(), "model.layers.0.self_attn.strange": np.ones(4, np.float32)}
    found = converted(checkpoint(tmp_path, more), model(tmp_path, weights()))
    assert (found.answer, found.only) == (
        Answer.OTHER_MODEL,
        (("model.layers.0.self_attn.strange.weight",), ()),
    )
    frequencies = {**weights(), "rope_freqs": np.ones(8, np.float32)}
    assert converted(checkpoint(tmp_path, weights()), model(tmp_path, frequencies)).answer is Answer.SAME
    buffer = {"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(4, np.float32)}
    save_file({**buffer, "model.norm.weight": weights()["output_norm"]}, tmp_path / "b.safetensors")
    norm = {"output_norm": weights()["output_norm"]}
    assert converted(tmp_path / "b.safetensors", model(tmp_path, norm)).answer is Answer.SAME


def test_shards_and_folders(tmp_path: Path) -> None:
    values = weights()
    names = list(values)
    parts = {"model-00001-of-00002.safetensors": names[:5], "model-00002-of-00002.safetensors": names[5:]}
    index = {}
    for file, keys in parts.items():
        checkpoint(tmp_path, {key: values[key] for key in keys}, name=file)
        index |= {f"{HUGGING_FACE[key]}.weight": file for key in keys}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    target = model(tmp_path, values)
    for path in (tmp_path, tmp_path / "model.safetensors.index.json"):
        assert converted(path, target).answer is Answer.SAME
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(ModelFileError, match="not beside it"):
        open_checkpoint(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text("[]")
    with pytest.raises(ModelFileError, match="no index"):
        open_checkpoint(tmp_path)


def test_two_checkpoints(tmp_path: Path) -> None:
    a = open_checkpoint(checkpoint(tmp_path, weights()))
    b = open_checkpoint(checkpoint(tmp_path, weights(), bits="BF16", name="b.safetensors"))
    assert diff_checkpoints(a, b).answer is Answer.SAME
    c = open_checkpoint(checkpoint(tmp_path, weights(2), name="c.safetensors"))
    assert diff_checkpoints(a, c).answer is Answer.NOT_SAME


@pytest.mark.parametrize("damage", [0, 4, 8, 20, -1])
def test_damaged_checkpoints(tmp_path: Path, damage: int) -> None:
    path = checkpoint(tmp_path, weights())
    path.write_bytes(path.read_bytes()[:damage])
    with pytest.raises(ModelFileError, match="no sound safetensors file"):
        open_checkpoint(path)


def test_checkpoints_that_are_not_read(tmp_path: Path) -> None:
    text = json.dumps({"a": {"dtype": "F8_E4M3", "shape": [4], "data_offsets": [0, 4]}}).encode()
    path = tmp_path / "m.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(4))
    with pytest.raises(ModelFileError, match="F8_E4M3"):
        open_checkpoint(path)
    with pytest.raises(UsageError, match="no such file"):
        open_checkpoint(tmp_path / "absent.safetensors")
    strange = model(tmp_path, weights(), metadata={**LLAMA, "general.architecture": ("str", "strange")})
    with pytest.raises(ModelFileError, match="'strange'"):
        converted(checkpoint(tmp_path, weights()), strange)


def test_a_file_that_shrinks_while_it_is_read(tmp_path: Path) -> None:
    a, b = open_model(model(tmp_path, weights())), open_model(model(tmp_path, weights(), name="b.gguf"))
    data = (tmp_path / "b.gguf").read_bytes()
    (tmp_path / "b.gguf").write_bytes(data[:-100])
    with pytest.raises(ModelFileError, match="shorter"):
        diff_models(a, b)


# The task -------------------------------------------------------------------------------------------


def test_the_task(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = model(tmp_path, weights()), model(tmp_path, weights(2), name="b.gguf")
    c = checkpoint(tmp_path, weights())

    def run(*words: Path | str, **outputs: str) -> ExitCode:
        return gguf([str(word) for word in words], [], Outputs(**outputs), True)

    assert run("diff", a, a) == ExitCode.AS_EXPECTED
    assert (
        run("diff", a, b, json=str(tmp_path / "o.json"), markdown=str(tmp_path / "o.md"))
        == ExitCode.UNEXPECTED
    )
    data = json.loads((tmp_path / "o.json").read_text())
    assert data["answer"] == "not the same weights"
    assert len(data["tensors"]) == len(SHAPES)
    text = (tmp_path / "o.md").read_text()
    assert text in capsys.readouterr().out
    assert text.startswith("# not the same weights: 3 float tensors differ")
    # Either side may be the checkpoint.
    for words in ((a, c), (c, a)):
        assert run("diff", *words) == ExitCode.AS_EXPECTED
        assert "# a faithful conversion" in capsys.readouterr().out
    for wrong in (("diff", a), ("diff", a, b, c), ("diff",)):
        with pytest.raises(UsageError, match="compares two models"):
            run(*wrong)
    with pytest.raises(UsageError, match="neither --require nor"):
        gguf(["diff", str(a), str(b)], ["ffn>=1% q4_0"], Outputs(), True)
    (tmp_path / "cut.gguf").write_bytes(a.read_bytes()[:-40])
    with pytest.raises(ModelFileError, match="cut or damaged"):
        run("diff", a, tmp_path / "cut.gguf")


def test_a_pair_is_judged_by_its_values_alone(tmp_path: Path) -> None:
    (pair, *_) = diffed(model(tmp_path, weights()), model(tmp_path, weights(), name="b.gguf")).pairs
    assert not replace(pair, outcome=Outcome.DIFFERENT, computed=True).wrong
    assert replace(pair, outcome=Outcome.DIFFERENT, computed=True).unread
    assert replace(pair, outcome=Outcome.DIFFERENT).wrong
