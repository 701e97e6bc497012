# SPDX-License-Identifier: MIT
"""Loops of hand-made functions: found by back edges, followed as often as their counters say."""

from __future__ import annotations

import pytest
from a64_samples import DOT, START, program

from tierlab.dispatch.a64_flow import flow_of
from tierlab.dispatch.a64_text import split_operands
from tierlab.dispatch.a64_walk import WalkError, walk
from tierlab.dispatch.block_loop import BlockLoop, Work, block_loop
from tierlab.dispatch.multiply_counts import multiply_accumulates

DOWN = "loop:\nsubs w9, w9, #1\nb.ne @loop\nret"
OUTPUT, WEIGHTS, ACTIVATIONS = 1 << 40, 2 << 40, 3 << 40


# Reading -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "operands"),
    [
        ("", ()),
        ("x0, x1, lsl #2", ("x0", "x1", "lsl #2")),
        ("{ v1.16b, v2.16b }, [x1, #16]", ("{ v1.16b, v2.16b }", "[x1, #16]")),
        ("v0.4s, v1.16b, v2.4b[1]", ("v0.4s", "v1.16b", "v2.4b[1]")),
    ],
)
def test_operands(text: str, operands: tuple[str, ...]) -> None:
    assert split_operands(text) == operands


def test_a_comment_is_no_operand() -> None:
    (item,) = program(f="mov w8, #2   // =0x2").by_name["f"].code
    assert (item.name, item.operands) == ("mov", ("w8", "#2"))


def test_loops_are_back_edges() -> None:
    flow = flow_of(program(f=DOT).by_name["f"])
    heads = {loop.head - START: {at - START for at in loop.body} for loop in flow.loops}
    assert heads == {0x08: {0x08, 0x10, 0x28}, 0x10: {0x10}}


def test_a_branch_forward_is_no_loop() -> None:
    assert flow_of(program(f="cbz w0, @end\nadd w1, w1, #1\nend:\nret").by_name["f"]).loops == ()


# Following ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "arguments", "times"),
    [
        ("mov w9, #5\nloop:\nsubs w9, w9, #1\nb.ne @loop\nret", (), 5),
        ("mov x9, #0\nloop:\nadd x9, x9, #16\ncmp x9, x0\nb.lt @loop\nret", (100,), 7),
        ("add x9, x0, #64\nloop:\nldr q0, [x0], #16\ncmp x9, x0\nb.ne @loop\nret", (WEIGHTS,), 4),
        ("lsr w9, w0, #3\nloop:\nsub w9, w9, #1\ncbnz w9, @loop\nret", (24,), 3),
        ("mov w9, #8\nloop:\nlsr w9, w9, #1\ntbz w9, #0, @loop\nret", (), 3),
        ("mov w9, #-3\nloop:\nadds w9, w9, #1\nb.mi @loop\nret", (), 3),
        ("sxtw x9, w0\nloop:\nadds x9, x9, #1\nb.ne @loop\nret", (0xFFFFFFFE,), 2),
        ("ubfiz x9, x0, #2, #4\nloop:\nsubs x9, x9, #4\nb.gt @loop\nret", (0x13,), 3),
        ("cmp w0, #4\ncsel w9, w0, w1, lt\nloop:\nsubs w9, w9, #1\nb.ne @loop\nret", (3, 9), 3),
        ("cmp w0, #4\ncsinc w9, w0, w1, lt\nloop:\nsubs w9, w9, #1\nb.ne @loop\nret", (6, 1), 2),
        ("mov w9, #3\nmadd w9, w9, w0, w0\nloop:\nsubs w9, w9, #1\nb.ne @loop\nret", (2,), 8),
        (f"mov w9, #7\nstr w9, [sp, #-16]!\nmov w9, #1\nldr w9, [sp], #16\n{DOWN}", (), 7),
        ("stp x0, x1, [sp, #16]\nldp x8, x9, [sp, #16]\nloop:\nsubs x9, x9, #1\nb.ne @loop\nret", (1, 6), 6),
        ("cntb x9\nloop:\nsubs x9, x9, #8\nb.ne @loop\nret", (), 4),
        ("mov x9, #0\nloop:\ninch x9, all, mul #2\ncmp x9, #128\nb.lt @loop\nret", (), 4),
        ("mov x9, #0\nloop:\nincw x9\nwhilelo p0.s, x9, x0\nb.first @loop\nret", (40,), 5),
        ("mov x9, #0\nloop:\nadd x9, x9, #1\nccmp x9, #9, #4, ne\ncmp x9, #3\nb.ne @loop\nret", (), 3),
        (f"mov w9, #0x30000\nmovk w9, #2\nsub w9, w9, #0x30, lsl #12\n{DOWN}", (), 2),
    ],
)  # fmt: skip
def test_counted_loops(code: str, arguments: tuple[int, ...], times: int) -> None:
    """At 256 bits where vectors count."""
    found = walk(program(f=code), "f", arguments, 256)
    (loop,) = flow_of(program(f=code).by_name["f"]).loops
    assert sum(step.block.start == loop.head for step in found.steps) == times
    assert not any(step.assumed for step in found.steps)


