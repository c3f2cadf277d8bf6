#!/bin/bash
# collectives.sh BUILD [RANKS] [ROUNDS] [MAX_MB] -- our all-reduce between thread ranks against Open MPI's,
# interleaved by rounds; medians over rounds of the best time in each.
set -euo pipefail
build=$1 ranks=${2:-2} rounds=${3:-5} max_mb=${4:-256}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
sizes=()
for ((b = 65536; b <= max_mb << 20; b *= 4)); do sizes+=("$b"); done
out=$(mktemp)
trap 'rm -f "$out"' EXIT
for ((r = 0; r < rounds; r++)); do
  "$build/orthant" bench collectives --ranks="$ranks" --rounds=1 --max-mb="$max_mb" --brief | awk '$1 == "all_reduce" { print "ours", $2, $3 }' >>"$out"
  mpirun --oversubscribe --bind-to core -n "$ranks" "$build/bench_collectives_mpi" "${sizes[@]}" |
    awk '$1 == "all_reduce" { print "mpi", $2, $3 }' >>"$out"
done
printf '%12s %14s %14s %8s\n' bytes 'ours us' 'Open MPI us' ratio
for b in "${sizes[@]}"; do
  median() { awk -v w="$1" -v b="$b" '$1 == w && $2 == b { print $3 }' "$out" | sort -g | awk '{ x[NR] = $1 } END { print x[int((NR + 1) / 2)] }'; }
  ours=$(median ours) mpi=$(median mpi)
  awk -v b="$b" -v o="$ours" -v m="$mpi" 'BEGIN { printf "%12d %14.1f %14.1f %8.2f\n", b, o, m, m / o }'
done
