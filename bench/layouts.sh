#!/bin/bash
# layouts.sh BUILD [ROUNDS] [TYPE] -- a step of GPT-2 124M (8 sequences of 1,024 tokens) on two ranks of one thread each beside one
# rank of two threads, in turns (tools/bench/versus.py).
set -euo pipefail
build=$1 rounds=${2:-5} type=${3:-fp32}
step="$build/orthant bench step model.preset=gpt2-124m data.seq_len=${BENCH_SEQ_LEN:-1024} train.global_batch=8 train.micro_batch=1
  run.threads=2 precision.compute=$type --serve"
step=$(tr -d '\n' <<<"$step")
versus() {
  python3 tools/bench/versus.py --rounds "$rounds" --probe "$build/orthant bench peak --json" "one rank=$step" "$@"
}
versus "dp 2=$step parallel.dp=2" "zero 3=$step parallel.dp=2 parallel.zero=3" # apart: all at once want 24 GB
versus "tp 2=$step parallel.tp=2" "pp 2=$step parallel.pp=2 parallel.pipeline=1f1b" "cp 2=$step parallel.cp=2"
