#!/bin/bash
# pareto_table.sh TEXT -- the table of docs/memory.md: what `plan --pareto` says of the run that recompute_table.sh shows. Beside the bytes
# of the plain run, because those of its workspace depend on the processor.
set -euo pipefail
"${ORTHANT:-orthant}" plan configs/runs/llama.yaml data.path="$1" model.layers=16 precision.compute=fp32 --pareto --json | python3 -c '
import json, sys
rows = json.load(sys.stdin)["pareto"]
print("| bytes less than a plain run | FLOPs added | made again |")
print("| --- | --- | --- |")
for r in rows[::2]:
    plain = r["hardware_flops"] - r["added_flops"]
    print("| %d | %.1f %% | %s |" % (rows[0]["rank_bytes"] - r["rank_bytes"], 100 * r["added_flops"] / plain, r["recomputed"]))'
