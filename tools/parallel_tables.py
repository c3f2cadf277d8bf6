#!/usr/bin/env python3
"""parallel_tables.py exposed|buckets|axes -- tables of docs/parallel.md, from `orthant plan --json` and `orthant explain`.

exposed  time that calls hold a rank, with and without overlap, on two cards of one host
buckets  calls and bytes of data parallelism under comm.bucket_mb, overlap and prefetch
axes     bytes sent and memory of tensor, sequence and pipeline parallelism
"""
import json
import os
import re
import subprocess
import sys

ORTHANT = os.environ.get("ORTHANT", "orthant")
SMALL = ("model.family=gpt2 model.layers=4 model.hidden=256 model.heads=4 model.vocab=2048 model.tied=true data.seq_len=64 "
         "train.global_batch=4 train.micro_batch=2 data.valid_fraction=0 run.threads=4 run.isa=avx2")
GPT2 = "model.preset=gpt2-124m data.seq_len=1024 train.global_batch=8 train.micro_batch=1 data.valid_fraction=0 --cluster=a100-80gb-2"


def output(verb, *options):
    return subprocess.run([ORTHANT, verb, *" ".join(options).split()], stdout=subprocess.PIPE, check=True, text=True).stdout


def plan(*options):
    return json.loads(output("plan", *options, "--json"))


def keys(row, section):
    return " ".join(f"{section}.{option}" if "." not in option else option for option in row.split())


def label(row):
    return "`" + ", ".join(option.split(".")[-1].replace("=", ": ") for option in row.split()) + "`"


def exposed():
    print("| | without overlap | with it | activations |\n| --- | --- | --- | --- |")
    for row in ("tp=2", "tp=2 sequence_parallel=true", "cp=2", "cp=2 cp_kind=all_to_all", "dp=2", "dp=2 zero=2", "dp=2 zero=3"):
        plans = [plan(GPT2, keys(row, "parallel"), f"comm.overlap={overlap}") for overlap in ("false", "true")]
        held = [f"{1000 * p['time']['exposed_comm_s']:.2f} ms" for p in plans]
        print(f"| {label(row)} | {held[0]} | {held[1]} | {plans[1]['ranks'][0]['memory']['activations'] * 1e-6:.1f} MB |")


def buckets():
    print("| | calls | gradients sent | parameters sent | activations |\n| --- | --- | --- | --- | --- |")
    for row in ("bucket_mb=0", "bucket_mb=2 overlap=false", "bucket_mb=2 overlap=true", "parallel.zero=3 overlap=false",
                "parallel.zero=3 prefetch=0", "parallel.zero=3 prefetch=1", "parallel.zero=3 prefetch=2",
                "parallel.zero=3 parallel.reshard_after_forward=false"):
        options = (SMALL.replace("global_batch=4", "global_batch=8"), "parallel.dp=2", keys(row, "comm"))
        rank = plan(*options)["ranks"][0]
        sent = next(rank["comm"][axis] for axis in ("dp", "shard") if axis in rank["comm"])
        gathered = sent.get("all_gather", 0)
        calls = len(re.findall(r"= (?:all_reduce|reduce_scatter|all_gather)\(", output("explain", *options)))
        print(f"| {label(row)} | {calls} | {sum(sent.values()) - gathered:,} | {f'{gathered:,}' if gathered else ''} | "
              f"{(rank['memory']['activations'] + rank['memory']['comm']) * 1e-6:.2f} MB |")


def axes():
    print("| | sent by rank 0 | parameters | activations |\n| --- | --- | --- | --- |")
    for row in ("", "tp=2", "tp=4", "tp=2 sequence_parallel=true", "pp=2", "pp=4"):
        rank = plan(SMALL, keys(row, "parallel"))["ranks"][0]
        sent = [f"{n:,} {call.replace('_', '-')}" for calls in rank["comm"].values() for call, n in calls.items() if n]
        print(f"| {label(row) if row else 'one rank'} | {' + '.join(sent)} | {rank['memory']['params']:,} | {rank['memory']['activations']:,} |")


if __name__ == "__main__":
    {"exposed": exposed, "buckets": buckets, "axes": axes}[sys.argv[1]]()
