// SPDX-License-Identifier: MIT
#include "counters_plan.h"

#include "counters_a64.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <set>
#include <stdexcept>
#include <utility>

namespace tierlab {
namespace {

constexpr const char * kernel_patterns[] = {
#include "counters_patterns.inc"
};

// Shell pattern with '*' only; fnmatch(3) knows more and is slow under emulation.
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

void check_memory(const Module & module) {
    for (const Site & site : module.sites) {
        if (site.refusal.empty() &&
            std::memcmp(reinterpret_cast<void *>(module.object.bias + site.linked), &site.word, 4) != 0) {
            throw std::runtime_error(module.path + " is not what the process has loaded: " + site.name +
                                     " begins otherwise in memory");
        }
    }
}

} // namespace

std::vector<Module> plan_modules(const std::vector<std::string> & paths) {
    std::vector<Module> modules;
    for (const std::string & path : paths) {
        modules.push_back(load(path));
    }
    tell_apart(modules);
    for (Module & module : modules) {
        module.sites = plan_sites(module);
        check_memory(module);
    }
    return modules;
}

} // namespace tierlab
