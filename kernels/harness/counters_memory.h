// SPDX-License-Identifier: MIT
// Memory for trampolines: where a loaded object lies, room within branch reach of it, writing code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tierlab {

struct AddressRange {
    std::uintptr_t begin;
    std::uintptr_t end;
};

struct LoadedObject {
    std::uintptr_t bias = 0;        // load address minus linked address
    std::vector<AddressRange> code; // its executable segments
    AddressRange span{UINTPTR_MAX, 0}; // the smallest range that holds all of them
};

// Where the shared object (or, with its own path, the program) is loaded. Throws std::runtime_error if the
// process has not loaded that file.
LoadedObject find_loaded(const std::string & path);

// Maps `bytes` of zeroed, writable memory so that a branch reaches from anywhere in it to anywhere in the
// object and back. Never displaces another mapping. Throws std::runtime_error if there is no such room.
void * map_near(const LoadedObject & object, std::size_t bytes);

// Writable or executable, never both, except where the range holds this very function (kernels linked into
// the program). `guarded`: keep PROT_BTI. Both throw std::runtime_error.
void make_writable(AddressRange range);
void make_executable(AddressRange range, bool guarded);

} // namespace tierlab
