// SPDX-License-Identifier: MIT
#include "cpu_probe.h"

#include <sys/auxv.h>
#include <sys/prctl.h>

namespace tierlab {

namespace {

#if defined(__aarch64__)

// Bit numbers of the arm64 ELF hardware capabilities (Linux, Documentation/arch/arm64/elf_hwcaps.rst);
// spelled out because the C library's header may be older than the emulated CPU.
struct Capability {
    const char * name;
    int          word;  // 1: AT_HWCAP, 2: AT_HWCAP2
    int          bit;
};

constexpr Capability capabilities[] = {
    { "asimd", 1, 1 },      { "fp16", 1, 10 },      { "rdm", 1, 12 },       { "fcma", 1, 14 },
    { "dotprod", 1, 20 },   { "sve", 1, 22 },       { "fhm", 1, 23 },       { "sve2", 2, 1 },
    { "sve_i8mm", 2, 9 },   { "sve_f32mm", 2, 10 }, { "sve_f64mm", 2, 11 }, { "sve_bf16", 2, 12 },
    { "i8mm", 2, 13 },      { "bf16", 2, 14 },      { "sme", 2, 23 },       { "sme_i16i64", 2, 24 },
    { "sme_f64f64", 2, 25 },{ "sme_i8i32", 2, 26 }, { "sme_f16f32", 2, 27 },{ "sme_b16f32", 2, 28 },
    { "sme_f32f32", 2, 29 },{ "sme_fa64", 2, 30 },  { "ebf16", 2, 32 },     { "sve2p1", 2, 36 },
    { "sme2", 2, 37 },      { "sme2p1", 2, 38 },
};

constexpr int get_sve_length = 51;  // PR_SVE_GET_VL
constexpr int get_sme_length = 64;  // PR_SME_GET_VL

int vector_bits(int option) {
    const int answer = prctl(option, 0, 0, 0, 0);
    return answer < 0 ? 0 : (answer & 0xffff) * 8;
}

#endif

}  // namespace

CpuProbe probe_cpu() {
    CpuProbe probe;
    probe.hwcap  = getauxval(AT_HWCAP);
    probe.hwcap2 = getauxval(AT_HWCAP2);
#if defined(__aarch64__)
    probe.arch = "aarch64";
    bool sve = false, sme = false, sme2 = false;
    for (const Capability & capability : capabilities) {
        const uint64_t word = capability.word == 1 ? probe.hwcap : probe.hwcap2;
        if ((word >> capability.bit & 1) == 0) {
            continue;
        }
        const std::string name = capability.name;
        probe.features += (probe.features.empty() ? "" : " ") + name;
        sve |= name == "sve";
        sme |= name == "sme";
        sme2 |= name == "sme2";
        probe.fa64 |= name == "sme_fa64";
    }
    probe.vector_bits    = sve ? vector_bits(get_sve_length) : 0;
    probe.streaming_bits = sme ? vector_bits(get_sme_length) : 0;
    probe.sme_version    = sme2 ? 2 : sme ? 1 : 0;
#elif defined(__x86_64__)
    probe.arch = "x86_64";
#else
    probe.arch = "unknown";
#endif
    return probe;
}

}  // namespace tierlab
