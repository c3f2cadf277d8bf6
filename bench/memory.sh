#!/bin/bash
# memory.sh BUILD [ROUNDS] [TYPE] -- what less memory costs in time: a step of GPT-2 124M (one sequence of 1,024 tokens) with recomputation,
# or with state or activations in host space, beside a plain one, in turns. Ratio: time of the changed step over the plain one.
# Environment: BENCH_SEQ_LEN, BENCH_BATCH (sequences of the micro-batch), BENCH_THREADS.
set -euo pipefail
build=$1 rounds=${2:-5} type=${3:-fp32} batch=${BENCH_BATCH:-1}
step="$build/orthant bench step model.preset=gpt2-124m data.seq_len=${BENCH_SEQ_LEN:-1024} train.global_batch=$batch train.micro_batch=$batch
  run.threads=${BENCH_THREADS:-0} precision.compute=$type --serve"
step=$(tr -d '\n' <<<"$step")
for change in memory.recompute=full memory.recompute=selective memory.offload_optimizer=host memory.offload_activations=host \
  "memory.recompute=full memory.offload_activations=host"; do
  python3 tools/bench/versus.py --rounds "$rounds" --title "$change" "plain=$step" "changed=$step $change" | grep -v '^$'
done
