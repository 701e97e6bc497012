// SPDX-License-Identifier: MIT
//
// Deliberate faults, so that the lab's detectors can prove themselves. Only tierlab-harness-faulty
// contains them (TIERLAB_FAULTS): it accepts the request key `fault NAME`, which the real harness
// refuses as unknown. In a real build every function here is empty and vanishes.
#pragma once

#include "request.h"

#include <cstdint>
#include <vector>

namespace tierlab::faults {

#ifdef TIERLAB_FAULTS

// Throws RequestError if the request asks for a fault that is unknown or cannot hit its type.
void check(const Request & request);

// The path that really computes: another than the request's for `other_kernel`.
Path path_taken(const Request & request);

void spoil_weights(const Request & request, std::vector<uint8_t> & weights);
void spoil_activations(const Request & request, uint8_t * activations, size_t bytes);

// Happens where the kernel would start; may not return. True: the kernel is to be left out.
bool replaces_kernel(const Request & request, uint8_t * activations_end, uint8_t * output_end);

void spoil_output(const Request & request, float * output, int64_t elements, int turn);

#else

inline void check(const Request &) {}

inline Path path_taken(const Request & request) {
    return request.path;
}

inline void spoil_weights(const Request &, std::vector<uint8_t> &) {}

inline void spoil_activations(const Request &, uint8_t *, size_t) {}

inline bool replaces_kernel(const Request &, uint8_t *, uint8_t *) {
    return false;
}

inline void spoil_output(const Request &, float *, int64_t, int) {}

#endif

}  // namespace tierlab::faults
