#!/usr/bin/env python3
"""zero_table.py -- the table of docs/parallel.md on ZeRO: what `orthant plan --json` says of one model over dp=4 under each stage.
MB (10^6 bytes) of a rank, the mean of the four."""
import json
import os
import subprocess

RUN = ("model.family=gpt2 model.layers=2 model.hidden=768 model.heads=12 model.vocab=8192 model.tied=false data.seq_len=64 parallel.dp=4 "
       "train.global_batch=8 train.micro_batch=1 data.valid_fraction=0 run.threads=4 --json")
ROWS = ["zero=0", "zero=1", "zero=2", "zero=3", "zero=3 keep_whole=3072", "zero=1 shard_group=2", "zero=2 shard_group=2", "zero=3 shard_group=2"]


def main():
    print("| | sent | parameters | gradients | optimizer |\n| --- | --- | --- | --- | --- |")
    for row in ROWS:
        options = [f"parallel.{option}" for option in row.split()]
        command = [os.environ.get("ORTHANT", "orthant"), "plan", *RUN.split(), *options]
        plan = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)
        ranks = plan["ranks"]
        sent = [sum(plan["comm"].get(axis, {}).values()) for axis in ("dp", "shard", "replicate")]
        memory = [sum(rank["memory"][what] for rank in ranks) for what in ("params", "grads", "optimizer")]
        mean = [f"{x / len(ranks) * 1e-6:.1f}" for x in memory]
        label = ", ".join(option.replace("=", ": ") for option in row.split())
        print(f"| `{label}` | " + " + ".join(f"{x / len(ranks) * 1e-6:.1f}" for x in sent if x) + " | " + " | ".join(mean) + " |")


if __name__ == "__main__":
    main()
