// SPDX-License-Identifier: MIT
#include "graph.h"

namespace tierlab {

namespace {

constexpr size_t tensors = 8;

size_t memory_for_graph() {
    return tensors * ggml_tensor_overhead() + ggml_graph_overhead_custom(tensors, false);
}

}  // namespace

ProductGraph::ProductGraph(const Request & request) : memory_(memory_for_graph()) {
    context_ = ggml_init({ memory_.size(), memory_.data(), /* no_alloc */ true });
    if (request.by_expert()) {
        weights = ggml_new_tensor_3d(context_, request.weight_type, request.k, request.n, request.experts);
    } else {
        weights = ggml_new_tensor_4d(context_, request.weight_type, request.k, request.n, request.ne02, request.ne03);
    }
    make_activations(request);
    if (request.by_expert()) {
        ids    = ggml_new_tensor_2d(context_, GGML_TYPE_I32, request.used, request.m);
        result = ggml_mul_mat_id(context_, weights, activations, ids);
    } else {
        result = ggml_mul_mat(context_, weights, activations);
    }
    graph = ggml_new_graph_custom(context_, tensors, false);
    ggml_build_forward_expand(graph, result);
}

ProductGraph::~ProductGraph() {
    ggml_free(context_);
}

void ProductGraph::make_activations(const Request & request) {
    const ggml_type type = request.activation_type;
    // By expert: one row a token, shared by all experts of that token.
    const int64_t rows   = request.by_expert() ? 1 : request.m;
    const int64_t planes = request.by_expert() ? request.m : request.ne2;
    if (request.row_stride == ggml_row_size(type, request.k)) {
        store = activations = ggml_new_tensor_4d(context_, type, request.k, rows, planes, request.ne3);
        return;
    }
    // The store ends with the last row's last element, so that the guard begins right behind it.
    const size_t  row      = ggml_row_size(type, request.k);
    const int64_t all_rows = rows * planes * request.ne3;
    const size_t  bytes    = size_t(all_rows - 1) * request.row_stride + row;
    store       = ggml_new_tensor_1d(context_, type, int64_t(bytes / ggml_type_size(type)) * ggml_blck_size(type));
    activations = ggml_view_4d(context_, store, request.k, rows, planes, request.ne3, request.row_stride,
                               request.row_stride * rows, request.row_stride * rows * planes, 0);
}

bool ProductGraph::claimed_by(Backend & backend, Path path) const {
    if (backend.buffer_type(path) == nullptr) {
        return false;
    }
    weights->buffer    = backend.empty_buffer(path);
    const bool claimed = ggml_backend_dev_supports_op(backend.device(), result);
    weights->buffer    = nullptr;
    return claimed;
}

}  // namespace tierlab
