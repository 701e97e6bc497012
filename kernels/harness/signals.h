// SPDX-License-Identifier: MIT
#pragma once

namespace tierlab {

// On SIGILL, SIGSEGV, SIGBUS, SIGFPE and SIGABRT: says on standard error where and why, in the form
// that docs/protocol.md promises, then dies of that very signal.
void install_crash_reporter();

}  // namespace tierlab
