// SPDX-License-Identifier: MIT
//
// Runs inside signal handlers: no allocation, no stdio, only write(2). dladdr is not on POSIX's list
// of safe functions; it only reads the loader's tables, and the process is dying anyway.
#include "signals.h"

#include "guarded.h"
#include "receipt.h"

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <ucontext.h>
#include <unistd.h>

namespace tierlab {

namespace {

// A frame with all of SVE and ZA at 2048 bits takes some 80 KiB; the default stack is far too small.
constexpr size_t signal_stack_bytes = 1 << 18;

std::atomic_flag reporting = ATOMIC_FLAG_INIT;
int              probe_pipe[2] = { -1, -1 };

// One line of the report, built in place and written at once.
class Line {
public:
    Line & text(const char * words) {
        while (*words != '\0' && used_ < sizeof(buffer_) - 1) {
            buffer_[used_++] = *words++;
        }
        return *this;
    }

    Line & decimal(uint64_t value) {
        char digits[24];
        int  at = sizeof(digits) - 1;
        digits[at] = '\0';
        do {
            digits[--at] = char('0' + value % 10);
            value /= 10;
        } while (value != 0);
        return text(digits + at);
    }

    Line & hex(uint64_t value, int least_digits = 1) {
        char digits[20];
        int  at = sizeof(digits) - 1;
        digits[at] = '\0';
        do {
            digits[--at] = "0123456789abcdef"[value & 15];
            value >>= 4;
            --least_digits;
        } while (value != 0 || least_digits > 0);
        return text("0x").text(digits + at);
    }

