// SPDX-License-Identifier: MIT
// Loads a shared object, calls its functions a known number of times with counting on, and prints what the
// counters say. Each call's result is compared with that of the same call before the counters were installed.
//   driver calls MODULE FUNCTION:ARGUMENT:TIMES…
//   driver threads MODULE FUNCTION THREADS TIMES
//   driver streaming MODULE TIMES
//   driver install PATH…      PATHs are not loaded here
#include "counters.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <string>
#include <thread>
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

} // namespace

int main(int argc, char ** argv) {
    const std::vector<std::string> words(argv + 1, argv + argc);
    const std::string mode = words.at(0), path = words.at(1);
    if (mode == "install") {
        install({words.begin() + 1, words.end()});
        return 0;
    }
    void * const module = dlopen(path.c_str(), RTLD_NOW);
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
    return mode == "streaming" ? run_streaming(path, module, std::stoi(words.at(2))) : 4;
}
