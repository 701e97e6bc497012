# SPDX-License-Identifier: MIT
"""The GGUF reader: it agrees with the registry's reader; what it does not read is refused by name."""

from __future__ import annotations

import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf_files import BF16, F16, F32, LLAMA, Q4_0, Q8_0, Made, gguf_file, llama, text, value

from tierlab.errors import ModelFileError, UsageError
from tierlab.gguf.model import Model, file_sha256, open_model, raw_value


def written(tmp_path: Path, data: bytes, name: str = "m.gguf") -> Path:
    path = tmp_path / name
    path.write_bytes(data)
    return path


def opened(tmp_path: Path, data: bytes) -> Model:
    return open_model(written(tmp_path, data))


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("version", [2, 3])
def test_versions_and_byte_orders(tmp_path: Path, order: str, version: int) -> None:
    model = opened(tmp_path, llama(order=order, version=version))
    plain = opened(tmp_path, llama())
    assert (model.head.order, model.head.version) == (order, version)
    assert [(t.name, t.type, t.shape, t.offset, t.nbytes) for t in model.tensors] == [
        (t.name, t.type, t.shape, t.offset, t.nbytes) for t in plain.tensors
    ]
    assert {key: v.value for key, v in model.head.metadata.items()} == {
        key: v.value for key, v in plain.head.metadata.items()
    }
    assert model.items("llama.attention.head_count") == [4]


def test_agrees_with_the_registrys_reader(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(3)
    writer.add_custom_alignment(64)
    writer.add_token_list(["x" * (n % 7) for n in range(5000)])
    writer.add_token_scores([n / 3 for n in range(5000)])
    writer.add_array("flags", [True, False, True])
    writer.add_float64("third", 1 / 3)
    writer.add_int8("minus", -7)
    rng = np.random.default_rng(1)
    for name, shape, kind in [
        ("a", (4, 96), gguf.GGMLQuantizationType.Q4_0),
        ("b", (3, 5, 64), gguf.GGMLQuantizationType.Q8_0),
    ]:
        values = rng.standard_normal(shape, dtype=np.float32)
        writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.add_tensor("c", rng.standard_normal(7, dtype=np.float32))
    writer.add_tensor("d", rng.standard_normal((2, 3)).astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    model, reference = open_model(path), gguf.GGUFReader(path)
    ours = {t.name: (t.type.name, list(t.shape), t.offset, t.nbytes) for t in model.tensors}
    assert ours == {
        t.name: (t.tensor_type.name.lower(), t.shape.tolist(), t.data_offset, t.n_bytes)
        for t in reference.tensors
    }
    fields = {key: field for key, field in reference.fields.items() if not key.startswith("GGUF.")}
    assert fields.keys() == model.head.metadata.keys()
    for key, field in fields.items():
        found = model.head.metadata[key]
        if found.value is not None:
            assert found.value == field.contents()
        else:
            assert found.count == len(field.data)
    scores = model.head.metadata["tokenizer.ggml.scores"]
    stored = np.frombuffer(raw_value(model.head, scores), "<f4")
    np.testing.assert_array_equal(stored, reference.fields["tokenizer.ggml.scores"].contents())
    assert model.head.alignment == 64
    assert model.head.hole == 0


def test_digest_is_of_the_whole_file(tmp_path: Path) -> None:
    path = written(tmp_path, b"GGUF" + struct.pack("<IQQ", 3, 0, 0))
    model = open_model(path)
    assert model.tensors == ()
    # By coreutils' sha256sum.
    assert file_sha256(path) == "a4e5e156ddec27e286f75328784d7106b60a4eb1d246e950a001a3f944fbda99"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "the file is empty"),
        (b"GG", "no GGUF file"),
        (b"lmgg" + bytes(60), "unversioned GGML"),
        (b"fmgg\1\0\0\0" + bytes(60), "GGMF"),
        (b"tjgg\3\0\0\0" + bytes(60), "GGJT"),
        (b"algg" + bytes(60), "GGLA"),
        (b"FUGG" + bytes(60), "swapped"),
        (b"GGUF\1\0\0\0" + bytes(60), "GGUF version 1"),
        (b"GGUF\0\0\0\1" + bytes(60), "GGUF version 1"),
        (b"GGUF\4\0\0\0" + bytes(60), "GGUF version 4"),
        (b"GGUF\0\0\0\0" + bytes(60), "GGUF version 0"),
        (b"PK\3\4" + bytes(60), "zip archive"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
        (b"<!DOCTYPE html>", "error page"),
        (struct.pack("<Q", 40) + b'{"a":1}', "safetensors"),
        (b"\x7fELF" + bytes(60), "invoke scan"),
        (bytes(64), "begins with zeros"),
        (b"words", "no GGUF file"),
    ],
)
def test_what_is_refused_is_named(tmp_path: Path, data: bytes, said: str) -> None:
    with pytest.raises(ModelFileError, match=said) as error:
        opened(tmp_path, data)
    assert str(tmp_path) in str(error.value)


