// SPDX-License-Identifier: MIT
#include "counters_a64.h"

namespace tierlab::a64 {
namespace {

// Encodings are those of the Arm Architecture Reference Manual (DDI 0487), section C4.1.
constexpr std::uint32_t insn_b = 0x14000000;
constexpr std::uint32_t insn_bl = 0x94000000;
constexpr std::uint32_t branch_mask = 0xFC000000;

bool is_conditional(std::uint32_t word) { return (word & 0xFF000000) == 0x54000000; }         // B.cond, BC.cond
bool is_compare_zero(std::uint32_t word) { return (word & 0x7E000000) == 0x34000000; }        // CBZ, CBNZ
bool is_test_bit(std::uint32_t word) { return (word & 0x7E000000) == 0x36000000; }            // TBZ, TBNZ
bool is_compare_branch(std::uint32_t word) { return (word & 0x7E000000) == 0x74000000; }      // FEAT_CMPBR
bool is_adr(std::uint32_t word) { return (word & 0x1F000000) == 0x10000000; }                 // ADR, ADRP
bool is_load_literal(std::uint32_t word) { return (word & 0x3B000000) == 0x18000000; }
bool is_blr(std::uint32_t word) { return (word & 0xFFFFFC1F) == 0xD63F0000; }

std::int64_t sign_extend(std::uint32_t value, unsigned bits) {
    const std::uint64_t sign = std::uint64_t{1} << (bits - 1);
    return static_cast<std::int64_t>((value ^ sign) - sign);
}

std::uint32_t field(std::uint32_t word, unsigned low, unsigned bits) { return (word >> low) & ((1u << bits) - 1); }

std::uint64_t plus_words(std::uint64_t pc, std::int64_t words) { return pc + static_cast<std::uint64_t>(4 * words); }

std::uint64_t adr_value(std::uint32_t word, std::uint64_t pc) {
    const std::int64_t offset = sign_extend(field(word, 5, 19) << 2 | field(word, 29, 2), 21);
    if (word >> 31) { // ADRP counts pages
        return (pc & ~std::uint64_t{0xFFF}) + (static_cast<std::uint64_t>(offset) << 12);
    }
    return pc + static_cast<std::uint64_t>(offset);
}

// The load through a base register that does what a PC-relative load did: base x16, offset 0.
std::uint32_t load_from_x16(std::uint32_t word) {
    constexpr std::uint32_t general[] = {0xB9400000, 0xF9400000, 0xB9800000, 0xF9800000}; // W, X, SW, PRFM
    constexpr std::uint32_t vector[] = {0xBD400000, 0xFD400000, 0x3DC00000, 0};           // S, D, Q
    const std::uint32_t kind = word >> 30;
    return ((word >> 26 & 1) ? vector[kind] : general[kind]) | 16u << 5 | field(word, 0, 5);
}

class Writer {
public:
    Writer(std::uint64_t address, Slot & slot) : address_(address), slot_(slot) {}

    void put(std::uint32_t word) { slot_.words[next_++] = word; }
    std::uint64_t here() const { return address_ + 4 * next_; }

    void literal(std::size_t index, std::uint64_t value) {
        slot_.words[2 * index] = static_cast<std::uint32_t>(value);
        slot_.words[2 * index + 1] = static_cast<std::uint32_t>(value >> 32);
    }

    // LDR Xn, =literal: the literals lie before the code, so the offset is negative.
    void load(unsigned reg, std::size_t index) {
        const auto words = static_cast<std::uint32_t>(2 * index - next_) & 0x7FFFF;
        put(0x58000000 | words << 5 | reg);
    }

    void jump(std::uint64_t target) {
        const auto word = branch(here(), target);
        reachable_ = reachable_ && word.has_value();
        put(word.value_or(0));
    }

