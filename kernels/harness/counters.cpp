// SPDX-License-Identifier: MIT
#include "counters.h"

#include "counters_a64.h"
#include "counters_elf.h"
#include "counters_memory.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <sys/auxv.h>

namespace {

using namespace tierlab;

constexpr const char * kernel_patterns[] = {
#include "counters_patterns.inc"
};

struct alignas(64) Counter { // a cache line each: threads that run different kernels do not meet
    std::uint64_t calls = 0;
};

// One patched instruction: a function's first, or the second after a landing pad.
struct Site {
    std::string name; // all names of the address
    std::string refusal;
    std::uint64_t linked = 0;
    std::uint32_t word = 0;
    std::uintptr_t slot = 0;
    Counter * counter = nullptr;
};

struct Module {
    std::string path;
    ElfImage image;
    LoadedObject object;
    std::vector<ElfFunction> kernels;
    std::vector<ElfFunction> cold_parts;
    std::vector<Site> sites;
};

struct State {
    std::vector<Site> sites;
    std::unique_ptr<Counter[]> counters;
    std::vector<std::pair<std::string, std::string>> refused;
    std::string error;
    bool installed = false;
};

State state;

// Shell pattern with '*' only; fnmatch(3) knows more and costs a tenth of a second under emulation.
bool matches(const char * pattern, const char * text) {
    for (; *pattern != '\0' && *pattern != '*'; ++pattern, ++text) {
        if (*pattern != *text) {
            return false;
        }
    }
    if (*pattern == '\0') {
        return *text == '\0';
    }
    if (pattern[1] == '\0') {
        return true;
    }
    for (; *text != '\0'; ++text) {
        if (matches(pattern + 1, text)) {
            return true;
        }
    }
    return false;
}

// GCC splits rarely run code off into NAME.cold, which nothing calls; NAME.resolver only picks a version.
bool is_kernel_name(const std::string & name) {
    const bool wanted = std::any_of(std::begin(kernel_patterns), std::end(kernel_patterns),
                                    [&](const char * pattern) { return matches(pattern, name.c_str()); });
    return wanted && name.find(".cold") == std::string::npos && name.find(".resolver") == std::string::npos;
}

bool jumps_to(const ElfImage & image, const ElfFunction & body, std::uint64_t first, std::uint64_t last) {
    const ElfWords words = image.words(body.address, body.size);
    for (std::size_t i = 0; i < words.count; ++i) {
        const auto target = a64::jump_target(words.first[i], body.address + 4 * i);
        if (target && *target >= first && *target <= last) {
            return true;
        }
    }
    return false;
}

// A loop whose head is the function's first instruction would be counted once a round. The way back may lie
// in the part that the compiler split off.
bool loops_to_entry(const Module & module, const ElfFunction & function, std::uint64_t patched) {
    const std::string cold = function.name.substr(0, function.name.find('@')) + ".cold";
    const auto is_own_loop = [&](const ElfFunction & part) {
        return part.name.compare(0, cold.size(), cold) == 0 &&
               jumps_to(module.image, part, function.address, patched);
    };
    return jumps_to(module.image, function, function.address, patched) ||
           std::any_of(module.cold_parts.begin(), module.cold_parts.end(), is_own_loop);
}

Site plan(const Module & module, const ElfFunction & function) {
    Site site;
    site.name = function.name;
    site.linked = function.address;
    const ElfWords words = module.image.words(function.address, function.size);
    if (function.resolver) {
        site.refusal = "an IFUNC, whose symbol is that of its resolver";
        return site;
    }
    if (words.count == 0) {
        site.refusal = "shorter than one instruction";
        return site;
    }
    const std::size_t index = a64::is_landing_pad(words.first[0]) ? 1 : 0;
    if (index >= words.count) {
        site.refusal = "nothing after its landing pad";
        return site;
    }
    site.linked += 4 * index;
    site.word = words.first[index];
    site.refusal = a64::immovable(site.word);
    if (site.refusal.empty() && loops_to_entry(module, function, site.linked)) {
        site.refusal = "loops back to its first instruction, which is therefore no proof of a call";
    }
    return site;
}

// Functions of one address are one site: whichever name was called, all are reported, joined by '|'.
std::vector<Site> plan_sites(const Module & module) {
    std::map<std::uint64_t, Site> by_address;
    for (const ElfFunction & function : module.kernels) {
        const Site site = plan(module, function);
        const auto [at, added] = by_address.emplace(site.linked, site);
        if (!added) {
            at->second.name += "|" + site.name;
            at->second.refusal += at->second.refusal.empty() ? site.refusal : "";
        }
    }
    std::vector<Site> sites;
    for (auto & [address, site] : by_address) {
        sites.push_back(std::move(site));
    }
    return sites;
}

Module load(const std::string & path) {
    Module module{path, read_elf(path), find_loaded(path), {}, {}, {}};
    for (const ElfFunction & function : module.image.functions) {
        if (is_kernel_name(function.name)) {
            module.kernels.push_back(function);
        } else if (function.name.find(".cold") != std::string::npos) {
            module.cold_parts.push_back(function);
        }
    }
    if (module.kernels.empty()) {
        throw std::runtime_error(path + " names no kernel function in its symbol table, so nothing can be counted");
    }
    return module;
}

// Static functions of several source files may share a name; so may two shared objects.
void tell_apart(std::vector<Module> & modules) {
    std::map<std::string, std::set<std::pair<const Module *, std::uint64_t>>> places;
    for (const Module & module : modules) {
        for (const ElfFunction & function : module.kernels) {
            places[function.name].emplace(&module, function.address);
        }
    }
    for (Module & module : modules) {
        const std::string file = module.path.substr(module.path.rfind('/') + 1);
        for (ElfFunction & function : module.kernels) {
            if (places[function.name].size() > 1) {
                function.name += "@" + (function.source.empty() ? file : function.source);
            }
        }
    }
}

void write_word(std::uintptr_t at, std::uint32_t word) { std::memcpy(reinterpret_cast<void *>(at), &word, sizeof word); }

void clear_cache(AddressRange range) {
    __builtin___clear_cache(reinterpret_cast<char *>(range.begin), reinterpret_cast<char *>(range.end));
}

// Writes one trampoline a site; a site that turns out to be unusable gets its refusal here.
void write_trampolines(Module & module, Counter * counters) {
    constexpr unsigned long hwcap_atomics = 1ul << 8;
    const bool lse = (getauxval(AT_HWCAP) & hwcap_atomics) != 0;
    const std::size_t bytes = module.sites.size() * a64::slot_bytes;
    const auto pool = reinterpret_cast<std::uintptr_t>(map_near(module.object, bytes));
    std::uintptr_t slot = pool;
    for (Site & site : module.sites) {
        const std::uintptr_t at = module.object.bias + site.linked;
        const auto code = a64::trampoline(slot, at, site.word, reinterpret_cast<std::uintptr_t>(counters), lse);
        if (site.refusal.empty() && !code) {
            site.refusal = "begins with a branch out of reach";
        }
        if (site.refusal.empty()) {
            std::memcpy(reinterpret_cast<void *>(slot), code->words, sizeof code->words);
            site.slot = slot;
            site.counter = counters++;
        }
        slot += a64::slot_bytes;
    }
    make_executable({pool, pool + bytes}, false);
    clear_cache({pool, pool + bytes});
}

void redirect(const Module & module) {
    constexpr unsigned long hwcap2_bti = 1ul << 17;
    const bool guarded = module.image.branch_targets_guarded && (getauxval(AT_HWCAP2) & hwcap2_bti) != 0;
    for (const AddressRange & range : module.object.code) {
        make_writable(range);
    }
    for (const Site & site : module.sites) {
        if (site.counter != nullptr) {
            const std::uintptr_t at = module.object.bias + site.linked;
            write_word(at, a64::branch(at, site.slot + a64::slot_entry_bytes).value());
        }
    }
    for (const AddressRange & range : module.object.code) {
        make_executable(range, guarded);
        clear_cache(range);
    }
}

void check_memory(const Module & module) {
    for (const Site & site : module.sites) {
        if (site.refusal.empty() &&
            std::memcmp(reinterpret_cast<void *>(module.object.bias + site.linked), &site.word, 4) != 0) {
            throw std::runtime_error(module.path + " is not what the process has loaded: " + site.name +
                                     " begins otherwise in memory");
        }
    }
}

void keep(const Module & module) {
    for (const Site & site : module.sites) {
        if (site.counter != nullptr) {
            state.sites.push_back(site);
        } else {
            state.refused.emplace_back(site.name, site.refusal);
        }
    }
}

int install(const std::vector<std::string> & paths) {
    if (state.installed) {
        throw std::runtime_error("call counters are installed already");
    }
    std::vector<Module> modules;
    for (const std::string & path : paths) {
        modules.push_back(load(path));
    }
    tell_apart(modules);
    std::size_t total = 0;
    for (Module & module : modules) {
        module.sites = plan_sites(module);
        check_memory(module);
        total += module.sites.size();
    }
    state.counters = std::make_unique<Counter[]>(total);
    Counter * next = state.counters.get();
    for (Module & module : modules) {
        write_trampolines(module, next);
        redirect(module);
        keep(module);
        next += module.sites.size();
    }
    if (state.sites.empty()) {
        throw std::runtime_error("no kernel function can be counted");
    }
    state.installed = true;
    return static_cast<int>(state.sites.size());
}

} // namespace

