// SPDX-License-Identifier: MIT
#include "arena.h"

#include "request.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <stdexcept>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tierlab {

Arena::Arena(const std::string & path) {
    const int descriptor = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (descriptor < 0) {
        throw std::runtime_error("cannot open the arena " + path + ": " + std::strerror(errno));
    }
    struct stat status = {};
    void *      mapped = MAP_FAILED;
    if (fstat(descriptor, &status) == 0 && status.st_size > 0) {
        bytes_ = static_cast<size_t>(status.st_size);
        mapped = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    }
    const int reason = errno;
    close(descriptor);
    if (mapped == MAP_FAILED) {
        throw std::runtime_error("cannot map the arena " + path + ": " + std::strerror(reason));
    }
    base_ = static_cast<uint8_t *>(mapped);
}

Arena::~Arena() {
    if (base_ != nullptr) {
        munmap(base_, bytes_);
    }
}

uint8_t * Arena::at(const Span & span, const char * what) const {
    if (!span.present) {
        throw RequestError(std::string("the request does not say where its ") + what + " lie");
    }
    // Written so that no sum can wrap: the offset comes from outside.
    if (span.bytes > bytes_ || span.offset > bytes_ - span.bytes) {
        throw RequestError(std::string(what) + " lie outside the arena: offset " + std::to_string(span.offset) +
                           ", " + std::to_string(span.bytes) + " bytes, arena " + std::to_string(bytes_));
    }
    return base_ + span.offset;
}

}  // namespace tierlab
