// SPDX-License-Identifier: MIT
//
// What all operations do with memory: exact spans, the sentinel, the canaries.
#include "operations.h"

#include <cstring>

namespace tierlab {

uint8_t * exact(const Arena & arena, const Span & span, uint64_t bytes, const char * what) {
    uint8_t * const memory = arena.at(span, what);
    if (span.bytes != bytes) {
        throw RequestError(std::string(what) + " have " + std::to_string(span.bytes) + " bytes, the request needs " +
                           std::to_string(bytes));
    }
    return memory;
}

void fill_sentinel(uint8_t * data, size_t bytes) {
    size_t at = 0;
    for (; at + sizeof(sentinel_bits) <= bytes; at += sizeof(sentinel_bits)) {
        std::memcpy(data + at, &sentinel_bits, sizeof(sentinel_bits));
    }
    std::memcpy(data + at, &sentinel_bits, bytes - at);
}

int64_t count_unwritten(const uint8_t * data, size_t bytes, size_t element_bytes) {
    uint8_t pattern[sizeof(sentinel_bits)];
    std::memcpy(pattern, &sentinel_bits, sizeof(pattern));
    int64_t untouched = 0;
    for (size_t element = 0; element < bytes; element += element_bytes) {
        size_t at = element;
        while (at < element + element_bytes && data[at] == pattern[at % sizeof(pattern)]) {
            ++at;
        }
        untouched += at == element + element_bytes;
    }
    return untouched;
}

std::string first_damage(const Buffers & buffers) {
    for (const GuardedBuffer * buffer : { &buffers.output, &buffers.weights, &buffers.activations, &buffers.ids }) {
        const std::string damage = buffer->damage();
        if (!damage.empty()) {
            return damage;
        }
    }
    return "";
}

}  // namespace tierlab
