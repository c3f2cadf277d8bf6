#!/bin/bash
# file_floor.sh BUILD [RUN.yaml [STEPS [KEY=VALUE...]]] -- a step whose optimizer state is in a file, beside the floor: the least that its bytes to and
# from the file take at the rates of the disk, measured before and after (orthant doctor --calibrate). They move in the update, which waits for the
# norm of all gradients. Bar: the floor is at least 70 % of the update.
# Environment: BENCH_DIR, the folder of the file (memory.offload_dir).
set -euo pipefail
build=$1 run=${2:-configs/runs/big-on-small.yaml} steps=${3:-3} dir=${BENCH_DIR:-.}
shift $(($# < 3 ? $# : 3))
words=(memory.offload_dir="$dir" "$@")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
load=$(cut -d' ' -f1 /proc/loadavg)

number() { # FILE KEY: of an object that is printed by orthant
  python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["file"][sys.argv[2]])' "$1" "$2"
}

measure_disk() { # NAME: a plan at the rates of now
  "$build/orthant" doctor --calibrate="$folder/$1.yaml" "${words[@]}" >/dev/null
  "$build/orthant" plan "$run" "${words[@]}" run.hardware="$folder/$1.yaml" --json >"$folder/$1.json"
}

measure_disk before
"$build/orthant" bench step "$run" "${words[@]}" --steps="$steps" >"$folder/step"
measure_disk after
step=$(awk '$1 == "step" { print $2 }' "$folder/step") update=$(awk '$2 == "update" { ms += $4 } END { print ms / 1e3 }' "$folder/step")
echo "$run${*:+ $*} in $dir: $(number "$folder/before.json" read_a_step) bytes read and $(number "$folder/before.json" written_a_step) written a step"
for when in before after; do
  awk -v when=$when -v r="$(number "$folder/$when.json" read_per_s)" -v w="$(number "$folder/$when.json" written_per_s)" \
    -v floor="$(number "$folder/$when.json" floor_s)" -v step="$step" -v update="$update" 'BEGIN {
      printf "%-6s  reads %.2f GB/s, writes %.2f GB/s: floor %.2f s; step %.2f s, its update %.2f s: %.0f %%\n", when, r / 1e9, w / 1e9, floor, step,
             update, 100 * floor / update }'
done
awk -v load="$load" 'BEGIN { if (load > 1) print "load before: " load ": the machine was busy, quote no ratio" }'
