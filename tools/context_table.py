#!/usr/bin/env python3
"""context_table.py -- the table of docs/context.md: what `orthant plan --json` says of one model under each kind of context parallelism.
MiB of rank 0."""
import json
import os
import subprocess

RUN = ("model.family=llama model.layers=2 model.hidden=256 model.heads=8 model.kv_heads=8 data.tokenizer=bytes data.seq_len=8192 "
       "train.global_batch=1 train.micro_batch=1 precision.compute=bf16 data.valid_fraction=0 run.isa=avx2 --json")
CASES = [("c=1", "parallel.cp=1")] + [(f"{kind} {c}", f"parallel.cp={c} parallel.cp_kind={kind}")
                                      for kind in ("all_gather", "ring", "all_to_all") for c in (2, 4)]


def plan_of(options, ranks):
    command = [os.environ.get("ORTHANT", "orthant"), "plan", *RUN.split(), *options.split(), f"run.threads={ranks}"]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)


def main():
    columns = []
    for label, options in CASES:
        rank = plan_of(options, 1 if label == "c=1" else int(label.split()[1]))["ranks"][0]
        kept = [rank["memory"][what] for what in ("activations", "comm", "workspace")]
        sent = sum(n for call, n in rank["comm"].get("cp", {}).items() if call != "all_reduce")
        columns.append((label, *(x / 2**20 for x in (*kept, sum(kept), sent))))
    print("| | " + " | ".join(c[0] for c in columns) + " |\n|" + " --- |" * (len(columns) + 1))
    for i, name in enumerate(("activations", "communication", "workspace"), 1):
        print(f"| {name} | " + " | ".join(f"{c[i]:.1f}" for c in columns) + " |")
    print("| all three, of c=1 | " + " | ".join(f"{c[4] / columns[0][4]:.2f}" for c in columns) + " |")
    print("| sent over cp, without gradients of parameters | " + " | ".join(f"{c[5]:.1f}" for c in columns) + " |")


if __name__ == "__main__":
    main()
