#!/bin/sh
# SPDX-License-Identifier: MIT
# build.sh HARNESS OUT: two builds of one program, in OUT/honest and OUT/liar.
set -eu
harness=$1 out=$2
counters="$harness/counters.cpp $harness/counters_a64.cpp $harness/counters_elf.cpp $harness/counters_memory.cpp"
for build in honest liar; do
    mkdir -p "$out/$build"
    defines=$([ "$build" = liar ] && echo -DLIAR || true)
    aarch64-linux-gnu-gcc -O2 -march=armv8.2-a+i8mm -fPIC -shared -Wall -Werror $defines kernels.c \
        -o "$out/$build/kernels.so"
    aarch64-linux-gnu-g++ -std=c++17 -O2 -Wall -Werror -I "$harness" main.cpp $counters "$harness/counters_plan.cpp" \
        "$out/$build/kernels.so" -Wl,-rpath,'$ORIGIN' -ldl -o "$out/$build/program"
done
