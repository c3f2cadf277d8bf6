#!/usr/bin/env python3
"""bubble_table.py -- the table of docs/pipeline.md: what `orthant explain --schedule` says of p = 8 ranks, forward 1 and backward 2 units."""
import os
import re
import subprocess

RUN = "model.layers=16 model.hidden=32 model.heads=4 model.tied=false parallel.pp=8 train.micro_batch=1 run.threads=8 train.clip_norm=0 --schedule --width=80"
CHUNKS = {"naive": 1, "gpipe": 1, "1f1b": 1, "interleaved": 2, "zb-h1": 1, "zb-v": 2, "pipedream": 1}


def cell(name, micro_batches):
    command = [os.environ.get("ORTHANT", "orthant"), "explain", *RUN.split(), f"parallel.pipeline={name}",
               f"parallel.virtual_stages={CHUNKS[name]}", f"train.global_batch={micro_batches}"]
    text = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
    idle = re.search(r"ranks idle ([0-9.]+%)", text).group(1)
    in_flight = max(int(row.split()[4]) for row in re.findall(r"^\d+ .*%.*$", text, re.M)) / CHUNKS[name]
    return f"{idle} ({in_flight:g})"


def main():
    print("| schedule | m = 8 | 16 | 32 | 64 |\n| --- | --- | --- | --- | --- |")
    for name in CHUNKS:
        print(f"| `{name}` | " + " | ".join(cell(name, m) for m in (8, 16, 32, 64)) + " |")


if __name__ == "__main__":
    main()
