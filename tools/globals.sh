#!/bin/bash
# globals.sh LIBRARY -- fails if any object of the library defines writable data at file scope.
# Thread ranks share a process, so such data would be shared between ranks. Constant tables that
# hold pointers are in .data.rel.ro, which the loader makes read-only.
set -euo pipefail
found=$(nm -A -f sysv --defined-only "$1" |
  awk -F'|' '{ section = $NF; gsub(/[ \t]/, "", section) }
             section ~ /^(\.data|\.bss|\.tdata|\.tbss|\*COM\*)/ && section !~ /^\.data\.rel\.ro/ { print $1, section }')
if [[ -n $found ]]; then
  echo "globals: writable symbols at file scope:" >&2
  echo "$found" >&2
  exit 1
fi
echo "globals: no writable symbol at file scope in $1"
