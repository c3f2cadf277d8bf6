#!/usr/bin/env python3
"""zero_table.py [owner] -- tables of docs/parallel.md: what `orthant plan --json` says of one model over dp=4 under each stage of ZeRO, MB
(10^6 bytes) of a rank, the mean of the four. owner: what the ranks of GPT-2 124M send and keep where one owns the optimizer."""
import json
import os
import subprocess
import sys

RUN = ("model.family=gpt2 model.layers=2 model.hidden=768 model.heads=12 model.vocab=8192 model.tied=false data.seq_len=64 parallel.dp=4 "
       "train.global_batch=8 train.micro_batch=1 data.valid_fraction=0 run.threads=4 --json")
ROWS = ["zero=0", "zero=1", "zero=2", "zero=3", "zero=3 keep_whole=3072", "zero=1 shard_group=2", "zero=2 shard_group=2", "zero=3 shard_group=2"]


OWNER_RUN = ("model.preset=gpt2-124m data.seq_len=64 parallel.dp=4 train.global_batch=8 train.micro_batch=1 data.valid_fraction=0 "
             "run.threads=1 run.probe_s=0.003 --json")


def plan_of(run, options):
    command = [os.environ.get("ORTHANT", "orthant"), "plan", *run.split(), *options]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)


def owner_row(label, option, which):
    ranks = [plan_of(OWNER_RUN, option)["ranks"][k] for k in which]
    sent = [rank["comm"]["dp"] for rank in ranks]
    gradients = [dp.get("reduce_scatter", dp["all_reduce"]) for dp in sent] # replicas sum up by all_reduce
    weights = [dp["all_gather"] for dp in sent if "all_gather" in dp]
    cells = [" / ".join(f"{x * 1e-6:.1f}" if x else "0" for x in column)
             for column in (gradients, weights, [rank["memory"]["optimizer"] for rank in ranks])]
    print(f"| {label} | " + " | ".join(cells).replace("|  |", "| |") + " |")


def owner():
    print("| | sends: gradients | sends: weights | optimizer state |\n| --- | --- | --- | --- |")
    owner_row("replicas, each rank", ["parallel.data_parallel=replicas"], [0])
    owner_row("owner, rank 0 / rank 1 / rank 3", ["parallel.data_parallel=owner"], [0, 1, 3])
    owner_row("zero=1, rank 0 / rank 1 / rank 3", ["parallel.zero=1"], [0, 1, 3])


def main():
    print("| | sent | parameters | gradients | optimizer |\n| --- | --- | --- | --- | --- |")
    for row in ROWS:
        options = [f"parallel.{option}" for option in row.split()]
        plan = plan_of(RUN, options)
        ranks = plan["ranks"]
        sent = [sum(plan["comm"].get(axis, {}).values()) for axis in ("dp", "shard", "replicate")]
        memory = [sum(rank["memory"][what] for rank in ranks) for what in ("params", "grads", "optimizer")]
        mean = [f"{x / len(ranks) * 1e-6:.1f}" for x in memory]
        label = ", ".join(option.replace("=", ": ") for option in row.split())
        print(f"| `{label}` | " + " + ".join(f"{x / len(ranks) * 1e-6:.1f}" for x in sent if x) + " | " + " | ".join(mean) + " |")


if __name__ == "__main__":
    owner() if sys.argv[1:] == ["owner"] else main()
