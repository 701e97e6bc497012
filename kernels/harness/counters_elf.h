// SPDX-License-Identifier: MIT
// Function symbols and code of an AArch64 ELF file, read from the file itself: static functions are in its
// symbol table, and nowhere in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tierlab {

struct ElfFunction {
    std::string name;
    std::string source;   // the STT_FILE symbol before a local symbol, else empty
    std::uint64_t address; // as linked; add the load bias
    std::uint64_t size;    // bytes; up to the next symbol where the table says 0
    bool resolver;         // an IFUNC: the address is that of the function that picks the function
};

struct ElfCode {
    std::uint64_t address; // of an executable section, as linked
    std::vector<std::uint32_t> words;
};

// Instructions of the file that holds them.
struct ElfWords {
    const std::uint32_t * first = nullptr;
    std::size_t count = 0;
};

struct ElfImage {
    std::vector<ElfFunction> functions; // by address, then name
    std::vector<ElfCode> code;
    bool branch_targets_guarded = false; // linked for BTI: its code is mapped with PROT_BTI where there is BTI

    // The `size` / 4 instructions at a linked address; none if they are not all code of this file.
    ElfWords words(std::uint64_t address, std::uint64_t size) const;
};

// Throws std::runtime_error (one line) if the file cannot be read or is no AArch64 ELF file.
ElfImage read_elf(const std::string & path);

} // namespace tierlab