def test_a_word_from_memory_is_unknown_and_its_branch_counted() -> None:
    found = walk(program(f="ldr w9, [x0]\ncbz w9, @end\nadd w1, w1, #1\nend:\nret"), "f", (WEIGHTS,), 128)
    assert [step.assumed for step in found.steps] == [True, False, False]


def test_a_stored_vector_takes_the_place_of_a_number() -> None:
    code = "mov w9, #7\nstr w9, [sp, #8]\nstr q0, [sp]\nldr w9, [sp, #8]\ncbz w9, @end\nend:\nret"
    assert walk(program(f=code), "f", (), 128).steps[0].assumed


def test_calls_are_followed_and_keep_what_the_abi_keeps() -> None:
    functions = {
        "f": "mov x19, #3\nloop:\nbl 0x2000 <g>\nsubs x19, x19, #1\nb.ne @loop\nret",
        "g": "mov x19, #100\nmov x9, #2\nagain:\nsubs x9, x9, #1\nb.ne @again\nret",
    }
    steps = walk(program(**functions), "f", (), 128).steps
    inner = [step for step in steps if step.function == "g" and step.block.start == 0x2008]
    assert len(inner) == 3 * 2
    assert {step.depth for step in inner} == {1}


def test_a_tail_call_and_the_linkage_table_are_followed() -> None:
    functions = {"f": "b 0x9000 <g@plt>", "g": "mov w9, #2\nloop:\nsubs w9, w9, #1\nb.ne @loop\nret"}
    assert {step.function for step in walk(program(**functions), "f", (), 128).steps} == {"f", "g"}


def test_a_function_that_is_elsewhere_is_named_and_its_result_unknown() -> None:
    found = walk(program(f="bl 0x9000 <memcpy@plt>\ncbz x0, @end\nend:\nret"), "f", (), 128)
    assert found.unknown == {"memcpy"}
    assert [step.assumed for step in found.steps] == [False, True, False]


def test_an_answer_stands_for_a_function() -> None:
    code = "bl 0x9000 <length@plt>\ncmp w0, #32\nb.eq @end\nbrk #1\nend:\nret"
    found = walk(program(f=code), "f", (), 128, {"length": 32})
    assert len(found.steps) == 3
    assert not found.unknown


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("br x9", "jumps to where a register says"),
        ("loop:\nb @loop", "does not end within"),
        ("bl 0x1000 <f>\nret", "deep"),
        ("add w0, w0, #1", "runs past its end"),
    ],
)
def test_what_cannot_be_followed_is_refused(code: str, message: str) -> None:
    with pytest.raises(WalkError, match=message):
        walk(program(f=code), "f", (), 128)


def test_a_missing_symbol_is_refused_by_name() -> None:
    with pytest.raises(WalkError, match="there is no function ggml_gemm_q9_9"):
        walk(program(f=DOT), "ggml_gemm_q9_9", (), 128)


