#!/bin/bash
# against.sh BUILD OTHER [ROUNDS] -- two builds of this program side by side, in turns (tools/bench/versus.py): a step of GPT-2 124M
# (2 sequences of 512 tokens) on one rank of two threads and on two ranks of one, then two large plans. Ratio: OTHER's seconds / BUILD's.
set -euo pipefail
build=$1 other=$2 rounds=${3:-5}
step="bench step model.preset=gpt2-124m data.seq_len=512 train.global_batch=2 train.micro_batch=1 run.threads=2 --serve"
for layout in "" parallel.dp=2 parallel.tp=2 "parallel.pp=2 parallel.pipeline=1f1b"; do
  python3 tools/bench/versus.py --rounds "$rounds" --title "124M, ${layout:-one rank}" "this=$build/orthant $step $layout" \
    "other=$other/orthant $step $layout" | grep -v '^$'
done
for which in "$build" "$other"; do
  echo "plans of $which:"
  bench/plan.sh "$which"
done
