// SPDX-License-Identifier: MIT
// Which kernel really ran: exact call counts of the kernel functions of loaded shared objects.
//
// Each kernel's first instruction is replaced by a branch to a few instructions that count, run the
// displaced instruction and go on with the second one. No emulator, debugger or recompilation is needed,
// and the same code works on hardware. docs/receipts.md says what a count means and where it ends.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

// Puts every function of the given loaded shared objects whose name matches kernel_patterns
// (counters_patterns.inc) under counting. Call once, after the objects are loaded and before any of their
// code runs on another thread. Returns the number of functions under counting; 0 only where counters do not
// exist (not AArch64); -1 on failure, with the reason in counters_error(): a path that is not loaded or holds
// no kernel function is a failure, never a zero. After a failure no count may be trusted.
int counters_install(const std::vector<std::string> & shared_object_paths);

// Why counters_install returned -1: one line.
const std::string & counters_error();

// Kernel functions that cannot be counted exactly, with the reason. Their absence from counters_read() means
// nothing: whoever expects one of them has no receipt.
std::vector<std::pair<std::string, std::string>> counters_refused();

// Sets all counts to zero. No counted function may be running.
void counters_reset();

// Calls since the last reset, by symbol, counts above zero only. Names of one address are joined by '|'
// in alphabetical order; equal names of several addresses carry '@' and their source file.
std::vector<std::pair<std::string, std::uint64_t>> counters_read();

// The symbol whose counting code (or displaced first instruction) lies at pc, nullptr if none does.
// Safe in a signal handler: an illegal first instruction faults there, not in the kernel's own code.
const char * counters_symbol_at(std::uintptr_t pc);
