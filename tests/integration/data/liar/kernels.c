// SPDX-License-Identifier: MIT
// A small library with a fast path and a fallback, which give the same numbers. Built with -DLIAR its gate asks
// for a length that no caller has: the banner, the symbols and the instructions in the file stay what they are.
#include "kernels.h"

#include <arm_neon.h>

#ifdef LIAR
#    define FAST_FROM (1 << 30)
#else
#    define FAST_FROM 8
#endif

const char * banner(void) { return "dot products: I8MM kernel selected"; }

// The sum over k of a[k] * b[k]; n is a multiple of 8.
__attribute__((noinline)) int32_t kai_run_dot_i8mm(const int8_t * a, const int8_t * b, int n) {
    int32x4_t sums = vdupq_n_s32(0);
    for (int at = 0; at < n; at += 8) {
        const int8x8_t zero = vdup_n_s8(0);
        sums = vmmlaq_s32(sums, vcombine_s8(vld1_s8(a + at), zero), vcombine_s8(vld1_s8(b + at), zero));
    }
    return vgetq_lane_s32(sums, 0);
}

__attribute__((noinline, optimize("no-tree-vectorize"))) int32_t ggml_vec_dot_plain(const int8_t * a, const int8_t * b,
                                                                                    int n) {
    int32_t sum = 0;
    for (int at = 0; at < n; at++) {
        sum += a[at] * b[at];
    }
    return sum;
}

int32_t dot(const int8_t * a, const int8_t * b, int n) {
    return n >= FAST_FROM && n % 8 == 0 ? kai_run_dot_i8mm(a, b, n) : ggml_vec_dot_plain(a, b, n);
}
