/* SPDX-License-Identifier: MIT */
/* Read before every file of the reference build. Its compiler targets a processor with vectors, whatever the
 * switches say; ggml's files then see no sign of them and take their scalar code. The intrinsics come first:
 * included later, they would bring the sign back. */
#if defined(__x86_64__)
#include <immintrin.h>
#undef __SSE2__
#elif defined(__aarch64__)
#include <arm_neon.h>
#undef __ARM_NEON
#endif
