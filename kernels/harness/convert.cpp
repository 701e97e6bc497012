// SPDX-License-Identifier: MIT
//
// Conversions between float rows and blocks: the backend's (quantize), the library's (dequantize)
// and the quantiser that makes model files (quantize_weights).
#include "operations.h"
#include "receipt.h"

#include <chrono>
#include <cstring>
#include <functional>
#include <thread>

namespace tierlab {

namespace {

// Runs `convert` once for each row, from guarded memory to guarded memory.
Answer convert_rows(const Request & request, Bench & bench, int64_t rows, size_t row_in, size_t row_out,
                    size_t element_out, const Span & from,
                    const std::function<void(const uint8_t *, uint8_t *)> & convert) {
    const size_t    bytes_in  = size_t(rows) * row_in;
    const size_t    bytes_out = size_t(rows) * row_out;
    const uint8_t * source    = exact(bench.arena, from, bytes_in, "inputs");
    uint8_t *       target    = exact(bench.arena, request.output, bytes_out, "output");
    const size_t    alignment = bench.backend.alignment();

    uint8_t * const input = bench.buffers.activations.place(bytes_in, alignment);
    std::memcpy(input, source, bytes_in);
    bench.buffers.activations.seal();
    uint8_t * const output = bench.buffers.output.place(bytes_out, alignment);
    fill_sentinel(output, bytes_out);

    Answer answer;
    receipt_reset();
    const auto start = std::chrono::steady_clock::now();
    for (int64_t row = 0; row < rows; ++row) {
        convert(input + size_t(row) * row_in, output + size_t(row) * row_out);
    }
    const auto spent = std::chrono::steady_clock::now() - start;
    answer.ran       = receipt_read();
    answer.kernel_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(spent).count();
    answer.unwritten = count_unwritten(output, bytes_out, element_out);
    answer.guard     = first_damage(bench.buffers);
    std::memcpy(target, output, bytes_out);
    return answer;
}

Answer nobody_converts(const std::string & message) {
    Answer answer;
    answer.claimed   = false;
    answer.unclaimed = true;
    answer.message   = message;
    return answer;
}

}  // namespace

Answer run_quantize(const Request & request, Bench & bench) {
    const auto * traits  = bench.backend.traits(request.weight_type);
    const auto   convert = traits == nullptr ? nullptr : traits->from_float;
    if (convert == nullptr) {
        return nobody_converts("the backend has no from_float for " + type_name(request.weight_type));
    }
    return convert_rows(request, bench, request.m, size_t(request.k) * sizeof(float),
                        ggml_row_size(request.weight_type, request.k), ggml_type_size(request.weight_type),
                        request.activations, [&](const uint8_t * from, uint8_t * to) {
                            convert(reinterpret_cast<const float *>(from), to, request.k);
                        });
}

Answer run_dequantize(const Request & request, Bench & bench) {
    const auto convert = ggml_get_type_traits(request.weight_type)->to_float;
    if (convert == nullptr) {
        return nobody_converts("ggml has no to_float for " + type_name(request.weight_type));
    }
    return convert_rows(request, bench, request.n, ggml_row_size(request.weight_type, request.k),
                        size_t(request.k) * sizeof(float), sizeof(float), request.weights,
                        [&](const uint8_t * from, uint8_t * to) {
                            convert(from, reinterpret_cast<float *>(to), request.k);
                        });
}

Answer run_quantize_weights(const Request & request, Bench & bench) {
    const ggml_type type      = request.weight_type;
    const size_t    row_bytes = ggml_row_size(type, request.k);
    const auto * source = reinterpret_cast<const float *>(
        exact(bench.arena, request.activations, uint64_t(request.n) * request.k * sizeof(float), "activations"));
    uint8_t * target = exact(bench.arena, request.output, uint64_t(request.n) * row_bytes, "output");
    if (!ggml_is_quantized(type) && type != GGML_TYPE_F32 && type != GGML_TYPE_F16 && type != GGML_TYPE_BF16) {
        return nobody_converts("ggml does not quantise to " + type_name(type));
    }
    // Some types refuse to be made without an importance of each column; equal ones say nothing.
    const std::vector<float> equal(ggml_quantize_requires_imatrix(type) ? size_t(request.k) : 0, 1.0f);
    const float * const      importance = equal.empty() ? nullptr : equal.data();
    ggml_quantize_init(type);

    const auto start = std::chrono::steady_clock::now();
    std::vector<std::thread> workers;
    for (int worker = 0; worker < request.threads; ++worker) {
        const int64_t first = request.n * worker / request.threads;
        const int64_t last  = request.n * (worker + 1) / request.threads;
        if (first < last) {
            workers.emplace_back([=] {
                ggml_quantize_chunk(type, source, target, first * request.k, last - first, request.k, importance);
            });
        }
    }
    for (std::thread & worker : workers) {
        worker.join();
    }
    Answer answer;
    answer.kernel_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::steady_clock::now() - start).count();
    return answer;
}

}  // namespace tierlab
