#!/usr/bin/env python3
"""accuracy.py HARDWARE.yaml [--report FILE] -- predicted and measured steps of short runs on this machine, after
`orthant doctor --calibrate=HARDWARE.yaml`. ORTHANT names the program.

The list is gone through twice, some steps of each run at a time; the error is that of the least step, because other programs on the machine
only make steps longer. The median step and the prediction's error against it stand beside it: on a quiet machine the two agree.
"""
import argparse
import json
import os
import statistics
import subprocess
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ORTHANT = os.environ.get("ORTHANT", os.path.join(TOP, "build", "orthant"))
SECONDS, LEAST, MOST, PASSES = 1.5, 4, 40, 2

MODELS = {
    "gpt2 h192 T128": "model.family=gpt2 model.layers=3 model.hidden=192 model.heads=6 model.vocab=1000 data.seq_len=128",
    "gpt2 h384 T256": "model.family=gpt2 model.layers=4 model.hidden=384 model.heads=6 model.vocab=3000 data.seq_len=256",
    "gpt2 h96 T512": "model.family=gpt2 model.layers=6 model.hidden=96 model.heads=3 model.vocab=500 data.seq_len=512",
    "llama h256 T256": "model.family=llama model.layers=4 model.hidden=256 model.heads=8 model.kv_heads=4 model.ffn=688 model.vocab=4096 data.seq_len=256",
    "llama h640 T128": "model.family=llama model.layers=2 model.hidden=640 model.heads=10 model.kv_heads=2 model.ffn=1728 model.vocab=8000 data.seq_len=128",
    "llama h128 T1024": "model.family=llama model.layers=3 model.hidden=128 model.heads=4 model.kv_heads=4 model.ffn=384 model.vocab=2048 data.seq_len=1024",
}
# name, model, other words
RUNS = [
    ("1 rank, 2 threads", "gpt2 h192 T128", "train.micro_batch=2 train.global_batch=8"),
    ("1 rank, 2 threads", "gpt2 h384 T256", "train.micro_batch=1 train.global_batch=4"),
    ("1 rank, 2 threads", "gpt2 h96 T512", "train.micro_batch=2 train.global_batch=4"),
    ("1 rank, 2 threads", "llama h256 T256", "train.micro_batch=4 train.global_batch=8"),
    ("1 rank, 2 threads", "llama h640 T128", "train.micro_batch=2 train.global_batch=4"),
    ("1 rank, 2 threads", "llama h128 T1024", "train.micro_batch=1 train.global_batch=2"),
    ("1 rank, 2 threads, bf16", "gpt2 h384 T256", "train.micro_batch=2 train.global_batch=4 precision.compute=bf16"),
    ("1 rank, 2 threads, bf16", "llama h256 T256", "train.micro_batch=2 train.global_batch=8 precision.compute=bf16"),
    ("1 rank, 2 threads, bf16", "llama h640 T128", "train.micro_batch=4 train.global_batch=4 precision.compute=bf16"),
    ("1 rank, 1 thread", "gpt2 h192 T128", "train.micro_batch=4 train.global_batch=4 run.threads=1"),
    ("1 rank, 1 thread", "llama h256 T256", "train.micro_batch=2 train.global_batch=2 run.threads=1"),
    ("1 rank, recompute full", "gpt2 h384 T256", "train.micro_batch=2 train.global_batch=4 memory.recompute=full"),
    ("1 rank, recompute full", "llama h256 T256", "train.micro_batch=2 train.global_batch=4 memory.recompute=full"),
    ("1 rank, recompute selective", "llama h128 T1024", "train.micro_batch=1 train.global_batch=2 memory.recompute=selective"),
    ("1 rank, recompute selective, bf16", "gpt2 h96 T512", "train.micro_batch=4 train.global_batch=4 memory.recompute=selective precision.compute=bf16"),
    ("dp 2", "gpt2 h192 T128", "train.micro_batch=2 train.global_batch=8 parallel.dp=2"),
    ("dp 2", "llama h640 T128", "train.micro_batch=1 train.global_batch=8 parallel.dp=2"),
    ("dp 2, ZeRO 1", "llama h256 T256", "train.micro_batch=2 train.global_batch=8 parallel.dp=2 parallel.zero=1"),
    ("dp 2, ZeRO 2", "gpt2 h384 T256", "train.micro_batch=1 train.global_batch=4 parallel.dp=2 parallel.zero=2"),
    ("dp 2, ZeRO 3", "gpt2 h384 T256", "train.micro_batch=2 train.global_batch=4 parallel.dp=2 parallel.zero=3"),
    ("dp 2, ZeRO 3, bf16", "llama h640 T128", "train.micro_batch=2 train.global_batch=8 parallel.dp=2 parallel.zero=3 precision.compute=bf16"),
    ("dp 4", "llama h256 T256", "train.micro_batch=1 train.global_batch=8 parallel.dp=4"),
    ("dp 4, ZeRO 1", "gpt2 h384 T256", "train.micro_batch=1 train.global_batch=4 parallel.dp=4 parallel.zero=1"),
    ("tp 2", "gpt2 h384 T256", "train.micro_batch=2 train.global_batch=4 parallel.tp=2"),
    ("tp 2, sequence parallel", "llama h640 T128", "train.micro_batch=2 train.global_batch=4 parallel.tp=2 parallel.sequence_parallel=true"),
    ("tp 2, bf16", "llama h256 T256", "train.micro_batch=4 train.global_batch=8 parallel.tp=2 precision.compute=bf16"),
    ("cp 2, all-gather", "llama h128 T1024", "train.micro_batch=1 train.global_batch=2 parallel.cp=2"),
    ("cp 2, ring", "llama h128 T1024", "train.micro_batch=1 train.global_batch=2 parallel.cp=2 parallel.cp_kind=ring"),
    ("cp 2, all-to-all", "llama h256 T256", "train.micro_batch=2 train.global_batch=4 parallel.cp=2 parallel.cp_kind=all_to_all"),
    ("pp 2, 1f1b", "gpt2 h384 T256", "train.micro_batch=1 train.global_batch=8 parallel.pp=2 parallel.pipeline=1f1b"),
    ("pp 2, 1f1b", "llama h256 T256", "train.micro_batch=1 train.global_batch=4 parallel.pp=2 parallel.pipeline=1f1b"),
    ("pp 2, zb-h1", "llama h640 T128", "train.micro_batch=2 train.global_batch=8 parallel.pp=2 parallel.pipeline=zb-h1"),
    ("pp 2, gpipe, recompute full", "gpt2 h384 T256", "train.micro_batch=1 train.global_batch=4 parallel.pp=2 parallel.pipeline=gpipe memory.recompute=full"),
    ("pp 4, 1f1b", "llama h256 T256", "train.micro_batch=1 train.global_batch=8 parallel.pp=4 parallel.pipeline=1f1b"),
    ("dp 2, tp 2", "gpt2 h384 T256", "train.micro_batch=1 train.global_batch=4 parallel.dp=2 parallel.tp=2"),
    ("dp 2, pp 2", "llama h256 T256", "train.micro_batch=1 train.global_batch=8 parallel.dp=2 parallel.pp=2 parallel.pipeline=1f1b"),
]


