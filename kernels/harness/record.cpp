// SPDX-License-Identifier: MIT
#include "record.h"

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace tierlab {

namespace {

// A request is a few hundred bytes; more than this means that the two sides have lost step.
constexpr size_t max_record_bytes = 1 << 16;

// A value is the rest of a line, so it cannot hold a line break itself.
std::string one_line(std::string value) {
    for (char & c : value) {
        if (c == '\n' || c == '\r') {
            c = ' ';
        }
    }
    return value;
}

}  // namespace

void Record::add(std::string key, std::string value) {
    lines_.emplace_back(std::move(key), std::move(value));
}

void Record::add(std::string key, int64_t value) {
    add(std::move(key), std::to_string(value));
}

const std::string * Record::find(const std::string & key) const {
    for (const auto & line : lines_) {
        if (line.first == key) {
            return &line.second;
        }
    }
    return nullptr;
}

std::string Record::text() const {
    std::string text;
    for (const auto & line : lines_) {
        text += line.first + ' ' + one_line(line.second) + '\n';
    }
    return text + "end\n";
}

Connection::Connection(const std::string & path) {
    sockaddr_un address = {};
    address.sun_family  = AF_UNIX;
    if (path.size() >= sizeof(address.sun_path)) {
        throw std::runtime_error("socket path is longer than a Unix socket allows: " + path);
    }
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    descriptor_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (descriptor_ < 0 ||
        connect(descriptor_, reinterpret_cast<const sockaddr *>(&address), sizeof(address)) != 0) {
        throw std::runtime_error("cannot connect to " + path + ": " + std::strerror(errno));
    }
}

Connection::~Connection() {
    if (descriptor_ >= 0) {
        close(descriptor_);
    }
}

bool Connection::next_line(std::string & line) {
    for (;;) {
        const size_t newline = pending_.find('\n', consumed_);
        if (newline != std::string::npos) {
            line      = pending_.substr(consumed_, newline - consumed_);
            consumed_ = newline + 1;
            return true;
        }
        pending_.erase(0, consumed_);
        consumed_ = 0;
        if (pending_.size() > max_record_bytes) {
            throw std::runtime_error("a request line exceeds 64 KiB");
        }
        char          chunk[4096];
        const ssize_t got = read(descriptor_, chunk, sizeof(chunk));
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return false;
        }
        pending_.append(chunk, static_cast<size_t>(got));
    }
}

std::optional<Record> Connection::receive() {
    Record      record;
    std::string line;
    size_t      bytes = 0;
    while (next_line(line)) {
        if (line == "end") {
            return record;
        }
        bytes += line.size();
        if (bytes > max_record_bytes) {
            throw std::runtime_error("a request exceeds 64 KiB");
        }
        const size_t blank = line.find(' ');
        record.add(line.substr(0, blank), blank == std::string::npos ? "" : line.substr(blank + 1));
    }
    return std::nullopt;
}

void Connection::send(const Record & record) {
    const std::string text = record.text();
    size_t            sent = 0;
    while (sent < text.size()) {
        // MSG_NOSIGNAL: a lab that has gone away must end the harness, not kill it with SIGPIPE.
        const ssize_t wrote = ::send(descriptor_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
        if (wrote < 0 && errno == EINTR) {
            continue;
        }
        if (wrote <= 0) {
            throw std::runtime_error("the lab closed the socket before its answer was written");
        }
        sent += static_cast<size_t>(wrote);
    }
}

}  // namespace tierlab
