// SPDX-License-Identifier: MIT
// One function for every kind of first instruction that call counting must move or leave alone. Each takes
// x0 and returns a value that would change if the moved instruction meant something else. `call_*` wrappers
// set up what the C calling convention cannot and are not counted themselves.
        .arch   armv8.5-a
        .text

        .macro  function name
        .p2align 4
        .global \name
        .type   \name, %function
\name:
        .endm

        .macro  finish name
        .size   \name, . - \name
        .endm

        function kai_run_plain
        add     x0, x0, #7
        ret
        finish  kai_run_plain

        function kai_run_ret
        ret
        finish  kai_run_ret

        function kai_run_frame
        stp     x29, x30, [sp, #-16]!
        mov     x29, sp
        add     x0, x0, #1
        bl      kai_run_plain
        ldp     x29, x30, [sp], #16
        ret
        finish  kai_run_frame

        function kai_run_adr
        adr     x9, datum
        ldr     w10, [x9]
        add     x0, x0, x10
        ret
        finish  kai_run_adr

        function kai_run_adrp
        adrp    x9, far_datum
        ldr     w10, [x9, #:lo12:far_datum]
        add     x0, x0, x10
        ret
        finish  kai_run_adrp

        function kai_run_b
        b       helper_triple
        finish  kai_run_b

        function kai_run_bl                     // called through call_bl: x9 holds the way home
        bl      helper_triple
        add     x0, x0, #1
        ret     x9
        finish  kai_run_bl

        function kai_run_blr                    // x10: helper_triple
        blr     x10
        add     x0, x0, #2
        ret     x9
        finish  kai_run_blr

        function kai_run_blr_x30                // x30: helper_triple
        blr     x30
        add     x0, x0, #3
        ret     x9
        finish  kai_run_blr_x30

        function kai_run_bcond                  // flags of x0 - 5 come in from call_bcond
        b.gt    1f
        mov     x0, #100
        ret
1:      mov     x0, #200
        ret
        finish  kai_run_bcond

        function kai_run_cbz
        cbz     x0, 1f
        mov     x0, #101
        ret
1:      mov     x0, #201
        ret
        finish  kai_run_cbz

        function kai_run_cbnz
        cbnz    w0, 1f
        mov     x0, #102
        ret
1:      mov     x0, #202
        ret
        finish  kai_run_cbnz

        function kai_run_tbz
        tbz     x0, #33, 1f
        mov     x0, #103
        ret
1:      mov     x0, #203
        ret
        finish  kai_run_tbz

        function kai_run_tbnz
        tbnz    w0, #2, 1f
        mov     x0, #104
        ret
1:      mov     x0, #204
        ret
        finish  kai_run_tbnz

        .p2align 2
before: mov     x0, #205                        // a backward target
        ret
        function kai_run_backward
        cbz     x0, before
        mov     x0, #105
        ret
        finish  kai_run_backward

        function kai_run_ldr_w
        ldr     w9, datum
        add     x0, x0, x9
        ret
        finish  kai_run_ldr_w

        function kai_run_ldr_x
        ldr     x9, datum
        add     x0, x0, x9
        ret
        finish  kai_run_ldr_x

        function kai_run_ldrsw
        ldrsw   x9, datum
        add     x0, x0, x9
        ret
        finish  kai_run_ldrsw

        function kai_run_ldr_s
        ldr     s16, datum
        fmov    w9, s16
        add     x0, x0, x9
        ret
        finish  kai_run_ldr_s

        function kai_run_ldr_d
        ldr     d16, datum
        fmov    x9, d16
        add     x0, x0, x9
        ret
        finish  kai_run_ldr_d

        function kai_run_ldr_q
        ldr     q16, datum
        mov     x9, v16.d[1]
        add     x0, x0, x9
        ret
        finish  kai_run_ldr_q

        function kai_run_prfm
        prfm    pldl1keep, datum
        add     x0, x0, #9
        ret
        finish  kai_run_prfm

        function kai_run_bti
        bti     c
        add     x0, x0, #11
        ret
        finish  kai_run_bti

        function kai_run_pac
        paciasp
        stp     x29, x30, [sp, #-16]!
        add     x0, x0, #12
        ldp     x29, x30, [sp], #16
        autiasp
        ret
        finish  kai_run_pac

        function kai_run_recursive              // x0 + 1 entries
        cbz     x0, 1f
        stp     x29, x30, [sp, #-16]!
        sub     x0, x0, #1
        bl      kai_run_recursive
        add     x0, x0, #1
        ldp     x29, x30, [sp], #16
1:      ret
        finish  kai_run_recursive

        function kai_run_tail                   // one entry here, one in kai_run_plain
        add     x0, x0, #1
        b       kai_run_plain
        finish  kai_run_tail

        function kai_run_split.constprop.0      // a clone is a function of its own
        add     x0, x0, #15
        ret
        finish  kai_run_split.constprop.0

        function kai_run_alias_a
        .global kai_run_alias_b
        .type   kai_run_alias_b, %function
kai_run_alias_b:
        add     x0, x0, #13
        ret
        finish  kai_run_alias_a
        finish  kai_run_alias_b

        .p2align 4
        .global kai_run_untyped
kai_run_untyped:                                // no type, no size
        add     x0, x0, #14
        ret

        // Every argument register and the flags go into the result (called through call_state).
        function kai_run_state
        mrs     x11, nzcv
        .irp    n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 14, 15
        add     x11, x11, x11, lsl #2
        add     x11, x11, x\n
        .endr
        .irp    n, 0, 1, 2, 3, 4, 5, 6, 7, 16, 31
        fmov    x12, d\n
        add     x11, x11, x11, lsl #2
        add     x11, x11, x12
        .endr
        mov     x12, sp
        sub     x12, x29, x12
        add     x0, x11, x12
        ret
        finish  kai_run_state

        // What must be refused.
        function kai_run_loop
        subs    x0, x0, #1
        b.ne    kai_run_loop
        ret
        finish  kai_run_loop

        function kai_run_loop_after_bti
        bti     c
1:      subs    x0, x0, #1
        b.ne    1b
        ret
        finish  kai_run_loop_after_bti

        function kai_run_cold_loop
        subs    x0, x0, #1
        b.ne    kai_run_cold_loop.cold
        ret
        finish  kai_run_cold_loop
        .type   kai_run_cold_loop.cold, %function
kai_run_cold_loop.cold:
        nop
        b       kai_run_cold_loop
        .size   kai_run_cold_loop.cold, . - kai_run_cold_loop.cold

        function kai_run_pad_alone
        bti     c
        finish  kai_run_pad_alone
        mov     x0, #0
        ret

        function kai_run_data
        .word   17
        ret
        finish  kai_run_data

        function kai_run_authenticated
        .inst   0xd63f083f                      // blraaz x1
        ret
        finish  kai_run_authenticated

        function kai_run_signed_with_pc
        .inst   0xdac1a3fe                      // paciasppc
        ret
        finish  kai_run_signed_with_pc

        function kai_run_compare_branch
        .inst   0x74010040                      // cbgt w0, w1, 8 bytes on
        ret
        finish  kai_run_compare_branch

        .p2align 4
        .global kai_run_picked
        .type   kai_run_picked, %gnu_indirect_function
kai_run_picked:
        adr     x0, helper_triple
        ret
        .size   kai_run_picked, . - kai_run_picked

        // Not matched by any pattern.
        function call_bl
        mov     x9, x30
        b       kai_run_bl
        finish  call_bl

        function call_blr
        mov     x9, x30
        adr     x10, helper_triple
        b       kai_run_blr
        finish  call_blr

        function call_blr_x30
        mov     x9, x30
        adr     x30, helper_triple
        b       kai_run_blr_x30
        finish  call_blr_x30

        function call_bcond
        cmp     x0, #5
        b       kai_run_bcond
        finish  call_bcond

        function call_state
        stp     x29, x30, [sp, #-16]!
        mov     x29, sp
        .irp    n, 0, 1, 2, 3, 4, 5, 6, 7, 16, 31
        add     x9, x0, #\n * 3 + 1
        fmov    d\n, x9
        .endr
        .irp    n, 1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 14, 15
        add     x\n, x0, #\n * 5 + 2
        .endr
        mov     x9, #0x90000000
        msr     nzcv, x9
        bl      kai_run_state
        ldp     x29, x30, [sp], #16
        ret
        finish  call_state

        function helper_triple
        add     x0, x0, x0, lsl #1
        ret
        finish  helper_triple

        .p2align 4
datum:  .quad   0x00000001fffffff0, 0x0123456789abcdef

        .section .rodata
        .p2align 2
far_datum:
        .word   4711

        .section .note.GNU-stack, "", %progbits
