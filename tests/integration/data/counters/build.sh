# SPDX-License-Identifier: MIT
# Builds the driver and its modules: build.sh HARNESS-FOLDER OUTPUT-FOLDER, from this folder.
set -eu
harness=$1
out=$2
CC=aarch64-linux-gnu-gcc
CXX=aarch64-linux-gnu-g++
for twin in a:21 b:22; do
    $CC -DNAME=twin_${twin%:*} -DVALUE=${twin#*:} -c twin.S -o "$out/twin_${twin%:*}.o"
done
$CC -c entries.S -o "$out/entries.o"
twins="$out/twin_a.o $out/twin_b.o"
# -Bsymbolic: branches and addresses inside the module, as in a library that hides its helpers
module="$CC -shared -nostdlib -Wl,-Bsymbolic"
$module "$out/entries.o" $twins -o "$out/entries.so"
$module "$out/entries.o" $twins -Wl,-z,force-bti -o "$out/guarded.so" 2>"$out/force-bti.log"
$module streaming.S -o "$out/streaming.so"
$module -x c /dev/null -o "$out/none.so"
aarch64-linux-gnu-strip --strip-all -o "$out/stripped.so" "$out/entries.so"
for source in counters counters_a64 counters_elf counters_memory counters_plan; do
    $CXX -std=c++17 -O2 -Wall -Wextra -Wconversion -Werror -c "$harness/$source.cpp" -o "$out/$source.o"
done
counters="$out/counters.o $out/counters_a64.o $out/counters_elf.o $out/counters_memory.o $out/counters_plan.o"
$CXX -std=c++17 -O2 -Wall -Wextra -Werror -I"$harness" -c driver.cpp -o "$out/driver.o"
$CXX "$out/driver.o" $counters -pthread -ldl -o "$out/driver"
$CXX "$out/driver.o" $counters "$out/entries.o" $twins -rdynamic -pthread -ldl -o "$out/linked"
