#!/bin/bash
# modes.sh BUILD [ROUNDS] [TYPE] -- the price of reproducible numerics on each axis: a step of GPT-2 124M (4 sequences of 1,024 tokens)
# in both modes, in turns, for one rank of two threads and for two ranks of one. Ratio: time in reproducible mode over fast mode.
set -euo pipefail
build=$1 rounds=${2:-5} type=${3:-fp32}
step="$build/orthant bench step model.preset=gpt2-124m data.seq_len=${BENCH_SEQ_LEN:-1024} train.global_batch=4 train.micro_batch=1 run.threads=2
  precision.compute=$type --serve"
step=$(tr -d '\n' <<<"$step")
for layout in parallel.dp=1 parallel.dp=2 "parallel.dp=2 parallel.zero=3" parallel.tp=2 parallel.cp=2 parallel.pp=2; do
  python3 tools/bench/versus.py --rounds "$rounds" --title "$layout" "fast=$step $layout numerics.mode=fast precision.fp32_products=fma" "reproducible=$step $layout" |
    grep -v '^$'
done
