#!/bin/bash
# threads.sh BUILD [ROUNDS] [TYPE] -- what a second core adds to a step of GPT-2 124M (1,024 tokens), beside what it adds to the
# machine's own peak. Each core alone and both, step and peak, in turns: the cores of a shared machine are not equally fast, and
# two virtual cores may be one for a while. A gain is the speed of both over the mean of their speeds alone.
set -euo pipefail
build=$1 rounds=${2:-5} type=${3:-fp32}
result=$(mktemp)
trap 'rm -f "$result"' EXIT
read -r first second < <(python3 -c 'import os; print(*sorted(os.sched_getaffinity(0))[:2])')
step="$build/orthant bench step model.preset=gpt2-124m data.seq_len=${BENCH_SEQ_LEN:-1024} train.global_batch=1
  train.micro_batch=1 precision.compute=$type --serve"
step=$(tr -d '\n' <<<"$step")
programs=()
for cores in "$first,$second" "$first" "$second"; do
  threads=$([[ $cores == *,* ]] && echo 2 || echo 1)
  programs+=("step on $cores=taskset -c $cores $step run.threads=$threads")
  programs+=("peak on $cores=taskset -c $cores python3 tools/bench/peak.py $type $build/orthant run.threads=$threads")
done
python3 tools/bench/versus.py --rounds "$rounds" --json "$result" "${programs[@]}"
python3 - "$result" <<'PY'
import json, statistics, sys
rounds = list(zip(*(program["seconds"] for program in json.load(open(sys.argv[1]))["programs"])))
def gain(both, a, b):
    return 2 / (both * (1 / a + 1 / b))
gains = [(gain(*r[0::2]), gain(*r[1::2])) for r in rounds]
step, peak, share = (statistics.median(x) for x in zip(*((s, p, s / p) for s, p in gains)))
print(f"\nstep {step:.3f} times as fast on two cores, peak {peak:.3f}: {100 * share:.1f} % of the peak's gain")
least = [min(x) for x in zip(*rounds)]
print(f"at the least times {gain(*least[0::2]):.3f} and {gain(*least[1::2]):.3f}; rounds: " +
      ", ".join(f"{s:.2f}/{p:.2f}" for s, p in gains))
PY
