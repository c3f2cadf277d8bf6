#!/bin/bash
# demo.sh [TEXT] -- trains a small GPT from real text to a sample, and shows each command.
# Without TEXT: Webster's dictionary of 1913 (GCIDE), from the Debian package dict-gcide.
# Trains as many steps as about DEMO_SECONDS (default 90) hold on this machine, 200 to 4000 of them.
# Environment: ORTHANT (the program), DEMO_DIR (default runs/demo), DEMO_OPTIONS (more key=value).
set -euo pipefail
orthant=${ORTHANT:-build/orthant} dir=${DEMO_DIR:-runs/demo} text=${1:-}

step() {
  echo
  echo "\$ $*"
  "$@"
}

mkdir -p "$dir"
if [[ -z $text ]]; then
  text=$dir/webster.txt
  [[ -s $text ]] || zcat /usr/share/dictd/gcide.dict.dz >"$text.part"
  [[ -s $text ]] || mv "$text.part" "$text"
fi
echo "text: $text, $(wc -c <"$text") bytes"

# shellcheck disable=SC2086
options=(data.path="$dir/shards" checkpoint.dir="$dir/run" ${DEMO_OPTIONS:-})
[[ -s $dir/tokenizer.json && $dir/tokenizer.json -nt $text ]] ||
  step "$orthant" tokenizer train --vocab-size=4096 --out="$dir/tokenizer.json" "$text"
[[ -d $dir/shards && $dir/shards -nt $dir/tokenizer.json ]] ||
  step "$orthant" data prepare --tokenizer="$dir/tokenizer.json" --out="$dir/shards" --overwrite "$text"
if [[ " ${DEMO_OPTIONS:-} " != *" train.steps="* ]]; then
  took=$("$orthant" bench step configs/runs/demo.yaml "${options[@]}" --steps=20 --json | sed 's/.*"step_s": \([0-9.]*\).*/\1/')
  steps=$(awk -v t="$took" -v s="${DEMO_SECONDS:-90}" 'BEGIN { n = int(s / t / 10) * 10; print (n < 200 ? 200 : (n > 4000 ? 4000 : n)) }')
  echo
  echo "a step takes $took s here: $steps steps"
  options+=(train.steps="$steps")
fi
step "$orthant" plan configs/runs/demo.yaml "${options[@]}"
rm -rf "$dir/run"
step "$orthant" train configs/runs/demo.yaml "${options[@]}"
step "$orthant" eval "$dir/run"
step "$orthant" generate "$dir/run" --tokens=150 --samples=5
step "$orthant" generate "$dir/run" --tokens=80 --seed=3 --prompt='Orthant \'

