// SPDX-License-Identifier: MIT
//
// The harness's view of the call counters (counters.h), which a build may leave out.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tierlab {

// How the installation went; `watched` is 0 where counters do not exist, -1 where they failed.
struct ReceiptState {
    int         watched = 0;
    std::string error;
    std::vector<std::pair<std::string, std::string>> refused;  // symbol, why it cannot be counted
};

// Puts counters on the kernel functions of a loaded shared object; call once.
ReceiptState receipt_install(const std::string & shared_object);

void receipt_reset();

// Functions that ran since the last reset, with their exact number of calls.
std::vector<std::pair<std::string, uint64_t>> receipt_read();

// The function whose counting code lies at `pc`, nullptr if none does. Signal-safe.
const char * receipt_symbol_at(uintptr_t pc);

}  // namespace tierlab
