// SPDX-License-Identifier: MIT
#pragma once

#include "answer.h"
#include "arena.h"
#include "backend.h"
#include "guarded.h"
#include "request.h"

namespace tierlab {

// The guarded memory that all operations share; one buffer for each role.
struct Buffers {
    GuardedBuffer weights{ "weights" };
    GuardedBuffer activations{ "activations" };
    GuardedBuffer ids{ "ids" };
    GuardedBuffer output{ "output" };
};

struct Bench {
    Backend & backend;
    Arena &   arena;
    Buffers & buffers;
};

// Each throws RequestError if the request does not fit the operation.
Answer run_product(const Request & request, Bench & bench);           // mul_mat, mul_mat_id
Answer run_claim(const Request & request, Bench & bench);
Answer run_quantize(const Request & request, Bench & bench);
Answer run_dequantize(const Request & request, Bench & bench);
Answer run_quantize_weights(const Request & request, Bench & bench);

// Memory of a span that must have exactly `bytes` bytes.
uint8_t * exact(const Arena & arena, const Span & span, uint64_t bytes, const char * what);

void     fill_sentinel(uint8_t * data, size_t bytes);
// Elements of `element_bytes` that still hold nothing but the sentinel's bytes.
int64_t  count_unwritten(const uint8_t * data, size_t bytes, size_t element_bytes);
// The first damage among the buffers, empty if there is none.
std::string first_damage(const Buffers & buffers);

}  // namespace tierlab
