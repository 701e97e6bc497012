// SPDX-License-Identifier: MIT
#include "guarded.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <sys/mman.h>
#include <unistd.h>

namespace tierlab {

GuardedRange guarded_ranges[max_guarded_buffers] = {};

namespace {

// Wide enough that a kernel which runs a whole row too far still lands in it, and a multiple of
// every page size that Linux uses on Arm and x86.
constexpr size_t  guard_bytes  = 1 << 16;
constexpr size_t  margin_bytes = 4096;
constexpr uint8_t canary       = 0xff;

GuardedRange & claim_range(const char * name) {
    for (GuardedRange & range : guarded_ranges) {
        if (range.name == nullptr) {
            range.name = name;
            return range;
        }
    }
    throw std::runtime_error("more guarded buffers than the table holds");
}

void protect(uint8_t * base, size_t bytes, int protection) {
    if (mprotect(base, bytes, protection) != 0) {
        throw std::runtime_error("mprotect of a guarded buffer failed");
    }
}

}  // namespace

GuardedBuffer::GuardedBuffer(const char * name) : range_(claim_range(name)) {}

GuardedBuffer::~GuardedBuffer() {
    if (base_ != nullptr) {
        munmap(base_ - guard_bytes, capacity_ + 2 * guard_bytes);
    }
    range_ = {};
}

void GuardedBuffer::grow(size_t bytes) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t size = (std::max(bytes, 2 * capacity_) + page - 1) / page * page;
    if (base_ != nullptr) {
        munmap(base_ - guard_bytes, capacity_ + 2 * guard_bytes);
        base_ = nullptr;
    }
    void * mapped = mmap(nullptr, size + 2 * guard_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) {
        throw std::runtime_error("no memory for a guarded buffer of " + std::to_string(size) + " bytes");
    }
    base_     = static_cast<uint8_t *>(mapped) + guard_bytes;
    capacity_ = size;
    sealed_   = false;
    protect(base_, capacity_, PROT_READ | PROT_WRITE);
}

uint8_t * GuardedBuffer::place(size_t bytes, size_t alignment) {
    unseal();
    if (bytes + alignment + margin_bytes > capacity_) {
        grow(bytes + alignment + margin_bytes);
    }
    uint8_t * const   high  = base_ + capacity_;
    const uintptr_t   start = (reinterpret_cast<uintptr_t>(high) - bytes) / alignment * alignment;
    uint8_t * const   data  = reinterpret_cast<uint8_t *>(start);
    std::memset(data - margin_bytes, canary, margin_bytes);
    std::memset(data + bytes, canary, static_cast<size_t>(high - (data + bytes)));
    range_.low   = reinterpret_cast<uintptr_t>(base_) - guard_bytes;
    range_.high  = reinterpret_cast<uintptr_t>(high) + guard_bytes;
    range_.begin = start;
    range_.end   = start + bytes;
    return data;
}

void GuardedBuffer::seal() {
    if (!sealed_) {
        protect(base_, capacity_, PROT_READ);
        sealed_ = true;
    }
}

void GuardedBuffer::unseal() {
    if (sealed_) {
        protect(base_, capacity_, PROT_READ | PROT_WRITE);
        sealed_ = false;
    }
}

std::string GuardedBuffer::damage() const {
    if (base_ == nullptr) {
        return "";
    }
    const uint8_t * const begin = reinterpret_cast<const uint8_t *>(range_.begin);
    const uint8_t * const end   = reinterpret_cast<const uint8_t *>(range_.end);
    const std::string     where = std::string("write ") + range_.name + " ";
    for (const uint8_t * at = end; at < base_ + capacity_; ++at) {
        if (*at != canary) {
            return where + "+" + std::to_string(at - end);
        }
    }
    for (const uint8_t * at = begin; at > begin - margin_bytes;) {
        if (*--at != canary) {
            return where + "-" + std::to_string(begin - at);
        }
    }
    return "";
}

}  // namespace tierlab