    void print() {
        buffer_[used_++] = '\n';
        // Nothing can be done about a standard error that is gone.
        const ssize_t ignored = write(STDERR_FILENO, buffer_, used_);
        (void) ignored;
    }

private:
    char   buffer_[768];
    size_t used_ = 0;
};

struct Fault {
    uintptr_t pc      = 0;
    uintptr_t caller  = 0;      // the link register, where the program counter leads nowhere
    bool      writing = false;  // of a memory access
};

#if defined(__aarch64__)

// The exception syndrome says whether the access was a write (bit 6, WnR, of a data abort).
bool find_syndrome(const ucontext_t * context, uint64_t & syndrome) {
    const auto * reserved = reinterpret_cast<const uint8_t *>(context->uc_mcontext.__reserved);
    for (size_t at = 0; at + 16 <= sizeof(context->uc_mcontext.__reserved);) {
        uint32_t header[2];
        std::memcpy(header, reserved + at, sizeof(header));
        if (header[0] == 0 || header[1] < 8) {
            return false;
        }
        if (header[0] == 0x45535201) {
            std::memcpy(&syndrome, reserved + at + 8, sizeof(syndrome));
            return true;
        }
        at += header[1];
    }
    return false;
}

// Whether an A64 memory access writes, by its encoding ("Loads and stores" and "SVE memory" of the Arm ARM).
bool is_store(uint32_t instruction) {
    const uint32_t top = instruction >> 25;
    if (top == 0b1000010 || top == 0b1010010 || top == 0b1100010) {
        return false;  // SVE: gathers and contiguous loads
    }
    if (top == 0b1110010) {
        return true;  // SVE: stores and scatters
    }
    const bool one_register = (instruction >> 27 & 0b111) == 0b111;
    const bool vector       = (instruction >> 26 & 1) != 0;
    if (one_register && !vector && (instruction >> 23 & 1) != 0) {
        return false;  // sign-extending loads have bit 22 clear for 64-bit targets
    }
    return (instruction >> 22 & 1) == 0;
}

Fault read_context(const ucontext_t * context, uint32_t instruction) {
    Fault fault;
    fault.pc     = context->uc_mcontext.pc;
    fault.caller = context->uc_mcontext.regs[30];
    uint64_t syndrome = 0;
    // Older emulators give no syndrome: then the instruction itself tells.
    fault.writing = find_syndrome(context, syndrome) ? (syndrome >> 6 & 1) != 0 : is_store(instruction);
    return fault;
}

uintptr_t program_counter(const ucontext_t * context) {
    return context->uc_mcontext.pc;
}

#elif defined(__x86_64__)

Fault read_context(const ucontext_t * context, uint32_t) {
    Fault fault;
    fault.pc      = static_cast<uintptr_t>(context->uc_mcontext.gregs[REG_RIP]);
    fault.writing = (context->uc_mcontext.gregs[REG_ERR] & 2) != 0;
    return fault;
}

uintptr_t program_counter(const ucontext_t * context) {
    return static_cast<uintptr_t>(context->uc_mcontext.gregs[REG_RIP]);
}

#else
#    error "the crash reporter knows AArch64 and x86-64"
#endif

// The kernel refuses to write from memory that cannot be read, so no second fault can arise here.
bool read_safely(uintptr_t address, uint32_t & word) {
    return write(probe_pipe[1], reinterpret_cast<const void *>(address), sizeof(word)) == ssize_t(sizeof(word)) &&
           read(probe_pipe[0], &word, sizeof(word)) == ssize_t(sizeof(word));
}

const char * base_name(const char * path) {
    const char * slash = std::strrchr(path, '/');
    return slash == nullptr ? path : slash + 1;
}

void add_place(Line & line, uintptr_t address) {
    // An illegal first instruction of a counted function faults in its counter's code.
    if (const char * counted = receipt_symbol_at(address)) {
        line.text("in ").text(counted).text("+0x0 (instruction ");
        return;
    }
    Dl_info info = {};
    if (dladdr(reinterpret_cast<void *>(address), &info) == 0 || info.dli_fname == nullptr) {
        line.text("in ?+0x0 (instruction ");
        return;
    }
    if (info.dli_sname != nullptr) {
        line.text("in ").text(info.dli_sname).text("+").hex(address - reinterpret_cast<uintptr_t>(info.dli_saddr));
    } else {
        line.text("in ").text(base_name(info.dli_fname)).text("+").hex(
            address - reinterpret_cast<uintptr_t>(info.dli_fbase));
    }
    line.text(" (instruction ");
}

void report_guard(uintptr_t address, bool writing) {
    for (const GuardedRange & range : guarded_ranges) {
        if (range.name == nullptr || address < range.low || address >= range.high) {
            continue;
        }
        Line line;
        line.text("tierlab-harness: guard ").text(writing ? "write " : "read ").text(range.name);
        if (address >= range.end) {
            line.text(" +").decimal(address - range.end).text(" bytes").print();
        } else if (address < range.begin) {
            line.text(" -").decimal(range.begin - address).text(" bytes").print();
        } else {
            line.text(" @").decimal(address - range.begin).text(" bytes").print();
        }
        return;
    }
}

void report(int number, const siginfo_t * info, const ucontext_t * context) {
    uint32_t   instruction = 0;
    const bool readable    = read_safely(program_counter(context), instruction);
    const Fault fault      = read_context(context, instruction);
    Line line;
    line.text("tierlab-harness: signal ").decimal(uint64_t(number)).text(" at ").hex(fault.pc).text(" ");
    add_place(line, readable ? fault.pc : fault.caller);
    if (readable) {
        line.hex(instruction, 8).text(")");
    } else {
        line.text("unreadable, called from there)");
    }
    const bool has_address = number == SIGSEGV || number == SIGBUS;
    if (has_address) {
        line.text(" address ").hex(reinterpret_cast<uintptr_t>(info->si_addr));
    }
    line.print();
    if (has_address) {
        report_guard(reinterpret_cast<uintptr_t>(info->si_addr), fault.writing);
    }
}

void on_signal(int number, siginfo_t * info, void * context) {
    if (reporting.test_and_set()) {
        // Another thread reports already and ends the process; two reports would mix their lines.
        for (;;) {
            pause();
        }
    }
    report(number, info, static_cast<const ucontext_t *>(context));
    signal(number, SIG_DFL);
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, number);
    sigprocmask(SIG_UNBLOCK, &one, nullptr);
    raise(number);
    _exit(128 + number);
}

}  // namespace

void install_crash_reporter() {
    // A crash is an expected outcome here; a core file of each would fill the session's folder.
    const rlimit none = { 0, 0 };
    setrlimit(RLIMIT_CORE, &none);
    if (pipe(probe_pipe) != 0) {
        probe_pipe[0] = probe_pipe[1] = -1;
    }
    void * memory = mmap(nullptr, signal_stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED) {
        stack_t stack  = {};
        stack.ss_sp    = memory;
        stack.ss_size  = signal_stack_bytes;
        sigaltstack(&stack, nullptr);
    }
    struct sigaction action = {};
    action.sa_sigaction = on_signal;
    action.sa_flags     = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    for (const int number : { SIGILL, SIGSEGV, SIGBUS, SIGFPE, SIGABRT }) {
        sigaction(number, &action, nullptr);
    }
}

}  // namespace tierlab
