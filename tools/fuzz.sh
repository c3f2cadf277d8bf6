#!/bin/bash
# fuzz.sh BUILD SECONDS -- builds the fuzz targets with clang and runs each of them for SECONDS, as many at once as there are CPUs.
# Seeds are in tests/fuzz/corpus/<target>/; what is found stays in BUILD/corpus and BUILD/crash-*.
set -euo pipefail
build=$1 seconds=$2
clang=$(command -v clang || command -v clang-14)
cmake -S . -B "$build" -DCMAKE_C_COMPILER="$clang" -DORTH_FUZZ=ON -DORTH_WERROR=OFF >/dev/null
cmake --build "$build" -j"$(nproc)" 2>&1 | grep -E "error|Error|Built target" || true

# fuzz SOURCE
fuzz() {
  local target seeds=() log
  target=$(basename "$1" .c)
  log=$build/$target.log
  [[ -x $build/$target ]] || { echo "fuzz: $target was not built" >&2; return 1; }
  mkdir -p "$build/corpus/$target"
  [[ -d tests/fuzz/corpus/${target#fuzz_} ]] && seeds=("tests/fuzz/corpus/${target#fuzz_}")
  "$build/$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="$build/crash-$target-" "$build/corpus/$target" "${seeds[@]}" >"$log" 2>&1 ||
    { tail -50 "$log"; echo "fuzz: $target failed; the input is $build/crash-$target-*" >&2; return 1; }
  echo "fuzz: $target for $seconds s: $(grep -E "number_of_executed_units" "$log")"
}
export -f fuzz
export build seconds
printf '%s\n' tests/fuzz/fuzz_*.c | xargs -P "$(nproc)" -I{} bash -c 'fuzz {}'
