# SPDX-License-Identifier: MIT
"""The census: roles, tied embeddings, labels that are true or false, requirements, split models, the task."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from gguf_files import (
    F16,
    F32,
    IQ4_NL,
    IQ4_XS,
    LLAMA,
    Q4_0,
    Q4_K,
    Q5_0,
    Q6_K,
    Q8_0,
    Made,
    gguf_file,
    layer,
    llama,
)

from tierlab.cli.file_arguments import with_file_options
from tierlab.cli.gguf import Outputs, gguf
from tierlab.errors import ExitCode, ModelFileError, UsageError
from tierlab.gguf.census import Census, census
from tierlab.gguf.model import open_model, open_models
from tierlab.gguf.require import judge, parse_requirement
from tierlab.gguf.roles import multiplied, role
from tierlab.gguf.types import label_in_name, promised_types

if TYPE_CHECKING:
    from pathlib import Path


def counted(tmp_path: Path, data: bytes, name: str = "model.gguf") -> Census:
    path = tmp_path / name
    path.write_bytes(data)
    return census(open_model(path))


def test_types_and_roles(tmp_path: Path) -> None:
    found = counted(tmp_path, llama())
    assert {kind: (count.tensors, count.nbytes) for kind, count in found.types.items()} == {
        "q4_0": (7, 7 * 32 * 36),
        "q8_0": (1, 32 * 68),
        "f32": (3, 3 * 256),
    }
    assert {kind: sum(c.tensors for c in counts.values()) for kind, counts in found.roles.items()} == {
        "attention": 4,
        "ffn": 3,
        "embedding and output": 1,
        "norms and biases": 3,
    }
    assert found.tied
    assert found.architecture == "llama"


@pytest.mark.parametrize(
    ("name", "shape", "wanted", "by_matmul"),
    [
        ("blk.0.attn_q.weight", (64, 64), "attention", True),
        ("blk.0.attn_q.bias", (64,), "norms and biases", False),
        ("blk.0.attn_q_norm.weight", (64,), "norms and biases", False),
        ("blk.10.ffn_down_exps.weight", (64, 64, 8), "experts", True),
        ("blk.10.ffn_up_shexp.weight", (64, 64), "experts", True),
        ("blk.10.ffn_gate_inp.weight", (64, 8), "experts", True),
        ("blk.1.ffn_up.weight", (64, 64), "ffn", True),
        ("output.weight", (64, 100), "embedding and output", True),
        ("token_embd.weight", (64, 100), "embedding and output", False),
        ("output_norm.weight", (64,), "norms and biases", False),
        ("rope_freqs.weight", (32,), "norms and biases", False),
        ("blk.3.ssm_in.weight", (64, 64), "other", True),
        ("blk.3.ssm_conv1d.weight", (4, 64), "other", False),
        ("enc.blk.0.attn_k.weight", (64, 64), "attention", True),
        ("blk.0.attn_output.weight", (64, 64), "attention", True),
    ],
)
def test_role_of(tmp_path: Path, name: str, shape: tuple[int, ...], wanted: str, by_matmul: bool) -> None:
    tensor = counted(tmp_path, gguf_file({}, [Made(name, F32, shape)])).model.tensors[0]
    assert (role(tensor), multiplied(tensor, is_tied=False)) == (wanted, by_matmul)


def test_an_output_matrix_or_an_architecture_without_one_is_not_tied(tmp_path: Path) -> None:
    embedding, output = Made("token_embd.weight", F16, (64, 32)), Made("output.weight", F16, (64, 32))
    assert not counted(tmp_path, gguf_file(LLAMA, [embedding, output])).tied
    assert counted(tmp_path, gguf_file(LLAMA, [embedding])).tied
    bert = {**LLAMA, "general.architecture": ("str", "bert")}
    assert not counted(tmp_path, gguf_file(bert, [embedding])).tied


@pytest.mark.parametrize(
    ("stem", "label"),
    [
        ("SmolLM2-135M-Instruct.Q4_1", "q4_1"),
        ("model-IQ4_XS", "iq4_xs"),
        ("Llama-3-8B-UD-Q4_K_XL", "q4_k_xl"),
        ("x-q4_k_m-f16", "f16"),
        ("gpt-oss-20b-mxfp4", "mxfp4"),
        ("m.Q4_0_4_4", "q4_0_4_4"),
        ("ggml-model-bf16", "bf16"),
        ("q05", ""),
        ("Meta-Llama-3-8B", ""),
        ("fp16_thing", "f16"),
    ],
)
def test_label_in_a_name(stem: str, label: str) -> None:
    assert label_in_name(stem) == label


@pytest.mark.parametrize(
    ("label", "types"),
    [
        ("q4_k_m", ("q4_k",)),
        ("q4_k_xl", ("q4_k",)),
        ("iq3_xs", ("iq3_s", "iq3_xxs")),
        ("iq2_s", ("iq2_xs",)),
        ("q2_k_s", ("q2_k",)),
        ("q3_k_l", ("q3_k",)),
        ("iq4_xs", ("iq4_xs",)),
        ("f32", ("f32",)),
        ("mxfp4_moe", ("mxfp4",)),
        ("q4_0_4_4", ()),
        ("number 77", ()),
    ],
)
def test_types_that_a_label_promises(label: str, types: tuple[str, ...]) -> None:
    assert promised_types(label) == types


@pytest.mark.parametrize(
    ("name", "label", "kind", "lies"),
    [
        ("m.gguf", 2, Q4_0, []),
        ("m-Q4_0.gguf", 2, Q4_0, []),
        ("m-Q8_0.gguf", 2, Q4_0, ["file name"]),
        ("m-Q4_0.gguf", 7, Q4_0, ["general.file_type"]),
        ("m-IQ4_XS.gguf", 30, Q8_0, ["file name", "general.file_type"]),
        ("m-Q4_0.gguf", None, Q4_0, []),
        # Numbers and names of nothing known are told and judged by nobody.
        ("m.gguf", 4000, Q4_0, []),
    ],
)
def test_a_false_label_is_called_out(
    tmp_path: Path, name: str, label: int | None, kind: int, lies: list[str]
) -> None:
    found = counted(tmp_path, llama(kind, 64, label), name)
    assert [wrong.source for wrong in found.lies] == lies


def test_a_label_needs_most_of_the_weights_and_not_just_some(tmp_path: Path) -> None:
    # One layer as promised, two of another type.
    tensors = [*layer(Q4_0), *layer(Q8_0, number=1), *layer(Q8_0, number=2)]
    (label,) = counted(tmp_path, gguf_file(LLAMA, tensors)).labels
    assert (label.main, label.holds) == ("q8_0", False)
    assert label.share == pytest.approx(18 / (18 + 2 * 34))


@pytest.mark.parametrize(
    ("label", "kind", "row", "number"),
    [(30, IQ4_NL, 64, 7), (15, Q5_0, 64, 7), (2, Q4_0, 64, 0), (30, IQ4_XS, 256, 0), (15, Q4_K, 256, 0)],
)
def test_fallbacks(tmp_path: Path, label: int, kind: int, row: int, number: int) -> None:
    found = counted(tmp_path, gguf_file({**LLAMA, "general.file_type": ("u32", label)}, layer(kind, row)))
    assert len(found.fallbacks) == number


def test_rows_of_256_do_not_fall_back(tmp_path: Path) -> None:
    tensors = [
        *layer(Q4_K, 256),
        Made("token_embd.weight", Q8_0, (64, 32)),
        Made("output.weight", Q6_K, (256, 32)),
    ]
    found = counted(tmp_path, gguf_file({**LLAMA, "general.file_type": ("u32", 15)}, tensors))
    assert [tensor.name for tensor in found.fallbacks] == ["token_embd.weight"]


# The body holds 7 × 32 × 36 bytes of q4_0; with the embedding (32 × 68 of q8_0) a matmul takes 10240 bytes.
@pytest.mark.parametrize(
    ("text", "met"),
    [
        ("ffn>=90% q4_0", True),
        (" FFN >= 100 %  Q4_0 ", True),
        ("ffn>100% q4_0", False),
        ("matmul>=78.75% q4_0", True),
        ("matmul>=78.7501% q4_0", False),
        ("matmul=78.75% q4_0", True),
        ("matmul<78.75% q4_0", False),
        ("matmul<=78.75%q4_0", True),
        ("matmul=100% q4_0|q8_0", True),
        ("matmul = 100% q4_0 | q8_0", True),
        ("all<1% q6_k", True),
        ("embedding=100% q8_0", True),
        ("attention>=1% iq4_xs", False),
        ("norms=100% f32", True),
        # Nothing is no evidence, whatever is asked of it.
        ("experts<=5% f32", False),
        ("other<=5% f32", False),
    ],
)
def test_requirements(tmp_path: Path, text: str, met: bool) -> None:
    assert judge(parse_requirement(text), counted(tmp_path, llama())).met is met


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not understood"),
        ("ffn", "not understood"),
        ("ffn>=90 iq4_xs", "not understood"),
        ("ffn=>90% iq4_xs", "not understood"),
        ("ffn>=90% ", "not understood"),
        ("ffn>=-1% q4_0", "not understood"),
        ("ffn>=90% q4_0,q8_0", "not understood"),
        ("fnn>=90% q4_0", "did you mean 'ffn'"),
        ("ffn>=90% iq4xs", "did you mean 'iq4_xs'"),
        ("ffn>=101% q4_0", "no share"),
        ("ffn>=1.23456% q4_0", "no share"),
        ("ffn>=99999999999999999999% q4_0", "no share"),
    ],
)
def test_grammar_of_requirements(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as error:
        parse_requirement(text)
    assert error.value.exit_code == ExitCode.WRONG_USE


# Split models ---------------------------------------------------------------------------------------


def split(tmp_path: Path, stem: str = "m-Q4_0", **changes: dict[str, tuple[str, object]]) -> list[Path]:
    """A model of three parts: two layers and an embedding. `p1=` changes the metadata of part 1."""
    parts = [layer(Q4_0), layer(Q4_0, number=1), [Made("token_embd.weight", Q8_0, (64, 32))]]
    paths = []
    for index, tensors in enumerate(parts):
        metadata = {
            **(LLAMA if index == 0 else {}),
            "split.no": ("u16", index),
            "split.count": ("u16", 3),
            "split.tensors.count": ("i32", 19),
            **changes.get(f"p{index}", {}),
        }
        paths.append(tmp_path / f"{stem}-{index + 1:05}-of-00003.gguf")
        paths[-1].write_bytes(gguf_file(metadata, tensors))
    return paths


def test_any_part_of_a_split_model_gives_all_of_it(tmp_path: Path) -> None:
    paths = split(tmp_path)
    for path in paths:
        found = census(open_model(path))
        assert len(found.model.tensors) == 19
        assert [part.path for part in found.files] == [str(part) for part in paths]
        assert len({part.sha256 for part in found.files}) == 3
        assert [label.text for label in found.labels] == ["q4_0", "q4_0"]
    assert [tensor.part for tensor in open_model(paths[1]).tensors] == [0] * 9 + [1] * 9 + [2]
    assert len(list(open_models(paths))) == 1


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    paths = split(tmp_path)
    paths[1].unlink()
    with pytest.raises(ModelFileError, match=r"missing: m-Q4_0-00002-of-00003\.gguf"):
        open_model(paths[0])


def test_parts_that_do_not_belong_together(tmp_path: Path) -> None:
    paths = split(tmp_path)
    paths[0].rename(tmp_path / "renamed.gguf")
    with pytest.raises(ModelFileError, match="its name does not say so"):
        open_model(tmp_path / "renamed.gguf")
    with pytest.raises(ModelFileError, match="mixed up"):
        open_model(split(tmp_path, p1={"split.no": ("u16", 2)})[0])
    with pytest.raises(ModelFileError, match="not 20"):
        open_model(split(tmp_path, p0={"split.tensors.count": ("i32", 20)})[0])
    paths = split(tmp_path)
    paths[2].write_bytes(paths[1].read_bytes())
    with pytest.raises(ModelFileError, match="mixed up"):
        open_model(paths[0])


# The task -------------------------------------------------------------------------------------------


def run(*files: Path, require: list[str] | None = None, **outputs: str) -> ExitCode:
    names = [str(file) for file in files]
    return gguf(names, require, Outputs(**outputs), True)


def test_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, lying, cut = tmp_path / "m-Q4_0.gguf", tmp_path / "m-IQ4_XS.gguf", tmp_path / "cut.gguf"
    good.write_bytes(llama())
    lying.write_bytes(llama())
    cut.write_bytes(llama()[:-1])
    assert run(good) == ExitCode.AS_EXPECTED
    assert run(good, require=["ffn>=90% q4_0"]) == ExitCode.AS_EXPECTED
    assert run(good, require=["ffn>=90% q4_0", "ffn>=90% q8_0"]) == ExitCode.UNEXPECTED
    assert run(lying) == ExitCode.UNEXPECTED
    assert "FALSE" in capsys.readouterr().out
    assert run(lying, require=["ffn>=90% iq4_xs"]) == ExitCode.UNEXPECTED
    assert "NOT MET, 0.0000 % (0 of 3,456 bytes)" in capsys.readouterr().out
    assert run(cut) == ExitCode.UNDETERMINED
    assert run(cut, good) == ExitCode.UNDETERMINED
    assert run(cut, lying, good) == ExitCode.UNEXPECTED
    with pytest.raises(UsageError, match="at least one file"):
        run()


def test_outputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m-Q4_0.gguf"
    path.write_bytes(llama())
    run(path, require=["ffn>=90% q4_0"], json=str(tmp_path / "o.json"), markdown=str(tmp_path / "o.md"))
    printed = capsys.readouterr().out
    assert (tmp_path / "o.md").read_text() == printed
    (data,) = json.loads((tmp_path / "o.json").read_text())["models"]
    assert data["types"]["q4_0"] == {"tensors": 7, "bytes": 8064, "elements": 14336}
    assert data["files"][0]["sha256"] in printed
    assert data["requirements"] == [{"text": "ffn>=90% q4_0", "met": True, "bytes": 3456, "of": 3456}]
    assert len(data["tensors"]) == 11
    (tmp_path / "link").symlink_to(path)
    for option in ("json", "markdown"):
        with pytest.raises(UsageError, match="would be overwritten"):
            run(path, **{option: str(tmp_path / "link")})
    with pytest.raises(UsageError, match="cannot be written"):
        run(path, json=str(tmp_path / "absent" / "o.json"))


def test_names_from_a_file_cannot_reach_the_terminal_raw(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metadata = {**LLAMA, "general.architecture": ("str", "x\x1b[2J|\n# y"), "general.file_type": ("u32", 30)}
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_file(metadata, [Made("blk.0.ffn_\x1b[31mdown.weight", IQ4_NL, (64, 4))]))
    run(path)
    printed = capsys.readouterr().out
    assert "ffn_" in printed
    assert "\x1b" not in printed
    assert "\n# y" not in printed


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["gguf", "a", "b"], ["gguf", "--file=a", "--file=b"]),
        (["gguf", "diff", "a", "b"], ["gguf", "--file=diff", "--file=a", "--file=b"]),
        (["gguf", "--require", "ffn>=9% f32", "a"], ["gguf", "--require", "ffn>=9% f32", "--file=a"]),
        (["gguf", "a", "--no-sha256"], ["gguf", "--file=a", "--no-sha256"]),
        (["gguf", "a", "--markdown", "o"], ["gguf", "--file=a", "--markdown", "o"]),
    ],
)
def test_plain_arguments_are_files(argv: list[str], expected: list[str]) -> None:
    assert with_file_options(argv) == expected