# Products ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("sdot v0.4s, v1.16b, v2.16b", 16),
        ("sdot v0.2s, v1.8b, v2.8b", 8),
        ("sdot v0.4s, v1.16b, v2.4b[3]", 16),
        ("usdot v0.4s, v1.16b, v2.16b", 16),
        ("smmla v0.4s, v1.16b, v2.16b", 32),
        ("sdot z0.s, z1.b, z2.b", 64),
        ("smmla z0.s, z1.b, z2.b", 128),
        ("sdot z0.d, z1.h, z2.h", 0),
        ("smopa za0.s, p0/m, p1/m, z1.b, z2.b", 1024),
        ("smopa za0.s, p0/m, p1/m, z1.h, z2.h", 0),
        ("bfmopa za0.s, p0/m, p1/m, z1.h, z2.h", 0),
        ("smlal v0.4s, v1.4h, v2.4h", 0),
        ("bfdot v0.4s, v1.8h, v2.8h", 0),
        ("fmla v0.4s, v1.4s, v2.4s", 0),
    ],
)
def test_products_of_an_instruction(code: str, count: int) -> None:
    """At a vector length of 512 bits: [16, 4] × [4, 16] in an outer product."""
    assert multiply_accumulates(program(f=code).by_name["f"].code[0], 512) == count


# The loop over blocks ----------------------------------------------------------------------------------


def dot_loop(code: str = DOT, blocks: int = 5, columns: int = 1, block: int = 32) -> BlockLoop:
    arguments = (block * blocks, OUTPUT, 0, WEIGHTS, 0, ACTIVATIONS, 0, 1)
    made = program(kernel=code)
    return block_loop(walk(made, "kernel", arguments, 128), "kernel", Work(block, blocks, 1, columns), 128)


def test_the_loop_over_blocks_is_found_with_what_is_inside() -> None:
    found = dot_loop()
    assert found.loop.head - START == 0x08
    assert (found.products, found.tile, found.unrolled) == (32, 1, 1)
    assert [(one.head - START, one.runs) for one in found.inner] == [(0x10, 4)]
    assert found.multipliers == {"sdot": 4}
    assert len(found.code) == 2 + 4 * 6 + 2


def test_an_iteration_may_take_several_blocks() -> None:
    code = """
        asr w9, w0, #6
        pair:
        ldr q1, [x3], #32
        sdot v0.4s, v1.16b, v2.16b
        sdot v0.4s, v1.16b, v2.16b
        sdot v0.4s, v1.16b, v2.16b
        sdot v0.4s, v1.16b, v2.16b
        subs w9, w9, #1
        b.ne @pair
        ret
    """
    found = dot_loop(code, blocks=10)
    assert (found.unrolled, found.tile, found.products) == (2, 1, 64)


def test_a_kernel_that_does_other_work_than_it_should_is_refused() -> None:
    """A loop that is followed wrongly, or a kernel that skips a tail, shows in the number of products."""
    with pytest.raises(WalkError, match=r"does 160 multiply-accumulates where 320 are due"):
        dot_loop(columns=2)
    with pytest.raises(WalkError, match=r"does 128 multiply-accumulates where 160 are due"):
        dot_loop(DOT.replace("asr w9, w0, #5", "asr w9, w0, #5\nsub w9, w9, #1"))


def test_without_a_loop_over_blocks_it_is_refused() -> None:
    straight = "\n".join(["sdot v0.4s, v1.16b, v2.16b"] * 10 + ["ret"])
    with pytest.raises(WalkError, match=r"none of the 0 loops of kernel runs once a block"):
        dot_loop(straight)
    counted = "mov w9, #10\nloop:\nsdot v0.4s, v1.16b, v2.16b\nsubs w9, w9, #1\nb.ne @loop\nret"
    with pytest.raises(WalkError, match=r"none of the 1 loops"):
        dot_loop(counted, blocks=5)


def test_portable_code_in_its_place_is_refused() -> None:
    functions = {"kernel": "b 0x2000 <kernel_generic>", "kernel_generic": "ret"}
    made = walk(program(**functions), "kernel", (), 128)
    with pytest.raises(WalkError, match=r"leaves its work to portable code \(kernel_generic\)"):
        block_loop(made, "kernel", Work(32, 5, 1, 1), 128)
