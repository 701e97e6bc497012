// SPDX-License-Identifier: MIT
#include "receipt.h"

#ifdef TIERLAB_COUNTERS
#    include "counters.h"
#endif

namespace tierlab {

#ifdef TIERLAB_COUNTERS

int receipt_install(const std::string & shared_object) {
    return counters_install({ shared_object });
}

void receipt_reset() {
    counters_reset();
}

std::vector<std::pair<std::string, uint64_t>> receipt_read() {
    return counters_read();
}

#else

int receipt_install(const std::string &) {
    return 0;
}

void receipt_reset() {}

std::vector<std::pair<std::string, uint64_t>> receipt_read() {
    return {};
}

#endif

}  // namespace tierlab
