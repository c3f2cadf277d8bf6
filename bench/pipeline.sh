#!/bin/bash
# pipeline.sh BUILD [STEPS] -- idle time of a pipeline of two ranks of one thread each, measured, beside what its
# schedule would have with the same time for every forward and backward.
set -euo pipefail
build=$1 steps=${2:-9}
for schedule in naive gpipe 1f1b interleaved zb-h1 zb-v pipedream; do
  virtual=1
  [[ $schedule != interleaved && $schedule != zb-v ]] || virtual=2
  "$build/orthant" bench step model.family=gpt2 model.layers=8 model.hidden=512 model.heads=8 model.vocab=512 \
    model.max_seq=256 data.seq_len=256 train.global_batch=8 train.micro_batch=1 run.threads=2 --steps="$steps" \
    parallel.pp=2 parallel.pipeline=$schedule parallel.virtual_stages=$virtual \
    model.tied=false train.clip_norm=0 | grep 'micro-batches:'
done
