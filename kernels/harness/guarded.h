// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tierlab {

// Where a guarded buffer lies, as plain numbers that a signal handler may read.
struct GuardedRange {
    const char * name;
    uintptr_t    low, high;    // the whole mapping, inaccessible margins included
    uintptr_t    begin, end;   // the bytes that belong to the tensor
};

// The guarded buffers of this process; unused entries have no name. Signal-safe to read.
constexpr int  max_guarded_buffers = 8;
extern GuardedRange guarded_ranges[max_guarded_buffers];

// Memory for one tensor, between inaccessible pages.
//
// The tensor's end is flush with the upper guard, as far as its alignment allows: ggml promises
// kernels an aligned start, so a tensor whose size is no multiple of the alignment leaves up to
// alignment - 1 bytes of slack. Slack, and one page before the start, hold canaries: all ones, a NaN
// in every float format, so that a kernel which uses what it must not read spoils its result, and
// one that writes there is seen by `damage`.
class GuardedBuffer {
public:
    explicit GuardedBuffer(const char * name);
    ~GuardedBuffer();
    GuardedBuffer(const GuardedBuffer &) = delete;
    GuardedBuffer & operator=(const GuardedBuffer &) = delete;

    // Writable memory for `bytes`; what an earlier call gave is void.
    uint8_t * place(size_t bytes, size_t alignment);

    // Until the next `place` (or `unseal`), writing the buffer is a fault.
    void seal();
    void unseal();

    // Empty, or where canaries were overwritten: `write NAME +N` or `write NAME -N` (docs/protocol.md).
    std::string damage() const;

private:
    void grow(size_t bytes);

    GuardedRange & range_;
    uint8_t *      base_     = nullptr;  // first accessible byte
    size_t         capacity_ = 0;        // accessible bytes
    bool           sealed_   = false;
};

}  // namespace tierlab
