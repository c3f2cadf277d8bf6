#!/bin/bash
# evidence.sh [LAYOUTS] -- runs what proves the layouts and writes bench/results/DATE-evidence.md: layouts tried, faults
# injected, damage kinds refused, bytes matched, sanitizer. Takes the tests from build/ (`make`) and build-tsan/ (`make tsan`).
# LAYOUTS: random ones, 2000 unless said (hours); 10 shows in minutes that all is there. OUT=FILE writes there instead.
set -euo pipefail
cd "$(dirname "$0")/.."
layouts=${1:-2000}
[[ $layouts =~ ^[1-9][0-9]*$ ]] || { echo "evidence: LAYOUTS is \"$layouts\": it must be a number from 1" >&2; exit 2; }
sanitized=$((layouts < 40 ? layouts : 40))
out=${OUT:-bench/results/$(date +%Y-%m-%d)-evidence.md}
for t in build/test_layouts build/test_check build/test_comm_faults build/test_damage build-tsan/test_layouts build-tsan/test_comm; do
  [ -x $t ] || { echo "evidence: $t is not there: make, and make tsan" >&2; exit 2; }
done
log=$(mktemp)
trap 'rm -f "$log"' EXIT

said() { # PATTERN COMMAND...: what of the command's output matches; all of it if it fails, or nothing matches
  local pattern=$1
  shift
  echo "evidence: $*" >&2
  if ! "$@" >"$log" 2>&1 || ! grep -aoE "$pattern" "$log"; then
    cat "$log" >&2
    echo "evidence: failed: $*" >&2
    return 1
  fi
}

layout_lines=$(ORTH_LAYOUTS=$layouts said '[0-9]+ (random layouts equal|layouts with one owner|layouts in fast mode|bytes in).*' \
  build/test_layouts)
checked=$(ORTH_CHECKS=$layouts said '[0-9]+ random layouts accepted.*' build/test_check)
faults=$(said '[0-9]+ of [0-9]+ faults.*' build/test_comm_faults)
damage=$(for t in build/test_damage build/test_damage_*; do
  said '[0-9]+ kinds of damage, [0-9]+ refused' "$t" || exit 1
done | awk '{ kinds += $1; refused += $5 } END { print kinds " kinds of damage, " refused " refused as they should be" }')
tsan=$(ORTH_LAYOUTS=$sanitized TSAN_OPTIONS=halt_on_error=1 said '[0-9]+ random layouts equal.*' build-tsan/test_layouts)
TSAN_OPTIONS=halt_on_error=1 said 'PASSED.*' build-tsan/test_comm >/dev/null
{
  echo "# Evidence that a layout does not change the numbers"
  echo
  echo "Commit $(git describe --always --dirty), $(date -u +'%Y-%m-%d %H:%M UTC'), $(nproc) cores; written by \`bench/evidence.sh $layouts\` after"
  echo "\`make\` and \`make tsan\`."
  echo
  echo "| | |"
  echo "| --- | --- |"
  tried=$(grep -v '^[0-9]* bytes' <<<"$layout_lines" | paste -sd ';' | sed 's/;/; /g')
  echo "| layouts tried (\`test_layouts\`, seeds from 1) | $tried; the checker: $checked |"
  echo "| faults injected (\`test_comm_faults\`) | $faults |"
  echo "| damage refused (\`test_damage*\`) | $damage |"
  echo "| bytes matched (\`test_layouts\`) | $(grep '^[0-9]* bytes' <<<"$layout_lines") |"
  echo "| ThreadSanitizer (\`test_comm\`, \`test_layouts\`) | no report; $tsan |"
} >"$out"
cat "$out"
