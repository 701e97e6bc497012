// SPDX-License-Identifier: MIT
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

const char * banner(void);
int32_t      dot(const int8_t * a, const int8_t * b, int n);

#ifdef __cplusplus
}
#endif
