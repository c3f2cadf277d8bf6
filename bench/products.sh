#!/bin/bash
# products.sh TEXT -- losses of one run with each of precision.products: the mean of the last ten of 120 steps, and of the held-out text then.
# The run is in fp32, so that the figures are the same on every processor.
set -euo pipefail
text=$1
orthant=${ORTHANT:-orthant}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat >"$folder/run.yaml" <<RUN
model: {preset: llama-tiny, hidden: 64, heads: 4, kv_heads: 2, head_dim: 16, ffn: 192, layers: 3, vocab: 257, max_seq: 128}
data: {path: "$text", seq_len: 128, tokenizer: bytes}
train: {steps: 120, global_batch: 8, micro_batch: 4, eval_every: 120}
optimizer: {lr: 3.0e-3}
numerics: {parts: 4}
checkpoint: {dir: $folder/run}
RUN

# field NAME: its values in the lines of the run that have it.
field() {
  sed -n "s/.*\"$1\": \([0-9.]*\),.*/\1/p" "$folder/run/metrics.jsonl"
}

echo "| \`precision.products\` | last 10 steps | held-out text | above \`same\` |"
echo "| --- | --- | --- | --- |"
for products in same fp8_tensor fp8_block mxfp8 nvfp4; do
  rm -rf "$folder/run"
  "$orthant" train "$folder/run.yaml" precision.products=$products >"$folder/log" 2>&1 || { cat "$folder/log"; exit 1; }
  steps=$(field loss | tail -10 | awk '{s += $1} END {printf "%.4f", s / NR}')
  held=$(field eval_loss)
  [ $products != same ] || plain=$held
  awk -v name="\`$products\`" -v steps="$steps" -v held="$held" -v plain="$plain" \
    'BEGIN {printf "| %s | %s | %.4f | %.2f %% |\n", name, steps, held, 100 * (held / plain - 1)}'
done
