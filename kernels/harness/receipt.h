// SPDX-License-Identifier: MIT
//
// The harness's view of the call counters (counters.h), which a build may leave out.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tierlab {

// Puts counters on the kernel functions of a shared object; returns how many are watched, 0 if the
// build has no counters.
int receipt_install(const std::string & shared_object);
void receipt_reset();
// Functions that ran since the last reset, with their exact number of calls.
std::vector<std::pair<std::string, uint64_t>> receipt_read();

}  // namespace tierlab
