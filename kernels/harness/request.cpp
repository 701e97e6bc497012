// SPDX-License-Identifier: MIT
#include "request.h"

#include <cctype>
#include <charconv>
#include <functional>
#include <map>
#include <set>
#include <sstream>

namespace tierlab {

namespace {

// Dimensions up to 2^24 and tensors up to 2^40 bytes: far above any cell, far below any overflow.
constexpr int64_t  max_dimension = int64_t(1) << 24;
constexpr uint64_t max_bytes     = uint64_t(1) << 40;
constexpr int      max_threads   = 64;

uint64_t number(const std::string & text, const std::string & key, uint64_t least, uint64_t most) {
    uint64_t   value  = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
    if (result.ec != std::errc() || result.ptr != text.data() + text.size() || value < least || value > most) {
        throw RequestError(key + " must be a whole number from " + std::to_string(least) + " to " +
                           std::to_string(most) + ", not '" + text + "'");
    }
    return value;
}

std::vector<std::string> words(const std::string & text, const std::string & key, size_t count) {
    std::istringstream       stream(text);
    std::vector<std::string> result;
    for (std::string word; stream >> word;) {
        result.push_back(word);
    }
    if (result.size() != count) {
        throw RequestError(key + " takes " + std::to_string(count) + " values, not '" + text + "'");
    }
    return result;
}

int64_t dimension(const std::string & text, const std::string & key, int64_t least = 1) {
    return int64_t(number(text, key, uint64_t(least), uint64_t(max_dimension)));
}

template <typename T>
T choice(const std::map<std::string, T> & table, const std::string & text, const std::string & key) {
    const auto found = table.find(text);
    if (found == table.end()) {
        throw RequestError("unknown " + key + " '" + text + "'");
    }
    return found->second;
}

ggml_type type_by_name(const std::string & name, const std::string & key) {
    for (const ggml_type type : known_types()) {
        if (type_name(type) == name) {
            return type;
        }
    }
    throw RequestError(key + " '" + name + "' is not a type of this ggml");
}

Span span(const std::string & text, const std::string & key) {
    const auto values = words(text, key, 2);
    return { number(values[0], key, 0, max_bytes), number(values[1], key, 1, max_bytes), true };
}

const std::map<std::string, Operation> operations = {
    { "mul_mat", Operation::mul_mat },       { "mul_mat_id", Operation::mul_mat_id },
    { "quantize", Operation::quantize },     { "dequantize", Operation::dequantize },
    { "claim", Operation::claim },           { "quantize_weights", Operation::quantize_weights },
};

const std::map<std::string, Path> paths = {
    { "default", Path::standard },
    { "repack", Path::repack },
    { "kleidiai", Path::kleidiai },
};

using Setter = std::function<void(Request &, const std::string &)>;

const std::map<std::string, Setter> setters = {
    { "cell", [](Request & r, const std::string & v) { r.cell = int64_t(number(v, "cell", 0, INT64_MAX)); } },
    { "op", [](Request & r, const std::string & v) { r.operation = choice(operations, v, "op"); } },
    { "wtype", [](Request & r, const std::string & v) { r.weight_type = type_by_name(v, "wtype"); } },
    { "atype", [](Request & r, const std::string & v) { r.activation_type = type_by_name(v, "atype"); } },
    { "path", [](Request & r, const std::string & v) { r.path = choice(paths, v, "path"); } },
    { "threads", [](Request & r, const std::string & v) { r.threads = int(number(v, "threads", 1, max_threads)); } },
    { "repeat", [](Request & r, const std::string & v) { r.repeat = int(number(v, "repeat", 1, 1000)); } },
    { "row_stride", [](Request & r, const std::string & v) { r.row_stride = number(v, "row_stride", 1, max_bytes); } },
    { "weights", [](Request & r, const std::string & v) { r.weights = span(v, "weights"); } },
    { "activations", [](Request & r, const std::string & v) { r.activations = span(v, "activations"); } },
    { "ids", [](Request & r, const std::string & v) { r.ids = span(v, "ids"); } },
    { "output", [](Request & r, const std::string & v) { r.output = span(v, "output"); } },
    { "shape",
      [](Request & r, const std::string & v) {
          const auto values = words(v, "shape", 3);
          r.m = dimension(values[0], "shape m");
          r.n = dimension(values[1], "shape n");
          r.k = dimension(values[2], "shape k");
      } },
    { "batch",
      [](Request & r, const std::string & v) {
          const auto values = words(v, "batch", 4);
          r.ne2  = dimension(values[0], "batch ne2");
          r.ne3  = dimension(values[1], "batch ne3");
          r.ne02 = dimension(values[2], "batch ne02");
          r.ne03 = dimension(values[3], "batch ne03");
      } },
    { "experts",
      [](Request & r, const std::string & v) {
          const auto values = words(v, "experts", 2);
          r.experts = dimension(values[0], "experts total");
          r.used    = dimension(values[1], "experts used");
      } },
#ifdef TIERLAB_FAULTS
    { "fault", [](Request & r, const std::string & v) { r.fault = v; } },
#endif
};

void check_row(ggml_type type, int64_t k, const char * what) {
    if (k % ggml_blck_size(type) != 0) {
        throw RequestError("k = " + std::to_string(k) + " is no multiple of the " +
                           std::to_string(ggml_blck_size(type)) + " elements in a block of " + type_name(type) +
                           " " + what);
    }
}

void check_stride(Request & request) {
    const uint64_t row = ggml_row_size(request.activation_type, request.k);
    if (request.row_stride == 0) {
        request.row_stride = row;
    }
    if (request.row_stride < row || request.row_stride % ggml_type_size(request.activation_type) != 0) {
        throw RequestError("row_stride " + std::to_string(request.row_stride) +
                           " cuts an activation row of " + std::to_string(row) + " bytes");
    }
}

void check_together(Request & request) {
    if (request.cell < 0 || request.weight_type == GGML_TYPE_COUNT || request.k == 0) {
        throw RequestError("a request needs cell, op, wtype and shape");
    }
    check_row(request.weight_type, request.k, "weights");
    if (request.operation == Operation::mul_mat_id && !request.by_expert()) {
        throw RequestError("mul_mat_id needs experts");
    }
    if (request.operation == Operation::mul_mat && request.by_expert()) {
        throw RequestError("experts belong to mul_mat_id, not to mul_mat");
    }
    if (request.by_expert() && request.used > request.experts) {
        throw RequestError("more experts used than there are");
    }
    if (request.by_expert() && request.ne2 * request.ne3 * request.ne02 * request.ne03 != 1) {
        throw RequestError("mul_mat_id takes no batch");
    }
    if (request.ne2 % request.ne02 != 0 || request.ne3 % request.ne03 != 0) {
        throw RequestError("the batch of the weights does not divide that of the activations");
    }
    check_row(request.activation_type, request.k, "activations");
    check_stride(request);
    // One product of all dimensions bounds every tensor of the request.
    const long double elements = (long double) request.m * request.n * request.k * request.ne2 * request.ne3 *
                                 (request.by_expert() ? request.experts : 1);
    if (elements > 0x1p50L) {
        throw RequestError("the product has more than 2^50 terms");
    }
}

}  // namespace

Request parse_request(const Record & record) {
    Request               request;
    std::set<std::string> seen;
    for (const auto & line : record.lines()) {
        const auto setter = setters.find(line.first);
        if (setter == setters.end()) {
            throw RequestError("unknown key '" + line.first + "'");
        }
        if (!seen.insert(line.first).second) {
            throw RequestError("key '" + line.first + "' stands twice");
        }
        setter->second(request, line.second);
    }
    if (seen.count("op") == 0) {
        throw RequestError("a request needs an op");
    }
    check_together(request);
    return request;
}

int64_t cell_of(const Record & record) {
    const std::string * text = record.find("cell");
    try {
        return text == nullptr ? -1 : int64_t(number(*text, "cell", 0, INT64_MAX));
    } catch (const RequestError &) {
        return -1;
    }
}

std::string type_name(ggml_type type) {
    std::string name = ggml_type_name(type);
    for (char & c : name) {
        c = char(std::tolower(static_cast<unsigned char>(c)));
    }
    return name;
}

std::vector<ggml_type> known_types() {
    std::vector<ggml_type> types;
    for (int index = 0; index < GGML_TYPE_COUNT; ++index) {
        const auto   type = static_cast<ggml_type>(index);
        const char * name = ggml_type_name(type);
        // Removed types keep a number but have no size.
        if (name != nullptr && *name != '\0' && ggml_type_size(type) > 0 && ggml_blck_size(type) > 0) {
            types.push_back(type);
        }
    }
    return types;
}

}  // namespace tierlab
