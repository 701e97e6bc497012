// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tierlab {

// A piece of the arena as a request names it.
struct Span {
    uint64_t offset  = 0;
    uint64_t bytes   = 0;
    bool     present = false;
};

// The shared memory file through which tensors travel; mapped whole, read and write.
class Arena {
public:
    explicit Arena(const std::string & path);  // throws std::runtime_error
    ~Arena();
    Arena(const Arena &) = delete;
    Arena & operator=(const Arena &) = delete;

    // The memory of a span; throws RequestError if any byte of it lies outside the file.
    uint8_t * at(const Span & span, const char * what) const;

private:
    uint8_t * base_  = nullptr;
    size_t    bytes_ = 0;
};

}  // namespace tierlab
