# report.sh -- sourced by run.sh and peers.sh: the head of a table in bench/results/, and how a part is added.
# Sets `out` (the file), `threads`.
shopt -s nullglob
cpu=$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1 | tr -cs 'A-Za-z0-9\n' '-' | sed 's/^-*//; s/-*$//')
threads=${BENCH_THREADS:-$(nproc)}

# Whether this machine can take precision.fp32_products=bf16x6.
has_bf16x6() {
  "$build/orthant" bench peak precision.fp32_products=bf16x6 --seconds=0.01 >/dev/null 2>&1
}

# report_head KIND TITLE
report_head() {
  mkdir -p bench/results
  out=bench/results/$(date +%Y-%m-%d)-${cpu:-cpu}${1:+-$1}.md
  {
    echo "# $2"
    echo
    echo "| | |"
    echo "| --- | --- |"
    echo "| date | $(date -u +'%Y-%m-%d %H:%M UTC') |"
    echo "| processor | $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1), $(nproc) cores |"
    echo "| memory | $(awk '/MemTotal/ { printf "%.0f GB", $2 / 1e6 }' /proc/meminfo) |"
    echo "| kernel, compiler | $(uname -sr), $(gcc --version | head -1) |"
    echo "| Orthant | $("$build/orthant" --version 2>/dev/null | head -1), commit $(git describe --always --dirty 2>/dev/null || echo unknown) |"
    echo "| load before | $(cut -d' ' -f1-3 /proc/loadavg) |"
  } >"$out"
  cat "$out"
}

# report_part TITLE BAR COMMAND...: runs the command, and adds it with its output and how long that took; BAR is what it is held against
report_part() {
  local title=$1 bar=$2 start=$SECONDS
  shift 2
  {
    echo
    echo "## $title"
    echo
    [[ -z $bar ]] || printf 'Bar: %s\n\n' "$bar"
    echo '```'
    echo "\$ $*" | sed "s|$HOME|~|g"
    "$@" 2>&1 || echo "(ended with $?)"
    echo '```'
    echo
    echo "Took $((SECONDS - start)) s."
  } | tee -a "$out"
}

report_peaks() {
  report_part "Peaks, $1" "" "$build/orthant" bench peak run.threads="$threads"
}
