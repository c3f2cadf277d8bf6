#!/bin/bash
# plan.sh BUILD -- how long `orthant plan` takes for four large layouts, and its memory. Measuring this machine's peaks is a part of
# each call, and shown by itself: it is what a plan of a tiny model takes.
set -euo pipefail
build=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

plan() { # NAME key=value...: a row
  local name=$1 status=0
  shift
  printf 'data: {path: none.txt, seq_len: 8192}\nprecision: {compute: bf16}\nparallel: {zero: 1}\n' >"$folder/run.yaml"
  /usr/bin/time -f '%e %U %S %M' -o "$folder/time" "$build/orthant" plan "$folder/run.yaml" "$@" >/dev/null 2>"$folder/errors" || status=$?
  if [[ $status != 0 && $status != 3 ]]; then # 3: it does not fit this machine
    cat "$folder/errors" >&2
    exit "$status"
  fi
  tail -1 "$folder/time" | awk -v name="$name" '{printf "| %s | %.2f | %.2f | %.0f |\n", name, $1, $2 + $3, $4 / 1024}'
}

echo "| plan | seconds | of one core | MiB |"
echo "| --- | --: | --: | --: |"
plan "peaks alone: gpt2-tiny, 1 rank" model.preset=gpt2-tiny data.seq_len=8 parallel.zero=0
plan "llama3-70b, dp=8 tp=8 pp=4: 256 ranks, 512 sequences" model.preset=llama3-70b train.global_batch=512 \
  parallel.dp=8 parallel.tp=8 parallel.pp=4
plan "llama3-405b, dp=8 tp=8 pp=16: 1,024 ranks, 512 sequences" model.preset=llama3-405b train.global_batch=512 \
  parallel.dp=8 parallel.tp=8 parallel.pp=16
for layout in parallel.dp=128 "parallel.dp=64 parallel.cp=2"; do
  # shellcheck disable=SC2086
  plan "on a cluster, nothing measured: llama3-405b, $layout tp=8 pp=16: 16,384 ranks, 2,048 sequences" --cluster=h100-16384 \
    model.preset=llama3-405b train.global_batch=2048 parallel.tp=8 parallel.pp=16 $layout
done
