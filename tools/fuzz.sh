#!/bin/bash
# fuzz.sh BUILD SECONDS -- builds the fuzz targets with clang and runs each of them for SECONDS.
# Seeds are in tests/fuzz/corpus/<target>/; what is found stays in BUILD/corpus and BUILD/crash-*.
set -euo pipefail
build=$1 seconds=$2
clang=$(command -v clang || command -v clang-14)
cmake -S . -B "$build" -DCMAKE_C_COMPILER="$clang" -DORTH_FUZZ=ON -DORTH_WERROR=OFF >/dev/null
cmake --build "$build" -j"$(nproc)" 2>&1 | grep -E "error|Error|Built target" || true
for source in tests/fuzz/fuzz_*.c; do
  target=$(basename "$source" .c)
  [[ -x $build/$target ]] || { echo "fuzz: $target was not built" >&2; exit 1; }
  mkdir -p "$build/corpus/$target"
  seeds=()
  [[ -d tests/fuzz/corpus/${target#fuzz_} ]] && seeds=("tests/fuzz/corpus/${target#fuzz_}")
  log=$build/$target.log
  echo "fuzz: $target for $seconds s"
  "$build/$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="$build/crash-$target-" "$build/corpus/$target" "${seeds[@]}" >"$log" 2>&1 ||
    { tail -50 "$log"; echo "fuzz: $target failed; the input is $build/crash-$target-*" >&2; exit 1; }
  grep -E "number_of_executed_units" "$log" | sed "s/^/fuzz: $target: /"
done
