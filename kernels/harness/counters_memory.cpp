// SPDX-License-Identifier: MIT
#include "counters_memory.h"

#include "counters_a64.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cinttypes>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <link.h>
#include <stdexcept>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#ifndef MAP_FIXED_NOREPLACE // glibc before 2.27
#define MAP_FIXED_NOREPLACE 0x100000
#endif
#ifndef PROT_BTI // AArch64 only
#define PROT_BTI 0x10
#endif

namespace tierlab {
namespace {

struct Search {
    struct stat wanted;
    std::string program;
    bool loaded = false;
    LoadedObject found;
};

bool same_file(const std::string & path, const struct stat & wanted) {
    struct stat info;
    return stat(path.c_str(), &info) == 0 && info.st_dev == wanted.st_dev && info.st_ino == wanted.st_ino;
}

int visit(dl_phdr_info * info, std::size_t, void * data) {
    auto & search = *static_cast<Search *>(data);
    const std::string name = info->dlpi_name[0] == '\0' ? search.program : info->dlpi_name;
    if (!same_file(name, search.wanted)) {
        return 0;
    }
    LoadedObject object;
    object.bias = info->dlpi_addr;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const auto & segment = info->dlpi_phdr[i];
        if (segment.p_type == PT_LOAD && (segment.p_flags & PF_X) != 0) {
            const std::uintptr_t begin = object.bias + segment.p_vaddr;
            object.code.push_back({begin, begin + segment.p_memsz});
            object.span.begin = std::min(object.span.begin, begin);
            object.span.end = std::max(object.span.end, begin + segment.p_memsz);
        }
    }
    search.loaded = true;
    search.found = object;
    return 1;
}

std::uintptr_t page_size() { return static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE)); }

// Free address ranges between the mappings that the kernel (or the emulator, for its guest) lists.
std::vector<AddressRange> free_ranges() {
    constexpr std::uintptr_t stack_room = std::uintptr_t{64} << 20; // a main stack grows down into its gap
    std::ifstream maps("/proc/self/maps");
    std::vector<AddressRange> ranges;
    std::string line;
    std::uintptr_t last = std::uintptr_t{1} << 16; // the lowest page is never handed out
    while (std::getline(maps, line)) {
        std::uintptr_t begin = 0, end = 0;
        if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR, &begin, &end) != 2) {
            continue;
        }
        const std::uintptr_t keep = line.find("[stack]") == std::string::npos ? 0 : stack_room;
        if (begin > last + keep) {
            ranges.push_back({last, begin - keep});
        }
        last = std::max(last, end);
    }
    ranges.push_back({last, UINTPTR_MAX});
    return ranges;
}

// Addresses to try, nearest to the object first. An emulator's own mappings are invisible in the guest's map:
// a range that looks free may be taken in part, so each is tried in many places.
std::vector<std::uintptr_t> candidates(const LoadedObject & object, std::size_t bytes) {
    constexpr std::uintptr_t step = std::uintptr_t{1} << 18;
    constexpr auto reach = static_cast<std::uintptr_t>(a64::branch_reach) - 4096;
    const std::uintptr_t low = object.span.end > reach ? object.span.end - reach : 0;
    const std::uintptr_t high = object.span.begin + reach - bytes;
    std::vector<std::uintptr_t> out;
    for (const AddressRange & range : free_ranges()) {
        if (range.end - range.begin < bytes) {
            continue;
        }
        const std::uintptr_t first = (std::max(range.begin, low) + page_size() - 1) & ~(page_size() - 1);
        const std::uintptr_t last = std::min(range.end - bytes, high) & ~(page_size() - 1);
        for (std::uintptr_t at = first; at <= last && at >= first; at += step) {
            out.push_back(at);
        }
        if (first <= last) {
            out.push_back(last);
        }
    }
    const std::uintptr_t home = object.span.begin;
    const auto distance = [&](std::uintptr_t at) { return at > home ? at - home : home - at; };
    std::sort(out.begin(), out.end(), [&](auto a, auto b) { return distance(a) < distance(b); });
    return out;
}

void protect(AddressRange range, int protection, const char * what) {
    const std::uintptr_t begin = range.begin & ~(page_size() - 1);
    const std::uintptr_t end = (range.end + page_size() - 1) & ~(page_size() - 1);
    if (mprotect(reinterpret_cast<void *>(begin), end - begin, protection) != 0) {
        throw std::runtime_error(std::string("kernel code cannot be made ") + what + ": " + std::strerror(errno));
    }
}

} // namespace

LoadedObject find_loaded(const std::string & path) {
    Search search{};
    if (stat(path.c_str(), &search.wanted) != 0) {
        throw std::runtime_error(path + " does not exist");
    }
    std::array<char, PATH_MAX> program{};
    if (readlink("/proc/self/exe", program.data(), program.size() - 1) > 0) {
        search.program = program.data();
    }
    dl_iterate_phdr(visit, &search);
    if (!search.loaded) {
        throw std::runtime_error(path + " is not loaded into this process");
    }
    return search.found;
}

void * map_near(const LoadedObject & object, std::size_t bytes) {
    for (const std::uintptr_t at : candidates(object, bytes)) {
        void * const wanted = reinterpret_cast<void *>(at);
        void * const got = mmap(wanted, bytes, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (got == wanted) {
            return got;
        }
        if (got != MAP_FAILED) { // kernels before 4.17 take the address as a mere hint
            munmap(got, bytes);
        }
    }
    throw std::runtime_error("no free memory within branch reach (128 MiB) of the kernel code for its counters");
}

void make_writable(AddressRange range) {
    const auto here = reinterpret_cast<std::uintptr_t>(&protect);
    const bool holds_this = here >= range.begin && here < range.end;
    protect(range, PROT_READ | PROT_WRITE | (holds_this ? PROT_EXEC : 0), "writable");
}

void make_executable(AddressRange range, bool guarded) {
    protect(range, PROT_READ | PROT_EXEC | (guarded ? PROT_BTI : 0), "executable");
}

} // namespace tierlab
