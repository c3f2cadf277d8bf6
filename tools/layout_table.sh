#!/bin/bash
# layout_table.sh TEXT -- README's table: the same run under several layouts, and the loss of held-out text of each, to the last bit.
# In fp32, whose bits do not depend on the processor. Fails if two layouts differ.
set -euo pipefail
text=$1
orthant=${ORTHANT:-orthant}
layouts=(
  "run.threads=2"
  "parallel.dp=2 parallel.zero=3"
  "parallel.tp=8"
  "parallel.dp=4 parallel.shard_group=2 parallel.zero=HYBRID_SHARD parallel.cp=2 parallel.cp_kind=ring"
  "parallel.dp=2 parallel.tp=2 parallel.pp=2 parallel.sequence_parallel=true parallel.pipeline=zb-h1 parallel.zero=2"
  "parallel.dp=2 parallel.dp_share=[3,1] parallel.cp=2 parallel.cp_kind=all_to_all"
)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
first=
echo "| options | ranks | loss of held-out text after 3 steps |"
echo "| --- | --- | --- |"
for i in "${!layouts[@]}"; do
  # shellcheck disable=SC2086
  "$orthant" train configs/runs/llama.yaml data.path="$text" precision.compute=fp32 checkpoint.dir="$folder/$i" ${layouts[i]} \
    --quiet >"$folder/out" 2>&1 || { cat "$folder/out" >&2; exit 1; }
  loss=$(sed -n 's/.*"eval_loss_hex": "\([^"]*\)".*/\1/p' "$folder/$i/metrics.jsonl" | tail -1)
  ranks=$(grep -o '"rank": [0-9]*, "coords"' "$folder/$i/plan.json" | wc -l)
  echo "| \`${layouts[i]}\` | $ranks | \`$loss\` |"
  [[ ${first:=$loss} == "$loss" ]] || { echo "layout_table: ${layouts[i]}: $loss is not $first" >&2; exit 1; }
done