def predict(words, hardware):
    done = subprocess.run([ORTHANT, "plan", "--json", "--cluster=" + hardware] + words, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)["time"]["step_s"]


def measure(words):
    p = subprocess.Popen([ORTHANT, "bench", "step", "--serve"] + words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert p.stdout.readline().strip() == "ready"
    steps, begin = [], time.time()
    while len(steps) < LEAST or (time.time() - begin < SECONDS and len(steps) < MOST):
        p.stdin.write("go\n")
        p.stdin.flush()
        steps.append(float(p.stdout.readline()))
    p.stdin.close()
    p.wait()
    return steps


def main():
    args = argparse.ArgumentParser()
    args.add_argument("hardware")
    args.add_argument("--report")
    args.add_argument("--only")
    args = args.parse_args()
    rows, errors, typical = ["| run | model | predicted ms | least ms | error % | median ms | error % |",
                          "| --- | --- | --- | --- | --- | --- | --- |"], [], []
    runs = [(name, model, MODELS[model].split() + words.split()) for name, model, words in RUNS if not args.only or args.only in name + " " + model]
    steps = [[] for _ in runs]
    for _ in range(PASSES):
        for k, (_, _, words) in enumerate(runs):
            steps[k] += measure(words)
    for (name, model, words), measured in zip(runs, steps):
        predicted, least, median = predict(words, args.hardware), min(measured), statistics.median(measured)
        errors.append(predicted / least - 1)
        typical.append(predicted / median - 1)
        rows.append("| %s | %s | %.2f | %.2f | %+.1f | %.2f | %+.1f |" % (
            name, model, 1e3 * predicted, 1e3 * least, 100 * errors[-1], 1e3 * median, 100 * typical[-1]))
        print(rows[-1], flush=True)
    head = "%d runs: %s." % (len(rows) - 2, "; ".join(
        "against the %s step median error %.1f %%, worst %.1f %%, mean %.1f %%" % (
            name, 100 * statistics.median(map(abs, x)), 100 * max(map(abs, x)), 100 * statistics.mean(map(abs, x)))
        for name, x in (("least", errors), ("median", typical))))
    print(head)
    if args.report:
        name = [l.split(":", 1)[1].strip().strip('"') for l in open(args.hardware) if l.startswith("  name:")][0]
        with open(args.report, "w") as f:
            f.write("# Predicted and measured steps on one machine\n\n%s, calibrated once by `orthant doctor --calibrate=FILE`; then "
                    "`bench/accuracy.py FILE`.\nLeast and median are of %d to %d steps, half of them some minutes after the others.\n\n%s\n\n%s\n" % (name, PASSES * LEAST, PASSES * MOST, head, "\n".join(rows)))


if __name__ == "__main__":
    main()
