#!/bin/bash
# peers.sh BUILD -- Orthant beside PyTorch, Hugging Face tokenizers and llm.c, in turns, in one run; writes
# bench/results/DATE-CPU-peers.md. tools/bench/peers.sh makes the peers' environment outside of this tree.
# Environment: BENCH_QUICK=1 for a short run that only shows that everything works; BENCH_THREADS;
# LLMC: the folder of a clone of llm.c (without it that comparison is left out).
set -euo pipefail
build=$1
. bench/report.sh
quick=${BENCH_QUICK:-}
python=$(tools/bench/peers.sh)
rounds=$([[ $quick ]] && echo 1 || echo "${BENCH_ROUNDS:-5}")
report_head "peers${quick:+-quick}" "Orthant beside others"
report_peaks before

step=$build/orthant\ bench\ step\ model.preset=gpt2-124m\ data.seq_len=1024\ run.threads=$threads\ --serve
for type in fp32 bf16; do
  for micro in $([[ $quick ]] && echo 1 || echo 1 4); do
    programs=()
    for parts in 1 8; do
      programs+=("orthant, parts $parts=$step precision.compute=$type numerics.parts=$parts train.global_batch=$micro train.micro_batch=$micro")
    done
    [[ $type == fp32 ]] && has_bf16x6 &&
      programs+=("orthant, parts 1, bf16x6=$step precision.fp32_products=bf16x6 numerics.parts=1 train.global_batch=$micro train.micro_batch=$micro")
    torch="$python tools/bench/torch_step.py --serve --threads $threads --dtype $type --micro-batch $micro"
    programs+=("PyTorch, eager=$torch")
    [[ $quick ]] || programs+=("PyTorch, compile=$torch --compile")
    if [[ $type == fp32 && $micro == 1 && -n ${LLMC:-} ]]; then
      gcc -Ofast -march=native -fopenmp -DOMP -I "$LLMC" tools/bench/llmc_step.c -lm -o "$build/llmc_step" &&
        programs+=("llm.c=env OMP_NUM_THREADS=$threads $build/llmc_step $micro 1024")
    fi
    report_part "GPT-2 124M, full step of $micro x 1024 tokens, $type" \
      "ratio at least $([[ $type == fp32 ]] && echo "1.2 over PyTorch, 5 over llm.c" || echo "1.5 over PyTorch"), and less memory" \
      "$python" tools/bench/versus.py --rounds "$rounds" --probe "$build/orthant bench peak --json" "${programs[@]}"
  done
done
if cmake --build "$build" --target bench_attention >/dev/null 2>&1; then
  report_part "Attention against PyTorch's scaled_dot_product_attention" "at least 1.5 times as fast in both types" \
    "$python" bench/peer_attention.py "$build/bench_attention" "$threads" "$([[ $quick ]] && echo 1 || echo 5)" "$([[ $quick ]] && echo 0.05 || echo 0.5)"
fi
if cmake --build "$build" --target bench_tokenizer >/dev/null 2>&1; then
  # shellcheck disable=SC2046
  report_part "Tokenizer against Hugging Face tokenizers" "encoding at least 8 times as fast on one thread, training at least 2 times" \
    "$python" tools/bench/tokenizer_peer.py "$build/bench_tokenizer" $([[ $quick ]] && echo --no-train --rounds 1)
fi
report_peaks after
echo "written: $out"
