// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tierlab {

// A run of `key value` lines ended by `end`: the only thing that travels over the socket.
class Record {
public:
    void add(std::string key, std::string value);
    void add(std::string key, int64_t value);
    const std::vector<std::pair<std::string, std::string>> & lines() const { return lines_; }
    const std::string * find(const std::string & key) const;
    std::string text() const;

private:
    std::vector<std::pair<std::string, std::string>> lines_;
};

// The harness's end of the Unix stream socket.
class Connection {
public:
    explicit Connection(const std::string & path);  // throws std::runtime_error
    ~Connection();
    Connection(const Connection &) = delete;
    Connection & operator=(const Connection &) = delete;

    // The next record, or nothing once the lab has closed its end.
    std::optional<Record> receive();
    void send(const Record & record);

private:
    bool next_line(std::string & line);

    int         descriptor_ = -1;
    std::string pending_;
    size_t      consumed_ = 0;
};

}  // namespace tierlab
