#!/bin/bash
# products.sh TEXT [KEY] -- losses of one run with each value of precision.products, or of five runs (seeds 1 to 5, 4 ranks, ZeRO 2) with each of
# precision.grad_reduce: the mean of the last ten of 120 steps, and of the held-out text then. In fp32 by fused multiply-add, so that the
# figures are the same on every processor.
set -euo pipefail
text=$1
key=${2:-precision.products}
orthant=${ORTHANT:-orthant}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
case $key in
precision.products) values="same fp8_tensor fp8_delayed fp8_block mxfp8 nvfp4" seeds=1 words=() ;;
precision.grad_reduce)
  values="fp32 bf16 int8" seeds="1 2 3 4 5"
  words=(numerics.mode=fast precision.fp32_products=fma parallel.dp=4 parallel.zero=2 train.micro_batch=1) ;;
*)
  echo "products.sh: $key: must be precision.products or precision.grad_reduce" >&2
  exit 2 ;;
esac
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

# Each run: value, seed, loss of the last steps, loss of the held-out text.
for value in $values; do
  for seed in $seeds; do
    rm -rf "$folder/run"
    "$orthant" train "$folder/run.yaml" "$key=$value" train.seed=$seed "${words[@]}" >"$folder/log" 2>&1 || { cat "$folder/log" >&2; exit 1; }
    echo "$value $seed $(field loss | tail -10 | awk '{s += $1} END {print s / NR}') $(field eval_loss)"
  done
done | awk -v key="$key" '
  NR == 1 {first = $1; printf "| `%s` | last 10 steps | held-out text | above `%s` |\n| --- | --- | --- | --- |\n", key, first}
  function row(of) {
    range = n == 1 || of == first ? "" : sprintf(" (%.2f to %.2f)", least, most)
    printf "| `%s` | %.4f | %.4f | %.2f %%%s |\n", of, steps / n, held / n, above / n, range
  }
  $1 != value {if (n) row(value); value = $1; n = steps = held = above = 0}
  {
    if ($1 == first) plain[$2] = $4
    a = 100 * ($4 / plain[$2] - 1)
    least = n == 0 || a < least ? a : least
    most = n == 0 || a > most ? a : most
    n++; steps += $3; held += $4; above += a
  }
  END {row(value)}'
