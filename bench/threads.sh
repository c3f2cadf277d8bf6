#!/bin/bash
# threads.sh BUILD [ROUNDS] [TYPE] -- a step of GPT-2 124M (1,024 tokens) on one thread beside two, in turns, against what
# the second thread adds to the machine's own peak, probed before and after.
set -euo pipefail
build=$1 rounds=${2:-5} type=${3:-fp32}
result=$(mktemp)
trap 'rm -f "$result"' EXIT
step="$build/orthant bench step model.preset=gpt2-124m data.seq_len=${BENCH_SEQ_LEN:-1024} train.global_batch=1
  train.micro_batch=1 precision.compute=$type --serve"
step=$(tr -d '\n' <<<"$step")
python3 tools/bench/versus.py --rounds "$rounds" --json "$result" --probe "$build/orthant bench peak run.threads=2 --json" \
  "two threads=$step run.threads=2" "one thread=$step run.threads=1"
python3 - "$result" "$type" <<'PY'
import json, sys
result = json.load(open(sys.argv[1]))
def gain(probe):  # of the fastest unit for this type; bf16 may also be widened to fp32
    units = [u for name, u in json.loads(probe).items() if name.startswith(("fp32", sys.argv[2]))]
    fastest = max(units, key=lambda u: u["one_thread"])
    return fastest["all_threads"] / fastest["one_thread"]
step, peaks = result["programs"][1]["ratio"], [gain(result["probe_before"]), gain(result["probe_after"])]
print(f"\nstep {step:.3f} times as fast on two threads; peak {peaks[0]:.3f} before, {peaks[1]:.3f} after: "
      f"{100 * 2 * step / sum(peaks):.1f} % of the peak's gain")
PY
