// SPDX-License-Identifier: MIT
#pragma once

#include "arena.h"
#include "ggml.h"
#include "record.h"

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace tierlab {

// The request makes no sense; the answer is `status error` with this text, and the session goes on.
struct RequestError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

enum class Operation { mul_mat, mul_mat_id, quantize, dequantize, quantize_weights, claim };
enum class Path { standard, repack, kleidiai };

// One request, with every field checked on its own and against the others (docs/protocol.md).
struct Request {
    int64_t     cell        = -1;
    Operation   operation   = Operation::mul_mat;
    ggml_type   weight_type = GGML_TYPE_COUNT;
    ggml_type   activation_type = GGML_TYPE_F32;
    int64_t     m = 0, n = 0, k = 0;
    int64_t     ne2 = 1, ne3 = 1, ne02 = 1, ne03 = 1;
    int64_t     experts = 0, used = 0;
    Path        path    = Path::standard;
    int         threads = 1;
    int         repeat  = 1;
    uint64_t    row_stride = 0;  // bytes between activation rows, always set after parsing
    Span        weights, activations, ids, output;
    std::string fault;  // only ever set in a build with deliberate faults

    bool by_expert() const { return experts > 0; }
};

Request parse_request(const Record & record);  // throws RequestError

// The number of the cell if the record has a readable one, else -1: for answering a bad request.
int64_t cell_of(const Record & record);

// ggml's name of a type in lower case, as it travels over the wire.
std::string type_name(ggml_type type);

// All types of this tree that have a name and a size.
std::vector<ggml_type> known_types();

}  // namespace tierlab
