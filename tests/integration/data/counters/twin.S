// SPDX-License-Identifier: MIT
// A static function whose name occurs in two source files, and a way to call it (NAME: twin_a or twin_b).
        .text
        .p2align 4
        .type   kai_run_twin, %function
kai_run_twin:
        add     x0, x0, #VALUE
        ret
        .size   kai_run_twin, . - kai_run_twin

        .p2align 4
        .global NAME
        .type   NAME, %function
NAME:
        b       kai_run_twin
        .size   NAME, . - NAME

        .section .note.GNU-stack, "", %progbits
