// SPDX-License-Identifier: MIT
#include "receipt.h"

#ifdef TIERLAB_COUNTERS
#    include "counters.h"
#endif

namespace tierlab {

#ifdef TIERLAB_COUNTERS

ReceiptState receipt_install(const std::string & shared_object) {
    ReceiptState state;
    state.watched = counters_install({ shared_object });
    if (state.watched < 0) {
        state.error = counters_error();
    } else {
        state.refused = counters_refused();
    }
    return state;
}

void receipt_reset() {
    counters_reset();
}

std::vector<std::pair<std::string, uint64_t>> receipt_read() {
    return counters_read();
}

const char * receipt_symbol_at(uintptr_t pc) {
    return counters_symbol_at(pc);
}

#else

ReceiptState receipt_install(const std::string &) {
    return {};
}

void receipt_reset() {}

std::vector<std::pair<std::string, uint64_t>> receipt_read() {
    return {};
}

const char * receipt_symbol_at(uintptr_t) {
    return nullptr;
}

#endif

}  // namespace tierlab
