// SPDX-License-Identifier: MIT
#include "faults.h"

#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <unistd.h>

namespace tierlab::faults {

namespace {

// Where the 4-bit codes of a block lie, and where the high bits of its scales.
struct BlockLayout {
    size_t  codes, code_bytes;
    size_t  scales, scale_bytes;
    uint8_t scale_mask;  // what remains of each of those bytes without the scales' highest bits
};

// From the block definitions of ggml-common.h; scale_bytes 0: no packed scales.
const std::map<std::string, BlockLayout> layouts = {
    { "q4_0", { 2, 16, 0, 0, 0 } },      { "q4_1", { 4, 16, 0, 0, 0 } },
    { "iq4_nl", { 2, 16, 0, 0, 0 } },    { "mxfp4", { 1, 16, 0, 0, 0 } },
    { "q4_k", { 16, 128, 4, 8, 0x7f } }, { "q5_k", { 48, 128, 4, 8, 0x7f } },
    { "iq4_xs", { 8, 128, 2, 2, 0x55 } },
};

const std::set<std::string> names = {
    "nibble_order",  "high_scale_bit", "last_column",  "row_pair",          "tail",         "nan",
    "zeros",         "other_kernel",   "no_kernel",    "illegal",           "hang",         "abort",
    "read_beyond",   "write_beyond",   "write_input",  "thread_dependent",  "unstable",
};

[[noreturn]] void hang() {
    for (;;) {
        pause();
    }
}

void illegal_instruction() {
#if defined(__aarch64__)
    asm volatile(".inst 0x00000000");  // udf #0
#else
    asm volatile("ud2");
#endif
}

void swap_nibbles(uint8_t * codes, size_t bytes) {
    for (size_t at = 0; at < bytes; ++at) {
        codes[at] = uint8_t(codes[at] << 4 | codes[at] >> 4);
    }
}

}  // namespace

void check(const Request & request) {
    if (request.fault.empty()) {
        return;
    }
    if (names.count(request.fault) == 0) {
        throw RequestError("unknown fault '" + request.fault + "'");
    }
    const auto layout  = layouts.find(type_name(request.weight_type));
    const bool nibbles = request.fault == "nibble_order";
    const bool scales  = request.fault == "high_scale_bit";
    if ((nibbles && layout == layouts.end()) ||
        (scales && (layout == layouts.end() || layout->second.scale_bytes == 0))) {
        throw RequestError("fault " + request.fault + " cannot hit " + type_name(request.weight_type));
    }
}

Path path_taken(const Request & request) {
    if (request.fault != "other_kernel") {
        return request.path;
    }
    return request.path == Path::standard ? Path::repack : Path::standard;
}

void spoil_weights(const Request & request, std::vector<uint8_t> & weights) {
    const bool nibbles = request.fault == "nibble_order";
    const bool scales  = request.fault == "high_scale_bit";
    if (!nibbles && !scales) {
        return;
    }
    const BlockLayout layout = layouts.at(type_name(request.weight_type));
    const size_t      block  = ggml_type_size(request.weight_type);
    for (size_t at = 0; at + block <= weights.size(); at += block) {
        uint8_t * const bytes = weights.data() + at;
        if (nibbles) {
            swap_nibbles(bytes + layout.codes, layout.code_bytes);
        } else {
            for (size_t scale = 0; scale < layout.scale_bytes; ++scale) {
                bytes[layout.scales + scale] &= layout.scale_mask;
            }
        }
    }
}

void spoil_activations(const Request & request, uint8_t * activations, size_t bytes) {
    if (request.fault != "tail") {
        return;
    }
    const size_t row     = ggml_row_size(request.activation_type, request.k);
    const size_t element = ggml_type_size(request.activation_type);
    for (size_t at = 0; at < bytes; at += request.row_stride) {
        std::memset(activations + at + row - element, 0, element);
    }
}

bool replaces_kernel(const Request & request, uint8_t * activations_end, uint8_t * output_end) {
    const std::string & fault = request.fault;
    if (fault == "illegal") {
        illegal_instruction();
    } else if (fault == "hang") {
        hang();
    } else if (fault == "abort") {
        ggml_abort(__FILE__, __LINE__, "deliberate fault");
    } else if (fault == "read_beyond") {
        // Past any slack that alignment leaves, so that the guard page is hit.
        static_cast<void>(*const_cast<volatile uint8_t *>(activations_end + 64));
    } else if (fault == "write_beyond") {
        std::memset(output_end, 0, sizeof(float));
    } else if (fault == "write_input") {
        *const_cast<volatile uint8_t *>(activations_end - 4) = 0;
    }
    return fault == "no_kernel";
}

void spoil_output(const Request & request, float * output, int64_t elements, int turn) {
    const std::string & fault = request.fault;
    if (fault == "nan" || fault == "zeros") {
        for (int64_t at = 0; at < elements; ++at) {
            output[at] = fault == "nan" ? NAN : 0.0f;
        }
    }
    if (fault == "last_column") {
        for (int64_t at = request.n - 1; at < elements; at += request.n) {
            output[at] = 0.0f;
        }
    }
    if (fault == "row_pair" && request.n > 1) {
        for (int64_t at = 0; at < elements; at += request.n) {
            std::swap(output[at], output[at + 1]);
        }
    }
    if ((fault == "thread_dependent" && request.threads > 1) || (fault == "unstable" && turn > 0)) {
        uint32_t bits;
        std::memcpy(&bits, output, sizeof(bits));
        bits ^= 1;
        std::memcpy(output, &bits, sizeof(bits));
    }
}

}  // namespace tierlab::faults
