#!/bin/bash
# offload_table.sh TEXT -- the table of docs/memory.md: bytes of each memory space of GPT-2 124M on one rank, as `plan` says them.
set -euo pipefail
text=$1
orthant=${ORTHANT:-orthant}
run=$(mktemp)
trap 'rm -f "$run"' EXIT
cat >"$run" <<RUN
model: {preset: gpt2-124m}
data: {path: "$text", seq_len: 512}
train: {steps: 10, global_batch: 4, micro_batch: 1}
optimizer: {lr: 1.0e-3}
precision: {compute: bf16}
RUN
echo "| \`memory.offload_optimizer\` | device | host | file |"
echo "| --- | --- | --- | --- |"
for tier in none host file; do
  plan=$("$orthant" plan "$run" memory.offload_optimizer=$tier --json)
  bytes() {
    sed -n "s/.*\"$1\": {[^}]*\"total\": \([0-9]*\)}.*/\1/p" <<<"${plan%%\"arenas\"*}"
  }
  device=$(bytes device)
  echo "| \`$tier\` | ${device:-$(bytes host)} | ${device:+$(bytes host)} | $(bytes file) |"
done
