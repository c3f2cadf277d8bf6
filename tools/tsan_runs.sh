#!/bin/bash
# tsan_runs.sh BUILD -- short runs of train in a build with ThreadSanitizer: the loader's thread, saves beside the steps, evaluation,
# pipelines with and without weight versions, offload, and two processes over MPI where it is built. A report ends it with exit 1.
set -euo pipefail
build=$(realpath "$1")
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Open MPI and its helpers are not instrumented: what happens inside of them is not looked at.
export TSAN_OPTIONS=halt_on_error=1:exitcode=66:ignore_noninstrumented_modules=1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
cat docs/*.md >"$work/text.txt"
cat >"$work/run.yaml" <<RUN
model: {layers: 4, hidden: 32, heads: 4}
data: {path: $work/text.txt, tokenizer: bytes, seq_len: 32, valid_fraction: 0.01}
train: {steps: 6, global_batch: 8, micro_batch: 1, eval_every: 3, eval_batches: 1}
checkpoint: {every_steps: 2, keep: 2}
comm: {timeout_s: 60}
RUN
number=0
run() {
  number=$((number + 1))
  echo "tsan: train $*"
  "${launch[@]}" "$build/orthant" train "$work/run.yaml" "checkpoint.dir=$work/run-$number" "$@" >"$work/log" 2>&1 || {
    local code=$?
    tail -60 "$work/log"
    echo "tsan: exit $code: train $*" >&2
    exit 1
  }
}
launch=()
run parallel.dp=2 parallel.zero=3 precision.compute=bf16
run parallel.dp=2 parallel.pp=2 parallel.pipeline=interleaved parallel.virtual_stages=2 memory.recompute=selective
run parallel.pp=2 parallel.pipeline=pipedream model.tied=false train.clip_norm=0
run parallel.tp=2 parallel.cp=2 memory.offload_optimizer=file "memory.offload_dir=$work"
run parallel.dp=2 parallel.zero=1 memory.offload_optimizer=host memory.offload_ratio=0.5 run.threads=2
if command -v mpirun >/dev/null && grep 'mpi *on' <<<"$("$build/orthant" doctor)" >/dev/null; then
  launch=(mpirun --oversubscribe --mca mpi_yield_when_idle 1 -n 2)
  run parallel.dp=2 parallel.zero=1 comm.backend=mpi run.threads=1
fi