ONE = Made("a", F32, (8,))


def begun(keys: int) -> bytes:
    """A header that says it has so many keys and no tensors, up to the first key."""
    return b"GGUF" + struct.pack("<IQQ", 3, 0, keys)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (gguf_file({}, [Made("a", 31, (32,), b"")]), r"q4_0_4_4 \(31\), which ggml removed"),
        (gguf_file({}, [Made("a", 5, (32,), b"")]), "q4_3"),
        (gguf_file({}, [Made("a", 99, (32,), b"")]), "type 99, which ggml does not know"),
        (gguf_file({}, [ONE, ONE]), "stands there twice"),
        (gguf_file({}, [Made("a", Q4_0, (33,), b"")]), "no multiple of q4_0's 32"),
        (gguf_file({}, [Made("a", F32, (1,) * 5)]), "5 dimensions"),
        (gguf_file({}, [Made("a", F32, (2**40, 2**40), b"")]), "more than any file can hold"),
        (gguf_file({}, [Made("a", F32, (8,), offset=4)]), "against the alignment 32"),
        (gguf_file({}, [Made("a", F32, (8,), offset=1 << 40)]), "the file ends at"),
        (gguf_file({}, [ONE, Made("b", F32, (8,), offset=0)]), "in the place of tensor a"),
        (gguf_file({}, [ONE], counts=(1 << 60, 0)), "tensors are claimed"),
        (gguf_file({}, [ONE], counts=(2, 0)), "tensor 2"),
        (gguf_file({}, [], counts=(0, 1 << 60)), "metadata keys are claimed"),
        (gguf_file({"general.alignment": ("u32", 0)}), "power of two"),
        (gguf_file({"general.alignment": ("u32", 48)}), "power of two"),
        (gguf_file({"general.alignment": ("u64", 32)}), "power of two"),
        (gguf_file({"": ("u8", 1)}), "key 1 is empty"),
        (begun(2) + (text("k") + value("u8", 1)) * 2, "stands there twice"),
        (begun(1) + text("k") + struct.pack("<I", 13), "type 13, which does not exist"),
        (begun(1) + text("k") + struct.pack("<IIQ", 9, 9, 1), "array of arrays"),
        (begun(1) + text("k") + struct.pack("<IIQ", 9, 77, 1), "type 77"),
        (begun(1) + text("k") + struct.pack("<IIQ", 9, 8, 1 << 62), "cut or damaged"),
        (begun(1) + text("k") + struct.pack("<IQ", 8, 1 << 63), "claims"),
        (begun(1) + struct.pack("<Q", 1 << 63), "claims"),
    ],
)
def test_damage_is_told_with_its_place(tmp_path: Path, data: bytes, said: str) -> None:
    with pytest.raises(ModelFileError, match=said) as error:
        opened(tmp_path, data)
    assert "at byte" in str(error.value)


def test_a_hole_between_tensors_is_counted(tmp_path: Path) -> None:
    data = gguf_file({}, [ONE, Made("b", F32, (8,), offset=96)])
    assert opened(tmp_path, data + bytes(96)).head.hole == 64


def test_kinds_of_tensors_and_values(tmp_path: Path) -> None:
    long = "x" * 100_000
    metadata = {**LLAMA, "long": ("str", long), "heads": ("[i32]", [4, 2]), "name": ("str", b"\xff\x00ok")}
    model = opened(
        tmp_path, gguf_file(metadata, [Made("s", F16, ()), Made("e", BF16, (0, 4)), Made("q", Q8_0, (64, 2))])
    )
    assert [t.nbytes for t in model.tensors] == [2, 0, 136]
    assert model.items("heads") == [4, 2]
    assert model.items("general.architecture") is None
    assert model.head.metadata["long"].value is None
    assert raw_value(model.head, model.head.metadata["long"]) == long.encode()
    assert model.text("name") == "\ufffd\0ok"


def test_no_file_is_wrong_use(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        open_model(tmp_path / "absent.gguf")
    with pytest.raises(UsageError, match="a directory"):
        open_model(tmp_path)
    with pytest.raises(UsageError, match="no regular file"):
        open_model(Path("/dev/null"))
