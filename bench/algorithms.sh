#!/bin/bash
# algorithms.sh BUILD [ROUNDS] [RANKS...] -- all-reduce and broadcast by tree, direct and ring between processes of MPI, through
# shared memory and through TCP: what orth_comm_algo_of (src/comm/bytes.c) goes by. Medians in microseconds over rounds of the best
# time in each.
set -euo pipefail
build=$1 rounds=${2:-3}
shift $(($# < 2 ? $# : 2))
[[ $# -gt 0 ]] || set -- 2 4 8
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
echo '| through | ranks | bytes | all-reduce: tree | direct | ring | broadcast: tree | direct |'
echo '| --- | --- | --- | --- | --- | --- | --- | --- |'
for through in 'shared memory' TCP; do
  options=()
  [[ $through == TCP ]] && options=(--mca pml ob1 --mca btl tcp,self)
  for ranks; do
    mpirun "${options[@]}" --mca mpi_yield_when_idle 1 --oversubscribe -n "$ranks" \
      "$build/orthant" bench collectives comm.backend=mpi --rounds="$rounds" --max-mb=1 |
      awk -v through="$through" -v ranks="$ranks" '
        $2 ~ /^(tree|direct|ring)$/ { us[$1, $2, $3] = $4; if (!($3 in seen)) { seen[$3] = 1; sizes[++n] = $3 } }
        END {
          for (i = 1; i <= n; i++) {
            b = sizes[i]
            print "| " through " | " ranks " | " b " | " us["all_reduce", "tree", b] " | " us["all_reduce", "direct", b] " | " \
              us["all_reduce", "ring", b] " | " us["broadcast", "tree", b] " | " us["broadcast", "direct", b] " |"
          }
        }'
  done
done
