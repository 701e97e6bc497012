// SPDX-License-Identifier: MIT
#include "hello.h"

#include "cpu_probe.h"
#include "request.h"

#include <cstdio>
#include <link.h>

namespace tierlab {

namespace {

std::string hex(uint64_t value) {
    char text[24];
    std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(value));
    return text;
}

void add_cpu(Record & record) {
    const CpuProbe probe = probe_cpu();
    record.add("arch", probe.arch);
    record.add("hwcap", hex(probe.hwcap));
    record.add("hwcap2", hex(probe.hwcap2));
    record.add("features", probe.features);
    record.add("vector_bits", probe.vector_bits);
    record.add("streaming_bits", probe.streaming_bits);
    record.add("fa64", probe.fa64 ? 1 : 0);
    record.add("sme_version", probe.sme_version);
}

void add_type(Record & record, ggml_type type, const ggml_type_traits_cpu * traits) {
    const bool multiplies = traits != nullptr && traits->vec_dot != nullptr;
    const bool quantises  = traits != nullptr && traits->from_float != nullptr;
    if (!multiplies && !quantises) {
        return;
    }
    record.add("type", type_name(type) + " " + std::to_string(int(type)) + " " +
                           std::to_string(ggml_blck_size(type)) + " " + std::to_string(ggml_type_size(type)) + " " +
                           (multiplies ? type_name(traits->vec_dot_type) : "-") + " " + (quantises ? "1" : "0"));
}

// The files that make up this process, as the loader names them; the program itself has no name there.
int add_object(dl_phdr_info * info, size_t, void * record) {
    if (info->dlpi_name != nullptr && info->dlpi_name[0] == '/') {
        static_cast<Record *>(record)->add("object", info->dlpi_name);
    }
    return 0;
}

}  // namespace

Record hello(const std::string & build_id, const Backend & backend, const ReceiptState & receipt) {
    Record record;
    record.add("protocol", protocol_version);
    record.add("build", build_id);
    record.add("variant", backend.variant());
    for (const Candidate & candidate : backend.candidates()) {
        record.add("score", candidate.file + " " + std::to_string(candidate.score));
    }
    add_cpu(record);
    for (const std::string & name : backend.extra_buffer_types()) {
        record.add("buft", name);
    }
    for (const auto & entry : backend.banner()) {
        record.add("banner", entry.first + " " + entry.second);
    }
    dl_iterate_phdr(add_object, &record);
    record.add("kernels", receipt.watched);
    if (!receipt.error.empty()) {
        record.add("counters_error", receipt.error);
    }
    for (const auto & kernel : receipt.refused) {
        record.add("uncounted", kernel.first + " " + kernel.second);
    }
    for (const ggml_type type : known_types()) {
        add_type(record, type, backend.traits(type));
    }
    return record;
}

}  // namespace tierlab
