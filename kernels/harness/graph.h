// SPDX-License-Identifier: MIT
#pragma once

#include "backend.h"
#include "request.h"

#include <vector>

namespace tierlab {

// The ggml graph of one product; tensors are described, not yet placed in memory.
class ProductGraph {
public:
    explicit ProductGraph(const Request & request);
    ~ProductGraph();
    ProductGraph(const ProductGraph &) = delete;
    ProductGraph & operator=(const ProductGraph &) = delete;

    ggml_tensor * weights     = nullptr;
    ggml_tensor * store       = nullptr;  // what the activations are a view of; the activations if contiguous
    ggml_tensor * activations = nullptr;
    ggml_tensor * ids         = nullptr;  // of a product by expert
    ggml_tensor * result      = nullptr;
    ggml_cgraph * graph       = nullptr;

    // Would the device compute this with its weights in the path's buffer type? Asked as a program
    // that loads a model asks: with the weight in an empty buffer of that type.
    bool claimed_by(Backend & backend, Path path) const;

private:
    void make_activations(const Request & request);

    std::vector<uint8_t> memory_;
    ggml_context *       context_ = nullptr;
};

}  // namespace tierlab
