#!/bin/bash
# run.sh BUILD -- builds the programs under bench/ and runs each, between two looks at the peaks, into
# bench/results/CPU/. A program takes its own arguments from BENCH_ARGS_<name>.
set -euo pipefail
build=$1
cpu=$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1 | tr -cs 'A-Za-z0-9\n' '-' | sed 's/-*$//')
out=bench/results/${cpu:-cpu}
mkdir -p "$out"
"$build/orthant" doctor | tee "$out/peaks-before.txt"
for source in bench/bench_*.c; do
  name=$(basename "$source" .c)
  cmake --build "$build" --target "$name" >/dev/null 2>&1 || { echo "$name: not built here"; continue; }
  args=BENCH_ARGS_$name
  echo "\$ $name ${!args:-}" | tee "$out/$name.txt"
  # shellcheck disable=SC2086
  "$build/$name" ${!args:-} | tee -a "$out/$name.txt"
done
"$build/orthant" doctor | tee "$out/peaks-after.txt"
