// SPDX-License-Identifier: MIT
// Loads a shared object, calls its functions a known number of times with counting on, and prints what the
// counters say. Each call's result is compared with that of the same call before the counters were installed.
//   driver calls MODULE FUNCTION:ARGUMENT:TIMES…
//   driver threads MODULE FUNCTION THREADS TIMES
//   driver streaming MODULE TIMES
//   driver crowded MODULE FUNCTION HOLES      all memory within branch reach is taken, but for HOLES pages
//   driver altered MODULE FUNCTION            FUNCTION no longer begins in memory as in the file
//   driver install PATH…                      PATHs are not loaded here
// MODULE `self` is this program.
#include "counters.h"

#include <array>
#include <cinttypes>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fstream>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

using Function = std::uint64_t (*)(std::uint64_t);

Function find(void * module, const std::string & name) {
    void * const symbol = dlsym(module, name.c_str());
    if (symbol == nullptr) {
        std::fprintf(stderr, "no function %s\n", name.c_str());
        std::exit(4);
    }
    Function function;
    std::memcpy(&function, &symbol, sizeof function);
    return function;
}

void install(const std::vector<std::string> & paths) {
    const int kernels = counters_install(paths);
    if (kernels < 0) {
        std::printf("error %s\n", counters_error().c_str());
        std::exit(2);
    }
    std::printf("kernels %d\n", kernels);
    for (const auto & [name, reason] : counters_refused()) {
        std::printf("refused %s %s\n", name.c_str(), reason.c_str());
    }
}

void print_counts() {
    for (const auto & [name, calls] : counters_read()) {
        std::printf("ran %s %llu\n", name.c_str(), static_cast<unsigned long long>(calls));
    }
}

struct Call {
    std::string name;
    Function function;
    std::uint64_t argument;
    int times;
    std::uint64_t before;
};

int run_calls(const std::string & path, void * module, const std::vector<std::string> & specs) {
    std::vector<Call> calls;
    for (const auto & spec : specs) {
        const auto second = spec.rfind(':'), first = spec.rfind(':', second - 1);
        const std::string name = spec.substr(0, first);
        Call call{name, find(module, name), std::stoull(spec.substr(first + 1)), std::stoi(spec.substr(second + 1)), 0};
        call.before = call.function(call.argument);
        calls.push_back(call);
    }
    install({path});
    for (int round = 0; round < 2; ++round) { // the second round shows that reset resets
        counters_reset();
        for (const auto & call : calls) {
            for (int i = 0; i < call.times; ++i) {
                const std::uint64_t after = call.function(call.argument);
                if (after != call.before) {
                    std::printf("differs %s %llx %llx\n", call.name.c_str(),
                                static_cast<unsigned long long>(call.before), static_cast<unsigned long long>(after));
                }
            }
            std::printf("value %s %llu\n", call.name.c_str(), static_cast<unsigned long long>(call.before));
        }
    }
    print_counts();
    return 0;
}

int run_threads(const std::string & path, void * module, const std::string & name, int threads, int times) {
    const Function function = find(module, name);
    install({path});
    std::printf("address %p\n", reinterpret_cast<void *>(function));
    std::vector<std::thread> pool;
    for (int t = 0; t < threads; ++t) {
        pool.emplace_back([=] {
            for (int i = 0; i < times; ++i) {
                function(1);
            }
        });
    }
    for (auto & thread : pool) {
        thread.join();
    }
    print_counts();
    return 0;
}

int run_streaming(const std::string & path, void * module, int times) {
    const Function function = find(module, "call_streaming");
    std::vector<unsigned char> before(3 * 256), after(3 * 256);
    function(reinterpret_cast<std::uint64_t>(before.data()));
    install({path});
    for (int i = 0; i < times; ++i) {
        const auto bytes = function(reinterpret_cast<std::uint64_t>(after.data()));
        std::printf("state %s %llu %d\n", before == after ? "same" : "differs", static_cast<unsigned long long>(bytes),
                    after[1]);
    }
    print_counts();
    return 0;
}

