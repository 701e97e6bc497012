// SPDX-License-Identifier: MIT
// A kernel entered in streaming mode with live Z, P and ZA state, as an SME kernel's own helper is.
        .arch   armv9.2-a+sme
        .text

        .p2align 4
        .global kai_kernel_streaming
        .type   kai_kernel_streaming, %function
kai_kernel_streaming:                           // x0: room for ZA row 0, z0 and p0, a vector each
        ptrue   p7.b
        mov     w12, #0
        str     za[w12, #0], [x0]
        str     z0, [x0, #1, mul vl]
        str     p0, [x0, #16, mul vl]           // a predicate is an eighth of a vector
        ret
        .size   kai_kernel_streaming, . - kai_kernel_streaming

        // x0: buffer of 3 streaming vectors. Returns the streaming vector length in bytes.
        .p2align 4
        .global call_streaming
        .type   call_streaming, %function
call_streaming:
        stp     x29, x30, [sp, #-80]!
        stp     d8, d9, [sp, #16]
        stp     d10, d11, [sp, #32]
        stp     d12, d13, [sp, #48]
        stp     d14, d15, [sp, #64]
        smstart
        index   z0.b, #3, #5
        mov     w9, #7
        whilelo p0.b, wzr, w9
        ptrue   p1.b
        mov     w12, #0
        mov     za0h.b[w12, #0], p1/m, z0.b
        bl      kai_kernel_streaming
        rdsvl   x0, #1
        smstop
        ldp     d8, d9, [sp, #16]
        ldp     d10, d11, [sp, #32]
        ldp     d12, d13, [sp, #48]
        ldp     d14, d15, [sp, #64]
        ldp     x29, x30, [sp], #80
        ret
        .size   call_streaming, . - call_streaming

        .section .note.GNU-stack, "", %progbits
