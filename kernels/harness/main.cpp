// SPDX-License-Identifier: MIT
//
// tierlab-harness: says hello, then answers one request after another until the lab hangs up.
#include "hello.h"
#include "operations.h"
#include "receipt.h"
#include "signals.h"

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>

namespace tierlab {

namespace {

using Options = std::map<std::string, std::string>;

Options parse_options(int count, char ** arguments) {
    Options options = { { "socket", "" }, { "arena", "" }, { "backend-dir", "" }, { "build-id", "" } };
    for (int index = 1; index < count; index += 2) {
        const std::string word = arguments[index];
        const auto        name = word.rfind("--", 0) == 0 ? options.find(word.substr(2)) : options.end();
        if (name == options.end() || index + 1 == count) {
            throw std::runtime_error("unknown option or option without value: " + word);
        }
        name->second = arguments[index + 1];
    }
    if (options["socket"].empty() || options["arena"].empty()) {
        throw std::runtime_error(
            "usage: tierlab-harness --socket PATH --arena PATH [--backend-dir DIR] [--build-id TEXT]");
    }
    return options;
}

Answer run(const Request & request, Bench & bench) {
    switch (request.operation) {
        case Operation::mul_mat:
        case Operation::mul_mat_id: return run_product(request, bench);
        case Operation::claim: return run_claim(request, bench);
        case Operation::quantize: return run_quantize(request, bench);
        case Operation::dequantize: return run_dequantize(request, bench);
        case Operation::quantize_weights: return run_quantize_weights(request, bench);
    }
    throw RequestError("unknown operation");
}

Record describe(int64_t cell, const Answer & answer) {
    Record record;
    record.add("cell", cell);
    record.add("status", answer.unclaimed ? "unclaimed" : "ok");
    record.add("claimed", answer.claimed ? 1 : 0);
    if (!answer.message.empty()) {
        record.add("message", answer.message);
    }
    for (const auto & kernel : answer.ran) {
        record.add("ran", kernel.first + " " + std::to_string(kernel.second));
    }
    record.add("unwritten", answer.unwritten);
    record.add("unstable", answer.unstable);
    if (!answer.guard.empty()) {
        record.add("guard", answer.guard);
    }
    record.add("kernel_ns", answer.kernel_ns);
    return record;
}

Record refuse(int64_t cell, const std::string & message) {
    Record record;
    record.add("cell", cell);
    record.add("status", "error");
    record.add("message", message);
    return record;
}

Record answer(const Record & record, Bench & bench) {
    try {
        const Request request = parse_request(record);
        return describe(request.cell, run(request, bench));
    } catch (const RequestError & error) {
        return refuse(cell_of(record), error.what());
    }
}

void serve(const Options & options) {
    Connection connection(options.at("socket"));
    Arena      arena(options.at("arena"));
    Backend    backend(options.at("backend-dir"));
    Buffers    buffers;
    Bench      bench = { backend, arena, buffers };
    connection.send(hello(options.at("build-id"), backend, receipt_install(backend.file())));
    while (const auto record = connection.receive()) {
        connection.send(answer(*record, bench));
    }
}

}  // namespace

}  // namespace tierlab

int main(int count, char ** arguments) {
    // ggml would start a debugger to print a backtrace; the reporter says what is needed.
    setenv("GGML_NO_BACKTRACE", "1", 1);
    tierlab::install_crash_reporter();
    try {
        tierlab::serve(tierlab::parse_options(count, arguments));
    } catch (const std::exception & error) {
        std::fprintf(stderr, "tierlab-harness: %s\n", error.what());
        return 2;
    }
    return 0;
}
