#!/bin/bash
# html_check.sh [FOLDER] -- looks at pages of `plan --html` in headless Chromium at 1280 and 400 pixels: no message on the console, nothing wider
# than the window, no text below 9 pixels. Screenshots go to FOLDER (default build/html). ORTHANT names the program.
# Without Chromium (tools/deps.sh browser) it checks nothing, says so and fails; HTML_CHECK=optional makes that a success.
set -euo pipefail
cd "$(dirname "$0")/.."
orthant=${ORTHANT:-build/orthant}
out=${1:-build/html}

browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [[ -z $browser ]]; then
  echo "html_check: NOTHING WAS CHECKED: there is no chromium; tools/deps.sh browser installs it" >&2
  [[ ${HTML_CHECK:-} == optional ]]
  exit
fi
mkdir -p "$out"
profile=$(mktemp -d)
trap 'rm -rf "$profile"' EXIT

run() {
  "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$profile" --host-resolver-rules='MAP * ~NOTFOUND' \
    --enable-logging=stderr "$@" 2>"$out/log"
}

# look NAME: the page $out/NAME.html.
look() {
  local width found
  for width in 1280 400; do
    # The page in a frame of this width; a script of the check, not of the page, measures it.
    {
      sed '/<\/body>/,$d' "$out/$1.html"
      cat <<'END'
<script>
  let small = 1e9;
  for (const e of document.querySelectorAll('p,td,th,text,span,b,h2'))
    if (e.textContent.trim()) {
      const scale = e.ownerSVGElement ? e.ownerSVGElement.getBoundingClientRect().width / e.ownerSVGElement.viewBox.baseVal.width : 1;
      small = Math.min(small, parseFloat(getComputedStyle(e).fontSize) * scale);
    }
  parent.postMessage('wide=' + document.documentElement.scrollWidth + ' small=' + small.toFixed(1), '*');
</script></body></html>
END
    } >"$out/measured.html"
    cat >"$out/frame.html" <<END
<!DOCTYPE html><title>-</title><body style="margin:0"><iframe src="measured.html" style="border:0;width:${width}px;height:2400px"></iframe>
<script>addEventListener('message', e => document.title = e.data)</script></body>
END
    run --window-size=1280,2400 --virtual-time-budget=4000 --dump-dom "file://$(realpath "$out")/frame.html" >"$out/dom"
    found=$(sed -n 's/.*<title>\(wide=[^<]*\)<.*/\1/p' "$out/dom")
    if grep -a 'CONSOLE' "$out/log"; then echo "html_check: $1: a message on the console" >&2; exit 1; fi
    awk -v width="$width" -v page="$1" '{
      split($1, a, "="); split($2, b, "=");
      if (a[2] == "" || a[2] > width || b[2] < 9) { print "html_check: " page " at " width " pixels: " $0; exit 1 }
      print "html_check: " page " at " width " pixels: " $0 }' <<<"$found"
    run --window-size=1280,2400 --screenshot="$out/$1-$width.png" "file://$(realpath "$out")/frame.html"
  done
}

"$orthant" plan configs/runs/llama3-8b.yaml --cluster=h100-64 parallel.pp=2 parallel.dp=16 --html="$out/cluster.html" >/dev/null
"$orthant" plan model.preset=gpt2-tiny data.seq_len=128 train.global_batch=16 parallel.dp=2 parallel.zero=3 --html="$out/here.html" >/dev/null
"$orthant" plan configs/runs/llama3-8b.yaml --cluster=a100-80gb-8 parallel.dp=4 parallel.tp=2 memory.offload_optimizer=host \
  --html="$out/offload.html" >/dev/null
"$orthant" plan configs/runs/llama3-8b.yaml --cluster=h100-a100 parallel.tp=8 parallel.dp=4 train.global_batch=256 \
  --html="$out/groups.html" >/dev/null
look cluster
look here
look offload
look groups