    bool reachable() const { return reachable_; }

private:
    std::uint64_t address_;
    Slot & slot_;
    std::size_t next_ = slot_entry_bytes / 4;
    bool reachable_ = true;
};

void put_count(Writer & out, bool lse) {
    if (lse) {
        out.load(16, 0);
        out.put(0xD2800031); // mov x17, #1
        out.put(0xF831021F); // stadd x17, [x16]
        return;
    }
    out.put(0xF81F0FEF); // str x15, [sp, #-16]!
    out.load(16, 0);
    out.put(0xC85F7E11); // ldxr x17, [x16]
    out.put(0x91000631); // add x17, x17, #1
    out.put(0xC80F7E11); // stxr w15, x17, [x16]
    out.put(0x35FFFFAF); // cbnz w15, ldxr
    out.put(0xF84107EF); // ldr x15, [sp], #16
}

// A conditional branch keeps its condition and skips the way back: `cond +8; b site+4; b target`.
void put_conditional(Writer & out, std::uint32_t word, unsigned offset_bits, std::uint64_t next, std::uint64_t target) {
    const std::uint32_t mask = ((1u << offset_bits) - 1) << 5;
    out.put((word & ~mask) | 2u << 5);
    out.jump(next);
    out.jump(target);
}

void put_displaced(Writer & out, std::uint32_t word, std::uint64_t site) {
    const std::uint64_t next = site + 4;
    if ((word & branch_mask) == insn_bl) { // the callee must return into the function, not here
        out.literal(1, next);
        out.load(30, 1);
        out.jump(plus_words(site, sign_extend(field(word, 0, 26), 26)));
    } else if (is_blr(word)) {
        out.literal(1, next);
        out.put(0xAA0003F0 | field(word, 5, 5) << 16); // mov x16, xn: xn may be x30
        out.load(30, 1);
        out.put(0xD61F0200); // br x16
    } else if (const auto target = jump_target(word, site)) {
        if ((word & branch_mask) == insn_b) {
            out.jump(*target);
        } else {
            put_conditional(out, word, is_test_bit(word) ? 14 : 19, next, *target);
        }
    } else if (is_adr(word)) {
        out.literal(1, adr_value(word, site));
        out.load(field(word, 0, 5), 1);
        out.jump(next);
    } else if (is_load_literal(word)) {
        out.literal(1, plus_words(site, sign_extend(field(word, 5, 19), 19)));
        out.load(16, 1);
        out.put(load_from_x16(word));
        out.jump(next);
    } else {
        out.put(word);
        out.jump(next);
    }
}

} // namespace

bool is_landing_pad(std::uint32_t word) {
    const bool bti = (word & 0xFFFFFF3F) == 0xD503241F;
    return bti || word == 0xD503233F || word == 0xD503237F;
}

std::optional<std::uint64_t> jump_target(std::uint32_t word, std::uint64_t pc) {
    if ((word & branch_mask) == insn_b) {
        return plus_words(pc, sign_extend(field(word, 0, 26), 26));
    }
    if (is_conditional(word) || is_compare_zero(word)) {
        return plus_words(pc, sign_extend(field(word, 5, 19), 19));
    }
    if (is_test_bit(word)) {
        return plus_words(pc, sign_extend(field(word, 5, 14), 14));
    }
    if (is_compare_branch(word)) {
        return plus_words(pc, sign_extend(field(word, 5, 9), 9));
    }
    return std::nullopt;
}

std::string immovable(std::uint32_t word) {
    if (word >> 16 == 0) {
        return "begins with data, not code";
    }
    if (is_compare_branch(word)) {
        return "begins with a compare-and-branch of FEAT_CMPBR, whose reach is too short to move it";
    }
    const bool signs_with_pc = (word & 0xFFFFDBFF) == 0xDAC183FE;
    const bool checks_with_pc = (word & 0xFFC0001F) == 0xF380001F || (word & 0xFF000000) == 0x55000000;
    if (signs_with_pc || checks_with_pc || word == 0xD50324FF) {
        return "begins with an instruction of FEAT_PAuth_LR that uses its own address";
    }
    if ((word & 0xFEFFF800) == 0xD63F0800) {
        return "begins with an authenticated call";
    }
    return "";
}

std::optional<std::uint32_t> branch(std::uint64_t from, std::uint64_t to) {
    const auto distance = static_cast<std::int64_t>(to - from);
    if (distance < -branch_reach || distance >= branch_reach || distance % 4 != 0) {
        return std::nullopt;
    }
    return insn_b | (static_cast<std::uint32_t>(distance / 4) & ~branch_mask);
}

std::optional<Slot> trampoline(std::uint64_t slot, std::uint64_t site, std::uint32_t word, std::uint64_t counter,
                               bool lse) {
    Slot code{};
    Writer out(slot, code);
    out.literal(0, counter);
    put_count(out, lse);
    put_displaced(out, word, site);
    if (!out.reachable()) {
        return std::nullopt;
    }
    return code;
}

} // namespace tierlab::a64
