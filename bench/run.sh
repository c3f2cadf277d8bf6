#!/bin/bash
# run.sh BUILD -- times this machine and Orthant on it; writes bench/results/DATE-CPU.md. Each part says its bar, and a table at the end
# which bars were met (bench/verdicts.py). Peaks before and after say how quiet the machine was.
# Environment: BENCH_QUICK=1 for a short run that only shows that everything works; BENCH_THREADS; BENCH_ROUNDS, of which a figure is the median (3: about an
# hour and a half on two cores).
set -euo pipefail
build=$1
. bench/report.sh
quick=${BENCH_QUICK:-}
rounds=${BENCH_ROUNDS:-3}
[[ ! $quick ]] || rounds=1
report_head "${quick:+quick}" "Orthant on one machine"
report_peaks before

bench() { # NAME: builds it; false where a library is missing
  cmake --build "$build" --target "$1" >/dev/null 2>&1 || { echo "$1: not built here"; return 1; }
}

if bench bench_gemm_dnnl; then
  report_part "Matrix products against bare oneDNN" \
    "geometric mean of the ratio at least 1.0 in fast mode and 0.95 in reproducible mode, fp32 and bf16; no shape below 0.85. d.any: the weight in oneDNN's own layout, reordered beforehand; kept, k: so it is with memory.packed_weights" \
    "$build/bench_gemm_dnnl" all "$([[ $quick ]] && echo 124m || echo all)" "$rounds" "$threads"
fi
if bench bench_attention; then
  report_part "Attention, forward and backward" \
    "at least 60 % of the FMA peak in fp32 at T = 1024 to 4096, head size 64 and 128" \
    "$build/bench_attention" "$([[ $quick ]] && echo 0.02 || echo 0.5)"
fi
if bench bench_pointwise; then
  report_part "AdamW, clipping, cast, norms against copying" \
    "AdamW + clip + cast at least 80 % of copy bandwidth" \
    "$build/bench_pointwise" "$threads" "$((5 * rounds))"
fi
if bench bench_tokenizer; then
  report_part "Tokenizer" "against Hugging Face: see the table of peers" "$build/bench_tokenizer"
fi
report_part "Plans of large layouts" \
  "llama3-70b on 256 ranks within 2 s of one core and 1 GB, measuring the peaks not counted; llama3-405b on 16,384 devices, cp=1 and cp=2, within 1 s of one core each" \
  bench/plan.sh "$build"
report_part "Collectives between 2 thread ranks" "at least 85 % of the byte optimum from 4 MB on; canonical order costs at most 15 %" \
  "$build/orthant" bench collectives --rounds="$rounds" --max-mb="$([[ $quick ]] && echo 4 || echo 256)"
if command -v mpirun >/dev/null && bench bench_collectives_mpi; then
  report_part "All-reduce against Open MPI" "at least 4 times as fast from 64 KB to 256 MB" \
    bench/collectives.sh "$build" 2 "$rounds" "$([[ $quick ]] && echo 4 || echo 256)"
fi
if command -v mpirun >/dev/null; then
  report_part "Tree, direct and ring between processes" "what comm.algorithm=auto chooses is within 25 % of the fastest" \
    bench/algorithms.sh "$build" "$rounds"
fi
for type in fp32 bf16; do
  report_part "GPT-2 124M on one thread and on two, $type" "two threads gain at least 95 % of what they gain in the peak" \
    bench/threads.sh "$build" "$rounds" "$type"
done
for type in fp32 bf16; do
  report_part "GPT-2 124M on two ranks of one thread beside one rank of two, $type" \
    "dp 2: at least 95 % of one rank's tokens/s; tp 2 and pp 2 (8 micro-batches, 1f1b: idle 1/9 by formula) at least 85 % with the bubble taken out" \
    bench/layouts.sh "$build" "$rounds" "$type"
done
report_part "Bubble of a pipeline of 2 ranks of one thread" \
  "within 5 points of what the schedule has with the same time for every action" \
  bench/pipeline.sh "$build" "$rounds"
for type in fp32 bf16; do
  report_part "The price of reproducible numerics on each axis, GPT-2 124M, $type" "" \
    bench/modes.sh "$build" "$rounds" "$type"
done
for type in fp32 bf16; do
  report_part "The price of less memory: recomputation and host space beside a plain step of GPT-2 124M, $type" \
    "recompute=full at most 1.35, selective 1.03, offload_optimizer=host 1.10; auto never slower than the best named policy that fits the same limit: 1.00, and what rounds differ" \
    bench/memory.sh "$build" "$rounds" "$type"
done
# The whole run writes and reads 9.3 GB a step in the folder BENCH_DIR.
# shellcheck disable=SC2046 # words
report_part "GPT-2 774M under 2 GB, state in a file, against the floor of the disk" "the floor is at least 70 % of the update" \
  bench/file_floor.sh "$build" configs/runs/big-on-small.yaml $([[ $quick ]] && echo 1 model.preset=gpt2-124m data.seq_len=64 run.probe_s=0.01 || echo 3)
for parts in 1 8; do
  for type in fp32 bf16; do
    for micro in $([[ $quick ]] && echo 1 || echo 1 4); do
      report_part "GPT-2 124M, step of $micro x 1024 tokens, $type, numerics.parts=$parts" \
        "$([[ $parts == 1 ]] && echo "the step's products at bare oneDNN's rate are at least 85 % (fp32), 70 % (bf16) of its time" || echo "at most 8 % slower than parts=1")" \
        "$build/orthant" bench step model.preset=gpt2-124m data.seq_len=1024 train.global_batch="$micro" \
        train.micro_batch="$micro" precision.compute=$type numerics.parts=$parts run.threads="$threads" \
        --steps="$rounds"
    done
  done
done
if has_bf16x6; then
  report_part "GPT-2 124M, step of 1 x 1024 tokens, fp32, precision.fp32_products=bf16x6, numerics.parts=1" "" \
    "$build/orthant" bench step model.preset=gpt2-124m data.seq_len=1024 train.global_batch=1 train.micro_batch=1 \
    precision.fp32_products=bf16x6 numerics.parts=1 run.threads="$threads" --steps="$rounds"
  report_part "Attention in fp32 with precision.fp32_products=bf16x6" "in shares of the FMA peak" \
    "$build/bench_attention" "$([[ $quick ]] && echo 0.02 || echo 0.5)" 0 bf16x6
fi
report_peaks after
# Last, so that a part that it does not understand costs no other part. It passes over the section that it is written into.
status=0
{
  printf '\n## Bars\n\n'
  python3 bench/verdicts.py "$out"
} | tee -a "$out" || status=$?
echo "written: $out"
exit "$status"
