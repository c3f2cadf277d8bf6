#!/bin/bash
# memory.sh BUILD [ROUNDS] [TYPE] -- what less memory costs in time: a step of GPT-2 124M (one sequence of 1,024 tokens) with recomputation,
# or with state or activations in host space, beside a plain one, in turns. Ratio: time of the changed step over the plain one. Then
# memory.recompute=auto beside the three named policies of the fewest FLOPs that fit the same limit, which is what one of them needs. Ratio:
# the named policy over auto; above 1 auto is faster.
# Environment: BENCH_SEQ_LEN, BENCH_BATCH (sequences of the micro-batch), BENCH_THREADS.
set -euo pipefail
build=$1 rounds=${2:-5} type=${3:-fp32} batch=${BENCH_BATCH:-1}
words="model.preset=gpt2-124m data.seq_len=${BENCH_SEQ_LEN:-1024} train.global_batch=$batch train.micro_batch=$batch"
words="$words run.threads=${BENCH_THREADS:-0} precision.compute=$type"
step="$build/orthant bench step $words --serve"
for change in memory.recompute=full memory.recompute=selective memory.offload_optimizer=host memory.offload_activations=host \
  "memory.recompute=full memory.offload_activations=host"; do
  python3 tools/bench/versus.py --rounds "$rounds" --title "$change" "plain=$step" "changed=$step $change" | grep -v '^$'
done

policies=(memory.recompute=none memory.recompute=selective "memory.recompute=ops memory.recompute_ops=[norm]"
  "memory.recompute=ops memory.recompute_ops=[norm,attention]" "memory.recompute=keep memory.recompute_ops=[linear]"
  "memory.recompute=full memory.recompute_method=block memory.recompute_layers=3"
  "memory.recompute=full memory.recompute_method=block memory.recompute_layers=6"
  memory.recompute=full "memory.recompute=full memory.recompute_layers=2" memory.recompute=sqrt memory.recompute=all)
plans=$(for policy in "${policies[@]}"; do
  # shellcheck disable=SC2086 # words
  "$build/orthant" plan $words $policy --json | python3 -c 'import json, sys
plan = json.load(sys.stdin)["ranks"][0]
print(plan["memory"]["total"], int(plan["flops"]["hardware"]), sys.argv[1], sep="\t")' "$policy"
done)
for limit_of in "${policies[1]}" "${policies[2]}" "${policies[6]}" memory.recompute=full; do
  limit=$(awk -F'\t' -v p="$limit_of" '$3 == p { print $1 }' <<<"$plans")
  programs=("auto=$step memory.recompute=auto memory.recompute_limit=$limit")
  while IFS= read -r policy; do
    name=${policy//memory.recompute/recompute}; programs+=("${name//=/:}=$step $policy")
  done < <(awk -F'\t' -v limit="$limit" '$1 <= limit' <<<"$plans" | sort -t$'\t' -k2,2n | head -3 | cut -f3)
  python3 tools/bench/versus.py --rounds "$rounds" --title "auto in $limit bytes, which are those of $limit_of" "${programs[@]}" | grep -v '^$'
done