int counters_install(const std::vector<std::string> & shared_object_paths) {
#if defined(__aarch64__)
    try {
        return install(shared_object_paths);
    } catch (const std::exception & problem) {
        state.error = problem.what();
        return -1;
    }
#else
    (void) shared_object_paths;
    (void) install;
    return 0;
#endif
}

const std::string & counters_error() { return state.error; }

std::vector<std::pair<std::string, std::string>> counters_refused() { return state.refused; }

void counters_reset() {
    for (const Site & site : state.sites) {
        __atomic_store_n(&site.counter->calls, 0, __ATOMIC_RELAXED);
    }
}

std::vector<std::pair<std::string, std::uint64_t>> counters_read() {
    std::vector<std::pair<std::string, std::uint64_t>> counts;
    for (const Site & site : state.sites) {
        const std::uint64_t calls = __atomic_load_n(&site.counter->calls, __ATOMIC_RELAXED);
        if (calls != 0) {
            counts.emplace_back(site.name, calls);
        }
    }
    std::sort(counts.begin(), counts.end());
    return counts;
}

const char * counters_symbol_at(std::uintptr_t pc) {
    for (const Site & site : state.sites) {
        if (pc >= site.slot && pc < site.slot + a64::slot_bytes) {
            return site.name.c_str();
        }
    }
    return nullptr;
}
