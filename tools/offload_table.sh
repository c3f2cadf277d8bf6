#!/bin/bash
# offload_table.sh TEXT [activations] -- the tables of docs/memory.md: bytes of each memory space of GPT-2 124M on one rank, as `plan` says
# them: all of them, or those of activations and communication.
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
run: {isa: avx2, threads: 2}
RUN

# bytes SPACE KEY...: their sum in the space of the plan at hand; nothing where it has none.
bytes() {
  local space=$1 object sum=0 key
  shift
  object=$(sed -n "s/.*\"$space\": {\([^}]*\)}.*/\1/p" <<<"${plan%%\"arenas\"*}")
  [ -n "$object" ] || return 0
  for key in "$@"; do
    sum=$((sum + $(sed -n "s/.*\"$key\": \([0-9]*\).*/\1/p" <<<"$object")))
  done
  echo "$sum"
}

# row NAME WORDS KEY...: device, host and file. Without offload all memory is the host's, which stands for the device's.
row() {
  local name=$1 words=$2 device
  shift 2
  # shellcheck disable=SC2086
  plan=$("$orthant" plan "$run" $words --json)
  device=$(bytes device "$@")
  echo "| \`$name\` | ${device:-$(bytes host "$@")} | ${device:+$(bytes host "$@")} | $(bytes file "$@") |"
}

if [ "${2:-}" = activations ]; then
  echo "| options | device | host | file |"
  echo "| --- | --- | --- | --- |"
  for policy in none full; do
    for tier in none host file; do
      words="memory.recompute=$policy memory.offload_activations=$tier"
      row "$words" "$words train.global_batch=8 train.micro_batch=8" activations comm
    done
  done
else
  echo "| options | device | host | file |"
  echo "| --- | --- | --- | --- |"
  for tiers in "none none none" "host none none" "file none none" "host host none" "host host host" "file file file"; do
    set -- $tiers
    words="memory.offload_optimizer=$1 memory.offload_gradients=$2 memory.offload_params=$3"
    row "$words" "$words" total
  done
  row "$words memory.recompute=full" "$words memory.recompute=full" total
fi
