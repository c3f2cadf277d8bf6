#!/usr/bin/env python3
"""The machine's peak behind the go protocol, so that it can be probed between the steps of programs.

    peak.py TYPE ORTHANT [key=value ...]

A "step" is 1 TFLOP at the rate of the fastest unit for fp32 or bf16 (which may also be widened to fp32), on run.threads
threads: about 0.5 s are measured, the seconds are scaled.
"""
import json
import subprocess
import sys


def seconds(kind, command):
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return 1e3 / max(u["all_threads"] for name, u in json.loads(out).items() if name.startswith(("fp32", kind)))


def main():
    kind, orthant, *options = sys.argv[1:]
    print("ready", flush=True)
    for line in sys.stdin:
        if line.strip() == "go":
            print(f"{seconds(kind, [orthant, 'bench', 'peak', '--json', *options]):.6f}", flush=True)


if __name__ == "__main__":
    main()
