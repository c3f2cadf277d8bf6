#!/bin/bash
# recompute_table.sh TEXT -- the table of docs/memory.md: what `plan` says of a run under each policy of recomputation.
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
echo "| options | activations, bytes | of those of a plain run | FLOPs computed / FLOPs of the model |"
echo "| --- | --- | --- | --- |"
for policy in "${policies[@]}"; do
  # shellcheck disable=SC2086
  plan=$("$orthant" plan configs/runs/llama.yaml data.path="$text" model.layers=16 precision.compute=fp32 $policy --json)
  bytes=$(sed -n 's/.*"activations": \([0-9]*\).*/\1/p' <<<"$plan" | head -1)
  model=$(sed -n 's/.*"model": \([0-9.e+]*\).*/\1/p' <<<"$plan" | head -1)
  hardware=$(sed -n 's/.*"hardware": \([0-9.e+]*\).*/\1/p' <<<"$plan" | head -1)
  awk -v p="$policy" -v b="$bytes" -v first="${first:=$bytes}" -v m="$model" -v h="$hardware" \
    'BEGIN {printf "| `%s` | %d | %.2f | %.3f |\n", p, b, b / first, h / m}'
done
