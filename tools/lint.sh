#!/bin/bash
# lint.sh -- static checks that find mistakes rather than matters of taste.
set -euo pipefail
# Off: the older of two checks of initialisation (it takes an address for a read), what it cannot parse, and what kernels do
# on purpose (bf16 pairs as 32-bit words, operands that may be absent).
off=(legacyUninitvar unknownMacro preprocessorErrorDirective
     "invalidPointerCast:src/kernels/*" "nullPointerArithmetic:src/kernels/*")
echo "lint: cppcheck"
cppcheck --enable=warning,portability --std=c11 --error-exitcode=1 --inline-suppr --quiet -j "$(nproc)" \
  "${off[@]/#/--suppress=}" -Isrc src
echo "lint: comment marks, tabs and trailing space"
if grep -rnP "\t| +$|\b(TODO|FIXME|XXX)\b" --include='*.c' --include='*.h' --include='*.def' src; then
  echo "lint: the lines above hold a tab, trailing space, or an unfinished note" >&2
  exit 1
fi
echo "lint: malloc, getenv and exit stay behind their doors"
if grep -rnE "\b(malloc|calloc|realloc)\(" --include='*.c' src | grep -vE "^src/base/ctx\.c:"; then
  echo "lint: use orth_mem_alloc or an arena" >&2
  exit 1
fi
if grep -rnE "\b(getenv|exit|abort)\(" --include='*.c' src | grep -v "^src/cli/"; then
  echo "lint: the environment is read, and the program left, in src/cli only" >&2
  exit 1
fi
echo "lint: ops are rows: code elsewhere compares few of them"
ops=$(grep -oP "^\s*(OP|COMM|GRAPH)\(\K[a-z0-9_]+" src/kernels/ops.def | paste -sd'|')
compared=$(grep -rnE "(==|!=) *ORTH_OP_($ops)\b|case ORTH_OP_($ops)\b|\bORTH_OP_($ops) *(==|!=)" --include='*.c' --include='*.h' src | grep -v "^src/kernels/" || true)
if [[ $(grep -c . <<<"$compared") -gt 12 ]]; then
  echo "$compared"
  echo "lint: give kernels/ops.def a column instead" >&2
  exit 1
fi
