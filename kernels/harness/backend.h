// SPDX-License-Identifier: MIT
#pragma once

#include "ggml_compat.h"
#include "request.h"

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tierlab {

// A loadable CPU backend that lay in the backend folder, and what its own probe said of this CPU.
struct Candidate {
    std::string file;
    int         score;
};

// The CPU backend that ggml itself chose, or the one that is linked in.
class Backend {
public:
    // `folder` holds the loadable backends; ignored where the backend is linked in.
    explicit Backend(const std::string & folder);  // throws std::runtime_error
    ~Backend();
    Backend(const Backend &) = delete;
    Backend & operator=(const Backend &) = delete;

    ggml_backend_dev_t               device() const { return device_; }
    const std::string &              file() const { return file_; }        // full path, the executable if linked in
    const std::string &              variant() const { return variant_; }  // file name, `static` if linked in
    const std::vector<Candidate> &   candidates() const { return candidates_; }
    std::vector<std::string>         extra_buffer_types() const;

    // What the backend says of itself, as programs print it: name and value (`DOTPROD`, `1`).
    std::vector<std::pair<std::string, std::string>> banner() const;

    // The buffer type behind a path; nullptr if the device does not offer it.
    ggml_backend_buffer_type_t buffer_type(Path path) const;

    // An empty buffer of the path's type: what a program places a weight in when it only asks.
    ggml_backend_buffer_t empty_buffer(Path path);

    size_t alignment() const;

    // The loaded backend's own table entry, not the one of a library that happens to be linked.
    const ggml_type_traits_cpu * traits(ggml_type type) const { return traits_(type); }

    // Computes the graph and returns the nanoseconds it took; throws RequestError if ggml refuses.
    int64_t compute(ggml_cgraph * graph, int threads);

private:
    void find_device(const std::string & folder);
    void find_file();
    void use_threads(int threads);
    template <typename Function> Function procedure(const char * name) const;

    ggml_backend_reg_t               registry_ = nullptr;
    ggml_backend_dev_t               device_   = nullptr;
    ggml_backend_t                   backend_  = nullptr;
    std::string                      file_, variant_;
    std::vector<Candidate>           candidates_;
    TypeTraitsCpu                    traits_ = nullptr;
    std::map<int, ggml_threadpool_t> pools_;
    std::map<Path, ggml_backend_buffer_t> empty_;
};

}  // namespace tierlab
