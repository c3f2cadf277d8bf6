#!/bin/bash
# recipes.sh TEXT FOLDER -- loss curves of one run in each recipe of precision, same seed and data: prints the table of
# bench/results/*-recipes.md, and writes the pictures of docs/pictures/ into FOLDER. A run that FOLDER has already is not made again.
# Environment: ORTHANT (the program), STEPS (default 240), COMMIT (named in the pictures; default the checkout's).
set -euo pipefail
text=$(realpath "$1") folder=$2
orthant=$(realpath "${ORTHANT:-build/orthant}") steps=${STEPS:-240} commit=${COMMIT:-$(git describe --always --dirty)}
mkdir -p "$folder"
cd "$folder"
cat >run.yaml <<RUN
model: {preset: llama-tiny, hidden: 128, heads: 4, kv_heads: 2, head_dim: 32, ffn: 256, layers: 2, vocab: 257, max_seq: 128}
data: {path: "$text", seq_len: 128, tokenizer: bytes}
train: {steps: $steps, global_batch: 8, micro_batch: 8, seed: 1}
optimizer: {lr: 3.0e-3}
schedule: {warmup_steps: 20}
numerics: {parts: 1}
precision: {fp32_products: fma}
run: {isa: avx512, threads: 1}
RUN

# Each recipe differs from fp32 by these keys. int8 needs several ranks and the fast mode: fp32-4-ranks has these two alone. run.isa
# above names sums that every x86 has (docs/numerics.md), and a part is a whole sum, so that tiles are whole.
ranks="numerics.mode=fast parallel.dp=4 train.micro_batch=2"
declare -A keys=(
  [fp32]=""
  [bf16]="precision.compute=bf16"
  [bf16-masters]="precision.compute=bf16 precision.master=bf16"
  [fp16]="precision.compute=fp16"
  [moments-bf16]="precision.moments=bf16"
  [moments-8bit]="precision.moments=8bit"
  [fp32-4-ranks]="$ranks"
  [gradients-int8]="$ranks precision.grad_reduce=int8"
)
types=(bf16 bf16-masters fp16 moments-bf16 moments-8bit fp32-4-ranks gradients-int8)
products=(fp8_tensor fp8_delayed fp8_block mxfp8 nvfp4)
for p in "${products[@]}"; do
  keys[$p]="precision.products=$p"
done

# field RUN NAME: its values in the lines of the run that have it.
field() {
  sed -n "s/.*\"$2\": \([0-9.]*\),.*/\1/p" "$1/metrics.jsonl"
}

for name in fp32 "${types[@]}" "${products[@]}"; do
  [[ -s $name/metrics.jsonl && -n $(field "$name" eval_loss) ]] && continue
  # shellcheck disable=SC2086 # words
  "$orthant" train run.yaml checkpoint.dir="$name" ${keys[$name]} >"$name.log" 2>&1 ||
    { cat "$name.log" >&2; exit 1; }
done

# The table: means of the last 20 steps at six points of the run.
points=$(for k in 1 2 3 4 5 6; do echo -n "$((k * steps / 6)) "; done)
echo "| recipe |$(for p in $points; do echo -n " step $p |"; done) held-out | above fp32 |"
echo "| --- |$(for _ in $points; do echo -n " --- |"; done) --- | --- |"
for name in fp32 "${types[@]}" "${products[@]}"; do
  field "$name" loss | awk -v name="$name" -v points="$points" -v held="$(field "$name" eval_loss | tail -1)" -v plain="$(field fp32 eval_loss | tail -1)" '
    {loss[NR] = $1}
    END {
      printf "| `%s` |", name
      for (k = split(points, at); k > 0; k--) {
        for (i = at[k] - 19; i <= at[k]; i++) sum[k] += loss[i] / 20
      }
      for (k = 1; k in at; k++) printf " %.4f |", sum[k]
      printf " %.4f | %.2f %% |\n", held, 100 * (held / plain - 1)
    }'
done

# picture NAME RUN...: the losses, and how far they are from those of fp32.
tokens=$((steps * 1024))
caption="Llama of 2 layers, 128 columns, $(sed -n 's/.*"parameters": \([0-9]*\).*/\1/p' fp32/plan.json | head -1) parameters; $steps steps, $tokens tokens; seed 1; commit $commit"
picture() {
  "$orthant" plot fp32 "${@:2}" --caption="$caption" --svg="$1.svg"
  "$orthant" plot "${@:2}" --minus=fp32 --mean=20 --caption="$caption" --svg="$1-less-fp32.svg"
}
picture recipes-types bf16 bf16-masters fp16 moments-bf16 moments-8bit gradients-int8
picture recipes-products "${products[@]}"
