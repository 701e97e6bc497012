// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tierlab {

// The output is filled with this before a kernel runs: a quiet NaN that no kernel computes.
constexpr uint32_t sentinel_bits = 0x7fc0dead;

// What came of one request (docs/protocol.md).
struct Answer {
    bool        unclaimed = false;
    bool        claimed   = true;
    std::string message;
    std::string guard;                // `write BUFFER +N`, empty if all canaries stand
    int64_t     unwritten = 0;
    int64_t     unstable  = 0;        // elements that differ between repetitions
    int64_t     kernel_ns = 0;
    std::vector<std::pair<std::string, uint64_t>> ran;
};

}  // namespace tierlab
