// SPDX-License-Identifier: MIT
//
// MUL_MAT and MUL_MAT_ID through ggml's own graph computation, and the question who claims them.
#include "faults.h"
#include "graph.h"
#include "operations.h"
#include "receipt.h"

#include <algorithm>
#include <cstring>
#include <optional>

namespace tierlab {

namespace {

// A ggml buffer around one guarded tensor; freed before its memory is used again.
class PlacedTensor {
public:
    // Host memory: the plain CPU buffer type.
    PlacedTensor(GuardedBuffer & guarded, ggml_tensor * tensor, const Backend & backend) {
        const size_t bytes = ggml_nbytes(tensor);
        data_   = guarded.place(bytes, backend.alignment());
        buffer_ = ggml_backend_cpu_buffer_from_ptr(data_, bytes);
        ggml_backend_tensor_alloc(buffer_, tensor, data_);
    }

    // A buffer type of the device's own, which decides how much memory the tensor takes.
    PlacedTensor(GuardedBuffer & guarded, ggml_tensor * tensor, const Backend & backend,
                 ggml_backend_buffer_type_t type) {
        const size_t bytes = ggml_backend_buft_get_alloc_size(type, tensor);
        buffer_ = ggml_backend_buft_alloc_buffer(type, bytes);
        if (buffer_ == nullptr) {
            throw RequestError("no memory for " + std::to_string(bytes) + " bytes of weights");
        }
        ggml_backend_buffer_set_usage(buffer_, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
        data_     = guarded.place(bytes, backend.alignment());
        previous_ = adopt_memory(buffer_, data_);
        if (previous_ == nullptr) {
            data_ = static_cast<uint8_t *>(ggml_backend_buffer_get_base(buffer_));
        }
        ggml_backend_tensor_alloc(buffer_, tensor, data_);
    }

    ~PlacedTensor() {
        if (previous_ != nullptr) {
            return_memory(buffer_, previous_);
        }
        ggml_backend_buffer_free(buffer_);
    }

    PlacedTensor(const PlacedTensor &) = delete;
    PlacedTensor & operator=(const PlacedTensor &) = delete;

    uint8_t * data() const { return data_; }

private:
    ggml_backend_buffer_t buffer_   = nullptr;
    void *                previous_ = nullptr;
    uint8_t *             data_     = nullptr;
};

// Where the request's tensors lie in the arena; sizes are checked here, before anything runs.
struct Inputs {
    const uint8_t * weights;
    const uint8_t * activations;
    const uint8_t * ids;
    uint8_t *       output;
};

void check_ids(const Request & request, const uint8_t * ids) {
    for (int64_t index = 0; index < request.m * request.used; ++index) {
        int32_t id;
        std::memcpy(&id, ids + index * int64_t(sizeof(id)), sizeof(id));
        if (id < 0 || id >= request.experts) {
            throw RequestError("expert " + std::to_string(id) + " does not exist");
        }
    }
}

Inputs find_inputs(const Request & request, const ProductGraph & product, const Arena & arena) {
    Inputs inputs = {};
    inputs.weights = exact(arena, request.weights, ggml_nbytes(product.weights), "weights");
    // The last row may or may not bring its padding along.
    const uint64_t least = ggml_nbytes(product.store);
    const uint64_t pad   = request.row_stride - ggml_row_size(request.activation_type, request.k);
    inputs.activations   = arena.at(request.activations, "activations");
    if (request.activations.bytes != least && request.activations.bytes != least + pad) {
        throw RequestError("activations have " + std::to_string(request.activations.bytes) +
                           " bytes, the request needs " + std::to_string(least));
    }
    if (request.by_expert()) {
        inputs.ids = exact(arena, request.ids, ggml_nbytes(product.ids), "ids");
        check_ids(request, inputs.ids);
    }
    inputs.output = exact(arena, request.output, ggml_nbytes(product.result), "output");
    return inputs;
}

// Rows as the lab sent them; between them canaries, whatever the lab left there.
void copy_activations(const Request & request, const uint8_t * source, uint8_t * target, size_t bytes) {
    const size_t row = ggml_row_size(request.activation_type, request.k);
    if (request.row_stride != row) {
        std::memset(target, 0xff, bytes);
    }
    for (size_t at = 0; at < bytes; at += request.row_stride) {
        std::memcpy(target + at, source + at, row);
    }
}

void set_weights(const Request & request, ggml_tensor * weights, const uint8_t * source) {
    const size_t         bytes = ggml_nbytes(weights);
    std::vector<uint8_t> spoilt;
    if (!request.fault.empty()) {
        spoilt.assign(source, source + bytes);
        faults::spoil_weights(request, spoilt);
        source = spoilt.data();
    }
    ggml_backend_tensor_set(weights, source, 0, bytes);
}

int64_t count_different(const uint8_t * left, const uint8_t * right, size_t bytes) {
    int64_t different = 0;
    for (size_t at = 0; at < bytes; at += sizeof(float)) {
        different += std::memcmp(left + at, right + at, sizeof(float)) != 0;
    }
    return different;
}

// Runs the graph as often as asked; the arena's output holds the first result, `unstable` counts
// elements in which any later one differs.
void compute(const Request & request, const ProductGraph & product, Bench & bench, uint8_t * output,
             Answer & answer) {
    uint8_t * const result = static_cast<uint8_t *>(product.result->data);
    const size_t    bytes  = ggml_nbytes(product.result);
    uint8_t * const activations_end = static_cast<uint8_t *>(product.store->data) + ggml_nbytes(product.store);
    for (int turn = 0; turn < request.repeat; ++turn) {
        fill_sentinel(result, bytes);
        receipt_reset();
        if (!faults::replaces_kernel(request, activations_end, result + bytes)) {
            answer.kernel_ns += bench.backend.compute(product.graph, request.threads);
        }
        faults::spoil_output(request, reinterpret_cast<float *>(result), int64_t(bytes / sizeof(float)), turn);
        if (turn == 0) {
            answer.ran       = receipt_read();
            answer.unwritten = count_unwritten(result, bytes, sizeof(float));
            std::memcpy(output, result, bytes);
        } else {
            answer.unstable = std::max(answer.unstable, count_different(output, result, bytes));
        }
    }
}

}  // namespace

Answer run_product(const Request & request, Bench & bench) {
    faults::check(request);
    ProductGraph product(request);
    const Inputs inputs = find_inputs(request, product, bench.arena);
    Answer       answer;
    answer.claimed = product.claimed_by(bench.backend, request.path);
    if (!answer.claimed) {
        answer.unclaimed = true;
        return answer;
    }
    Buffers & buffers = bench.buffers;
    const Path path   = faults::path_taken(request);
    const auto type   = bench.backend.buffer_type(path);
    if (path != request.path && !product.claimed_by(bench.backend, path)) {
        throw RequestError("fault " + request.fault + ": there is no other path that takes this product");
    }

    std::optional<PlacedTensor> weights, ids;
    if (path == Path::standard) {
        weights.emplace(buffers.weights, product.weights, bench.backend);
    } else {
        weights.emplace(buffers.weights, product.weights, bench.backend, type);
    }
    set_weights(request, product.weights, inputs.weights);
    const PlacedTensor activations(buffers.activations, product.store, bench.backend);
    if (product.activations != product.store) {
        ggml_backend_view_init(product.activations);
    }
    copy_activations(request, inputs.activations, activations.data(), ggml_nbytes(product.store));
    faults::spoil_activations(request, activations.data(), ggml_nbytes(product.store));
    if (request.by_expert()) {
        ids.emplace(buffers.ids, product.ids, bench.backend);
        std::memcpy(ids->data(), inputs.ids, ggml_nbytes(product.ids));
        buffers.ids.seal();
    }
    const PlacedTensor output(buffers.output, product.result, bench.backend);
    buffers.weights.seal();
    buffers.activations.seal();

    compute(request, product, bench, inputs.output, answer);
    answer.guard = first_damage(buffers);
    return answer;
}

Answer run_claim(const Request & request, Bench & bench) {
    const ProductGraph product(request);
    Answer             answer;
    answer.claimed   = product.claimed_by(bench.backend, request.path);
    answer.unclaimed = !answer.claimed;
    return answer;
}

}  // namespace tierlab
