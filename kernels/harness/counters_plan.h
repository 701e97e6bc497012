// SPDX-License-Identifier: MIT
// What to count: the kernel functions of a shared object, the instruction of each that will be displaced, and
// why some cannot be counted.
#pragma once

#include "counters_elf.h"
#include "counters_memory.h"

#include <cstdint>
#include <string>
#include <vector>

namespace tierlab {

// One instruction to displace: a function's first, or the second after a landing pad.
struct Site {
    std::string name;         // all names of the address, joined by '|'
    std::string refusal;      // why the function cannot be counted; empty if it can
    std::uint64_t linked = 0; // address of the instruction as linked
    std::uint32_t word = 0;   // the instruction
};

struct Module {
    std::string path;
    ElfImage image;
    LoadedObject object;
    std::vector<ElfFunction> kernels;
    std::vector<ElfFunction> cold_parts;
    std::vector<Site> sites;
};

// Plans the counting of loaded shared objects: one site for each address of a kernel function. Throws
// std::runtime_error if one is not loaded, names no kernel function or begins otherwise in memory.
std::vector<Module> plan_modules(const std::vector<std::string> & paths);

} // namespace tierlab
