// SPDX-License-Identifier: MIT
//
// Everything that depends on the version of ggml, in one place. The rest of the harness uses only the
// registry and graph interfaces that have been stable since loadable backends came (late 2024).
#pragma once

#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml.h"

#if __has_include("ggml-backend-impl.h")
#    include "ggml-backend-impl.h"
#    define TIERLAB_HAS_BUFFER_LAYOUT 1
#endif

namespace tierlab {

using TypeTraitsCpu   = const ggml_type_traits_cpu * (*) (ggml_type);
using ThreadpoolNew   = ggml_threadpool_t (*)(ggml_threadpool_params *);
using ThreadpoolFree  = void (*)(ggml_threadpool_t);
using SetThreadpool   = void (*)(ggml_backend_t, ggml_threadpool_t);

// Makes a buffer of an extra buffer type keep its bytes at `memory` instead of where its own
// allocator put them, so that repacked weights can lie between guard pages. CPU buffers keep nothing
// but that pointer as their context; whether the change took is checked through the public
// `get_base`. Returns the previous context, to be put back before the buffer is freed, or nullptr
// if this tree lays buffers out otherwise (then the weights stay unguarded).
inline void * adopt_memory(ggml_backend_buffer_t buffer, void * memory) {
#ifdef TIERLAB_HAS_BUFFER_LAYOUT
    void * const previous = buffer->context;
    if (ggml_backend_buffer_get_base(buffer) == previous) {
        buffer->context = memory;
        if (ggml_backend_buffer_get_base(buffer) == memory) {
            return previous;
        }
        buffer->context = previous;
    }
#else
    (void) buffer;
    (void) memory;
#endif
    return nullptr;
}

inline void return_memory(ggml_backend_buffer_t buffer, void * previous) {
#ifdef TIERLAB_HAS_BUFFER_LAYOUT
    buffer->context = previous;
#else
    (void) buffer;
    (void) previous;
#endif
}

}  // namespace tierlab
