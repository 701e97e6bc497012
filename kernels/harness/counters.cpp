// SPDX-License-Identifier: MIT
#include "counters.h"

#include "counters_a64.h"
#include "counters_memory.h"
#include "counters_plan.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <sys/auxv.h>

namespace {

using namespace tierlab;

struct alignas(64) Counter { // a cache line each: threads that run different kernels do not meet
    std::uint64_t calls = 0;
};

struct Counted {
    std::string name;
    std::uintptr_t at;   // the displaced instruction's own place
    std::uintptr_t slot; // its trampoline
    Counter * counter;
};

struct State {
    std::vector<Counted> functions;
    std::unique_ptr<Counter[]> counters;
    std::vector<std::pair<std::string, std::string>> refused;
    std::string error;
    bool installed = false;
};

State state;

void clear_cache(AddressRange range) {
    __builtin___clear_cache(reinterpret_cast<char *>(range.begin), reinterpret_cast<char *>(range.end));
}

// Writes a trampoline for each site that can be counted; the others go to the refused.
std::vector<Counted> write_trampolines(const Module & module, Counter * counter) {
    constexpr unsigned long hwcap_atomics = 1ul << 8;
    const bool lse = (getauxval(AT_HWCAP) & hwcap_atomics) != 0;
    const std::size_t bytes = module.sites.size() * a64::slot_bytes;
    const auto pool = reinterpret_cast<std::uintptr_t>(map_near(module.object, bytes));
    std::vector<Counted> functions;
    std::uintptr_t slot = pool;
    for (const Site & site : module.sites) {
        const std::uintptr_t at = module.object.bias + site.linked;
        const auto code = a64::trampoline(slot, at, site.word, reinterpret_cast<std::uintptr_t>(counter), lse);
        if (!site.refusal.empty() || !code) {
            state.refused.emplace_back(site.name, code ? site.refusal : "begins with a branch out of reach");
            continue;
        }
        std::memcpy(reinterpret_cast<void *>(slot), code->words, sizeof code->words);
        functions.push_back({site.name, at, slot, counter++});
        slot += a64::slot_bytes;
    }
    make_executable({pool, pool + bytes}, false);
    clear_cache({pool, pool + bytes});
    return functions;
}

void redirect(const Module & module, const std::vector<Counted> & functions) {
    constexpr unsigned long hwcap2_bti = 1ul << 17;
    const bool guarded = module.image.branch_targets_guarded && (getauxval(AT_HWCAP2) & hwcap2_bti) != 0;
    for (const AddressRange & range : module.object.code) {
        make_writable(range);
    }
    for (const Counted & function : functions) {
        const std::uint32_t word = a64::branch(function.at, function.slot + a64::slot_entry_bytes).value();
        std::memcpy(reinterpret_cast<void *>(function.at), &word, sizeof word);
    }
    for (const AddressRange & range : module.object.code) {
        make_executable(range, guarded);
        clear_cache(range);
    }
}

int install(const std::vector<std::string> & paths) {
    if (state.installed) {
        throw std::runtime_error("call counters are installed already");
    }
    const std::vector<Module> modules = plan_modules(paths);
    std::size_t total = 0;
    for (const Module & module : modules) {
        total += module.sites.size();
    }
    state.counters = std::make_unique<Counter[]>(total);
    for (const Module & module : modules) {
        const auto functions = write_trampolines(module, state.counters.get() + state.functions.size());
        redirect(module, functions);
        state.functions.insert(state.functions.end(), functions.begin(), functions.end());
    }
    if (state.functions.empty()) {
        throw std::runtime_error("no kernel function can be counted");
    }
    state.installed = true;
    return static_cast<int>(state.functions.size());
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
    for (const Counted & function : state.functions) {
        __atomic_store_n(&function.counter->calls, 0, __ATOMIC_RELAXED);
    }
}

std::vector<std::pair<std::string, std::uint64_t>> counters_read() {
    std::vector<std::pair<std::string, std::uint64_t>> counts;
    for (const Counted & function : state.functions) {
        const std::uint64_t calls = __atomic_load_n(&function.counter->calls, __ATOMIC_RELAXED);
        if (calls != 0) {
            counts.emplace_back(function.name, calls);
        }
    }
    std::sort(counts.begin(), counts.end());
    return counts;
}

const char * counters_symbol_at(std::uintptr_t pc) {
    for (const Counted & function : state.functions) {
        if (pc >= function.slot && pc < function.slot + a64::slot_bytes) {
            return function.name.c_str();
        }
    }
    return nullptr;
}