constexpr std::uintptr_t page = 4096;

// Takes a range, or as much of it as the emulator has not taken itself.
void take(std::uintptr_t begin, std::uintptr_t end, std::vector<std::uintptr_t> & taken) {
    constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    if (mmap(reinterpret_cast<void *>(begin), end - begin, PROT_NONE, flags, -1, 0) != MAP_FAILED) {
        taken.push_back(begin);
        return;
    }
    const std::uintptr_t middle = begin + (end - begin) / 2 / page * page;
    if (middle > begin) {
        take(begin, middle, taken);
        take(middle, end, taken);
    }
}

std::vector<std::uintptr_t> take_all_near(std::uintptr_t centre) {
    constexpr std::uintptr_t reach = std::uintptr_t{140} << 20;
    std::vector<std::pair<std::uintptr_t, std::uintptr_t>> free;
    std::uintptr_t last = (centre - reach) & ~(page - 1);
    const std::uintptr_t top = last + 2 * reach;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        std::uintptr_t begin = 0, end = 0;
        if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR, &begin, &end) == 2 && end > last) {
            free.emplace_back(last, begin < top ? begin : top);
            last = end;
        }
    }
    free.emplace_back(last, top);
    std::vector<std::uintptr_t> taken;
    for (const auto & [begin, end] : free) {
        if (begin < end) {
            take(begin, end, taken);
        }
    }
    return taken;
}

int run_crowded(const std::string & path, void * module, const std::string & name, int holes) {
    const Function function = find(module, name);
    const auto centre = reinterpret_cast<std::uintptr_t>(function);
    for (const std::uintptr_t at : take_all_near(centre)) {
        const std::uintptr_t distance = at > centre ? at - centre : centre - at;
        if (holes > 0 && distance < std::uintptr_t{120} << 20) {
            munmap(reinterpret_cast<void *>(at), page);
            --holes;
        }
    }
    install({path});
    function(1);
    print_counts();
    return 0;
}

int run_altered(const std::string & path, void * module, const std::string & name) {
    const auto at = reinterpret_cast<std::uintptr_t>(find(module, name));
    void * const start = reinterpret_cast<void *>(at & ~(page - 1));
    constexpr std::uint32_t nop = 0xD503201F;
    mprotect(start, page, PROT_READ | PROT_WRITE);
    std::memcpy(reinterpret_cast<void *>(at), &nop, sizeof nop);
    mprotect(start, page, PROT_READ | PROT_EXEC);
    install({path});
    return 0;
}

std::string own_path() {
    std::array<char, PATH_MAX> path{};
    return readlink("/proc/self/exe", path.data(), path.size() - 1) > 0 ? path.data() : "";
}

} // namespace

int main(int argc, char ** argv) {
    const std::vector<std::string> words(argv + 1, argv + argc);
    const std::string mode = words.at(0), path = words.at(1) == "self" ? own_path() : words.at(1);
    if (mode == "install") {
        install({words.begin() + 1, words.end()});
        return 0;
    }
    void * const module = dlopen(words[1] == "self" ? nullptr : path.c_str(), RTLD_NOW);
    if (module == nullptr) {
        std::fprintf(stderr, "%s\n", dlerror());
        return 4;
    }
    if (mode == "calls") {
        return run_calls(path, module, {words.begin() + 2, words.end()});
    }
    if (mode == "threads") {
        return run_threads(path, module, words.at(2), std::stoi(words.at(3)), std::stoi(words.at(4)));
    }
    if (mode == "crowded") {
        return run_crowded(path, module, words.at(2), std::stoi(words.at(3)));
    }
    if (mode == "altered") {
        return run_altered(path, module, words.at(2));
    }
    return mode == "streaming" ? run_streaming(path, module, std::stoi(words.at(2))) : 4;
}
