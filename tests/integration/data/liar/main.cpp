// SPDX-License-Identifier: MIT
// What a program of one's own needs in order to have a receipt: install the counters on the library, compute,
// read them. Prints the banner, the sum and the calls.
#include "counters.h"
#include "kernels.h"

#include <cstdio>
#include <vector>

int main(int, char ** arguments) {
    if (counters_install({ arguments[1] }) < 0) {
        std::fprintf(stderr, "%s\n", counters_error().c_str());
        return 2;
    }
    std::printf("banner %s\n", banner());
    std::vector<int8_t> a(64), b(64);
    for (int at = 0; at < 64; at++) {
        a[at] = static_cast<int8_t>(3 * at - 90);
        b[at] = static_cast<int8_t>(7 * at % 100 - 50);
    }
    for (int round = 0; round < 5; round++) {
        std::printf("sum %d\n", dot(a.data(), b.data(), 64));
    }
    for (const auto & [name, calls] : counters_read()) {
        std::printf("ran %s %llu\n", name.c_str(), static_cast<unsigned long long>(calls));
    }
    return 0;
}
