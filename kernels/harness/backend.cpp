// SPDX-License-Identifier: MIT
#include "backend.h"

#include <algorithm>
#include <chrono>
#include <dlfcn.h>
#include <filesystem>
#include <stdexcept>

namespace tierlab {

namespace {

namespace fs = std::filesystem;

#ifndef TIERLAB_LINKED_CPU
// Opened files stay open until `handles` are closed: ggml opens the same ones right afterwards, and
// loading one costs several milliseconds under emulation.
std::vector<Candidate> probe_candidates(const std::string & folder, std::vector<void *> & handles) {
    std::vector<Candidate> found;
    std::error_code        error;
    for (const auto & entry : fs::directory_iterator(folder, error)) {
        const std::string name = entry.path().filename().string();
        if (name.rfind("libggml-cpu", 0) != 0 || entry.path().extension() != ".so") {
            continue;
        }
        int    score  = 0;
        void * handle = dlopen(entry.path().c_str(), RTLD_NOW | RTLD_LOCAL);
        if (handle != nullptr) {
            const auto ask = reinterpret_cast<int (*)()>(dlsym(handle, "ggml_backend_score"));
            // A backend without a probe is the only one of its kind: ggml takes it as it is.
            score = ask == nullptr ? 1 : ask();
            handles.push_back(handle);
        }
        found.push_back({ name, score });
    }
    std::sort(found.begin(), found.end(), [](const auto & a, const auto & b) { return a.file < b.file; });
    return found;
}
#endif

const char * buffer_type_name(Path path) {
    switch (path) {
        case Path::repack: return "CPU_REPACK";
        case Path::kleidiai: return "CPU_KLEIDIAI";
        case Path::standard: break;
    }
    return "CPU";
}

}  // namespace

Backend::Backend(const std::string & folder) {
    find_device(folder);
    find_file();
    backend_ = ggml_backend_dev_init(device_, nullptr);
    if (backend_ == nullptr) {
        throw std::runtime_error("the CPU backend of " + file_ + " does not start");
    }
}

Backend::~Backend() {
    for (const auto & entry : empty_) {
        ggml_backend_buffer_free(entry.second);
    }
    ggml_backend_free(backend_);
    const auto release = procedure<ThreadpoolFree>("ggml_threadpool_free");
    for (const auto & entry : pools_) {
        release(entry.second);
    }
}

template <typename Function> Function Backend::procedure(const char * name) const {
    return reinterpret_cast<Function>(ggml_backend_reg_get_proc_address(registry_, name));
}

void Backend::find_device(const std::string & folder) {
#ifdef TIERLAB_LINKED_CPU
    (void) folder;
#else
    std::vector<void *> handles;
    candidates_ = probe_candidates(folder, handles);
    ggml_backend_load_all_from_path(folder.c_str());
    for (void * handle : handles) {
        dlclose(handle);
    }
#endif
    device_ = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    if (device_ == nullptr) {
        throw std::runtime_error("ggml found no CPU backend that this CPU can run in " + folder);
    }
    registry_ = ggml_backend_dev_backend_reg(device_);
}

void Backend::find_file() {
    // The registry's function lies in the backend's own file, whatever else is loaded.
    void * const inside = procedure<void *>("ggml_backend_set_n_threads");
    Dl_info      info   = {};
    const bool   found  = inside != nullptr && dladdr(inside, &info) != 0 && info.dli_fname != nullptr;
#ifdef TIERLAB_LINKED_CPU
    traits_  = ggml_get_type_traits_cpu;
    file_    = found ? info.dli_fname : "/proc/self/exe";
    variant_ = fs::path(file_).filename().string();
    if (variant_.rfind("libggml", 0) != 0) {
        variant_ = "static";
    }
#else
    if (!found) {
        throw std::runtime_error("cannot tell which file the CPU backend was loaded from");
    }
    file_    = info.dli_fname;
    variant_ = fs::path(file_).filename().string();
    void * const handle = dlopen(file_.c_str(), RTLD_NOW | RTLD_NOLOAD);
    traits_ = handle == nullptr ? nullptr :
              reinterpret_cast<TypeTraitsCpu>(dlsym(handle, "ggml_get_type_traits_cpu"));
    if (traits_ == nullptr) {
        throw std::runtime_error(variant_ + " does not export ggml_get_type_traits_cpu");
    }
#endif
}

std::vector<std::string> Backend::extra_buffer_types() const {
    std::vector<std::string> names;
    const auto list = procedure<ggml_backend_dev_get_extra_bufts_t>("ggml_backend_dev_get_extra_bufts");
    for (auto type = list == nullptr ? nullptr : list(device_); type != nullptr && *type != nullptr; ++type) {
        names.emplace_back(ggml_backend_buft_name(*type));
    }
    return names;
}

std::vector<std::pair<std::string, std::string>> Backend::banner() const {
    std::vector<std::pair<std::string, std::string>> lines;
    const auto ask = procedure<ggml_backend_get_features_t>("ggml_backend_get_features");
    for (auto entry = ask == nullptr ? nullptr : ask(registry_); entry != nullptr && entry->name != nullptr; ++entry) {
        lines.emplace_back(entry->name, entry->value);
    }
    return lines;
}

ggml_backend_buffer_type_t Backend::buffer_type(Path path) const {
    if (path == Path::standard) {
        return ggml_backend_dev_buffer_type(device_);
    }
    const std::string wanted = buffer_type_name(path);
    const auto list = procedure<ggml_backend_dev_get_extra_bufts_t>("ggml_backend_dev_get_extra_bufts");
    for (auto type = list == nullptr ? nullptr : list(device_); type != nullptr && *type != nullptr; ++type) {
        if (wanted == ggml_backend_buft_name(*type)) {
            return *type;
        }
    }
    return nullptr;
}

ggml_backend_buffer_t Backend::empty_buffer(Path path) {
    ggml_backend_buffer_t & buffer = empty_[path];
    if (buffer == nullptr) {
        buffer = ggml_backend_buft_alloc_buffer(buffer_type(path), 0);
        ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    }
    return buffer;
}

size_t Backend::alignment() const {
    return ggml_backend_buft_get_alignment(ggml_backend_dev_buffer_type(device_));
}

void Backend::use_threads(int threads) {
    procedure<ggml_backend_set_n_threads_t>("ggml_backend_set_n_threads")(backend_, threads);
    const auto create = procedure<ThreadpoolNew>("ggml_threadpool_new");
    const auto attach = procedure<SetThreadpool>("ggml_backend_cpu_set_threadpool");
    if (create == nullptr || attach == nullptr) {
        return;  // then ggml starts fresh threads for each computation
    }
    ggml_threadpool_t & pool = pools_[threads];
    if (pool == nullptr) {
        ggml_threadpool_params settings = ggml_threadpool_params_default(threads);
        // Idle workers must sleep: emulated ones that poll would take the time of those that compute.
        settings.poll = 0;
        pool          = create(&settings);
    }
    attach(backend_, pool);
}

int64_t Backend::compute(ggml_cgraph * graph, int threads) {
    use_threads(threads);
    const auto        start  = std::chrono::steady_clock::now();
    const ggml_status status = ggml_backend_graph_compute(backend_, graph);
    const auto        spent  = std::chrono::steady_clock::now() - start;
    if (status != GGML_STATUS_SUCCESS) {
        throw RequestError(std::string("ggml would not compute: ") + ggml_status_to_string(status));
    }
    return std::chrono::duration_cast<std::chrono::nanoseconds>(spent).count();
}

}  // namespace tierlab
