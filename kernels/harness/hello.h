// SPDX-License-Identifier: MIT
#pragma once

#include "backend.h"
#include "receipt.h"
#include "record.h"

#include <string>

namespace tierlab {

constexpr int protocol_version = 1;

// The first record of a session: who is here, on what CPU, with what backend.
Record hello(const std::string & build_id, const Backend & backend, const ReceiptState & receipt);

}  // namespace tierlab
