// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>

namespace tierlab {

// What the CPU says of itself through the kernel's interfaces; never through its name.
struct CpuProbe {
    std::string arch;
    uint64_t    hwcap = 0, hwcap2 = 0;
    std::string features;          // names separated by blanks
    int         vector_bits    = 0;
    int         streaming_bits = 0;
    bool        fa64           = false;
    int         sme_version    = 0;
};

CpuProbe probe_cpu();

}  // namespace tierlab
