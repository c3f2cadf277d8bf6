#!/bin/bash
# evidence.sh [LAYOUTS] -- runs what proves the layouts and writes bench/results/DATE-evidence.md: layouts tried, faults
# injected, damage kinds refused, bytes matched, sanitizer. Takes the tests from build/ and build-tsan/.
set -euo pipefail
cd "$(dirname "$0")/.."
layouts=${1:-2000}
out=bench/results/$(date +%Y-%m-%d)-evidence.md
log=$(mktemp)
trap 'rm -f "$log"' EXIT

said() { # PATTERN COMMAND...: the line of the command's output that matches; all of it if it fails
  local pattern=$1
  shift
  "$@" >"$log" 2>&1 || { cat "$log" >&2; echo "evidence: failed: $*" >&2; return 1; }
  grep -hoE "$pattern" "$log"
}

layout_lines=$(ORTH_LAYOUTS=$layouts said '[0-9]+ (random layouts equal|bytes in).*' build/test_layouts)
checked=$(ORTH_CHECKS=$layouts said '[0-9]+ random layouts accepted' build/test_check)
faults=$(said '[0-9]+ of [0-9]+ faults.*' build/test_comm_faults)
damage=$(for t in build/test_damage build/test_damage_*; do said '[0-9]+ kinds of damage, [0-9]+ refused' "$t"; done |
  awk '{ kinds += $1; refused += $5 } END { print kinds " kinds of damage, " refused " refused as they should be" }')
tsan=$(ORTH_LAYOUTS=40 TSAN_OPTIONS=halt_on_error=1 said '[0-9]+ random layouts equal.*' build-tsan/test_layouts)
TSAN_OPTIONS=halt_on_error=1 said 'PASSED.*' build-tsan/test_comm >/dev/null
{
  echo "# Evidence that a layout does not change the numbers"
  echo
  echo "Commit $(git describe --always --dirty), $(date -u +'%Y-%m-%d %H:%M UTC'), $(nproc) cores; written by \`bench/evidence.sh $layouts\` after"
  echo "\`make\` and \`make tsan\`."
  echo
  echo "| | |"
  echo "| --- | --- |"
  echo "| layouts tried (\`test_layouts\`, seeds from 1) | $(head -1 <<<"$layout_lines"); the checker: $checked |"
  echo "| faults injected (\`test_comm_faults\`) | $faults |"
  echo "| damage refused (\`test_damage*\`) | $damage |"
  echo "| bytes matched (\`test_layouts\`) | $(tail -1 <<<"$layout_lines") |"
  echo "| ThreadSanitizer (\`test_comm\`, \`test_layouts\`) | no report; $tsan |"
} >"$out"
cat "$out"
