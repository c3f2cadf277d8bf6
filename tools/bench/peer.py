"""What the peer programs share: options, the go protocol, and the summary line.

The go protocol lets versus.py take turns between programs: the program warms up and prints "ready";
for every line "go" on standard input it does one step and prints its seconds; at the end of the input
it prints one JSON line about itself and ends. Without --serve it steps --steps times by itself.
"""
import argparse
import json
import os
import resource
import statistics
import sys
import time


def parser(doc):
    p = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    p.add_argument("--compile", action="store_true", help="torch.compile")
    p.add_argument("--warmup", type=int, default=2, help="steps before ready")
    p.add_argument("--steps", type=int, default=5, help="steps when not serving")
    p.add_argument("--serve", action="store_true", help="go protocol on standard input")
    return p


def rss_mb():
    """Highest resident set of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def drive(args, step, flops, **facts):
    """Runs step() as the protocol says. flops: work of one step. facts: what else to report."""
    def timed():
        t = time.perf_counter()
        step()
        return time.perf_counter() - t

    start = time.perf_counter()
    first = timed()
    for _ in range(args.warmup - 1):
        step()
    facts.update(first_step_s=round(first, 3), warmup_s=round(time.perf_counter() - start, 3))
    seconds = []
    if args.serve:
        print("ready", flush=True)
        for line in sys.stdin:
            if line.strip() == "go":
                seconds.append(timed())
                print(f"{seconds[-1]:.6f}", flush=True)
    else:
        seconds = [timed() for _ in range(args.steps)]
    if seconds:
        median = statistics.median(seconds)
        facts.update(step_s=round(median, 5), step_min_s=round(min(seconds), 5), step_max_s=round(max(seconds), 5),
                     gflops=round(flops / median / 1e9, 1))
        if "tokens" in facts:
            facts["tokens_per_s"] = round(facts["tokens"] / median, 1)
    facts["peak_rss_mb"] = round(rss_mb(), 1)
    print(json.dumps({"threads": args.threads, "dtype": args.dtype, "compile": args.compile,
                      "steps": len(seconds), "flops": flops, **facts}), flush=True)
