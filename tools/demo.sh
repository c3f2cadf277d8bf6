#!/bin/bash
# demo.sh [TEXT] -- trains a small GPT from real text to a sample, and shows each command.
# Without TEXT: Webster's dictionary of 1913 (GCIDE), from the Debian package dict-gcide.
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
step "$orthant" plan configs/runs/demo.yaml "${options[@]}"
rm -rf "$dir/run"
step "$orthant" train configs/runs/demo.yaml "${options[@]}"
step "$orthant" eval "$dir/run"
step "$orthant" generate "$dir/run" --tokens=120
