// SPDX-License-Identifier: MIT
// The little of the A64 instruction set that call counting needs: which first instructions may be moved,
// how a moved one is rewritten so that it means the same elsewhere, and where branches go.
// Plain computation on instruction words: compiles and can be tested on every host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace tierlab::a64 {

// One trampoline: two literals, then code. 64 bytes, so that none straddles a cache line.
constexpr std::size_t slot_words = 16;
constexpr std::size_t slot_bytes = 4 * slot_words;
constexpr std::size_t slot_entry_bytes = 16;

// Reach of B and BL in bytes, one instruction less on the positive side.
constexpr std::int64_t branch_reach = std::int64_t{1} << 27;

// A landing pad (BTI, PACIASP, PACIBSP) must stay where indirect calls arrive, so it is never moved:
// the instruction after it is.
bool is_landing_pad(std::uint32_t word);

// Target of a direct branch other than a call (B, B.cond, CBZ, TBZ, CB<cc> …) at address pc.
std::optional<std::uint64_t> jump_target(std::uint32_t word, std::uint64_t pc);

// Why the instruction cannot run at another address; empty if it can.
std::string immovable(std::uint32_t word);

// B from one address to another; nothing if it is out of reach.
std::optional<std::uint32_t> branch(std::uint64_t from, std::uint64_t to);

struct Slot {
    std::uint32_t words[slot_words];
};

// The trampoline at address `slot` for a function whose instruction `word` at address `site` is displaced.
// It adds 1 to the 64-bit counter, runs the displaced instruction and goes on at site + 4. Changes no
// register but x16 and x17, which a call may change anyway (AAPCS64 6.1.1: IP0, IP1), leaves NZCV alone and
// uses base instructions only, so it runs in streaming mode too. `lse`: the CPU has STADD; else an
// exclusive loop, which borrows x15 through the stack.
// Nothing if a branch target is out of reach.
std::optional<Slot> trampoline(std::uint64_t slot, std::uint64_t site, std::uint32_t word,
                               std::uint64_t counter, bool lse);

} // namespace tierlab::a64
