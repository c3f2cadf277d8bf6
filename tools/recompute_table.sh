#!/bin/bash
# recompute_table.sh TEXT [split|chunks] -- the tables of docs/memory.md: what `plan` says of rank 0 of a run under each policy of
# recomputation; split: on four ranks, with the inputs of layers split over two of them; chunks: with rows in chunks.
set -euo pipefail
text=$1
orthant=${ORTHANT:-orthant}
policies=(
  "memory.recompute=none"
  "memory.recompute=selective"
  "memory.recompute=ops memory.recompute_ops=[norm,swiglu]"
  "memory.recompute=full memory.recompute_method=block memory.recompute_layers=8"
  "memory.recompute=keep memory.recompute_ops=[linear]"
  "memory.recompute=full"
  "memory.recompute=full memory.recompute_layers=2"
  "memory.recompute=sqrt"
  "memory.recompute=all"
)
layout=""
if [ "${2:-}" = split ]; then
  layout="parallel.tp=2 parallel.pp=2 parallel.pipeline=gpipe train.micro_batch=1 train.global_batch=16"
  policies=(
    "memory.recompute=none"
    "memory.recompute=full"
    "memory.recompute=full memory.recompute_split=true"
    "memory.recompute=full parallel.sequence_parallel=true"
  )
fi
if [ "${2:-}" = chunks ]; then
  policies=(
    "memory.recompute=none"
    "memory.ffn_chunk_rows=64"
    "memory.recompute=full"
    "memory.recompute=full memory.head_chunk_rows=64"
    "memory.recompute=full memory.head_chunk_rows=64 memory.ffn_chunk_rows=64"
    "memory.recompute=full memory.head_chunk_rows=32 memory.ffn_chunk_rows=32"
  )
fi
echo "| options | activations and communication, bytes | of those of a plain run | FLOPs computed / FLOPs of the model |"
echo "| --- | --- | --- | --- |"
for policy in "${policies[@]}"; do
  # shellcheck disable=SC2086
  plan=$("$orthant" plan configs/runs/llama.yaml data.path="$text" model.layers=16 precision.compute=fp32 $layout $policy --json)
  bytes=$(sed -n 's/.*"activations": \([0-9]*\), "comm": \([0-9]*\).*/\1 + \2/p' <<<"${plan%%\"rank\": 1*}" | head -1)
  model=$(grep -o '"model": [0-9]*' <<<"$plan" | head -1 | grep -o '[0-9]*$')
  hardware=$(grep -o '"hardware": [0-9]*' <<<"$plan" | head -1 | grep -o '[0-9]*$')
  awk -v p="$policy" -v b="$((bytes))" -v first="${first:=$((bytes))}" -v m="$model" -v h="$hardware" \
    'BEGIN {printf "| `%s` | %d | %.2f | %.3f |\n", p, b, b / first, h / m}'
done
