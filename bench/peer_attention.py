"""Attention of Orthant against PyTorch's scaled_dot_product_attention, in turn, on the same cores.

Usage: peer_attention.py PATH/bench_attention [threads] [rounds] [seconds]
Needs torch. Prints the median time of forward + backward of each, and the ratio.
"""
import re
import statistics
import subprocess
import sys
import time

import torch
import torch.nn.functional as F

HEADS = 12  # as in bench_attention.c


def peer(dtype, T, D, budget):
    q, k, v = (torch.randn(1, HEADS, T, D).to(dtype).requires_grad_() for _ in range(3))
    do = torch.randn(1, HEADS, T, D).to(dtype)
    times, start = [], time.perf_counter()
    while len(times) < 4 or time.perf_counter() - start < budget:
        t = time.perf_counter()
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        torch.autograd.grad(o, (q, k, v), do)
        times.append(time.perf_counter() - t)
    return statistics.median(times[1:])


def main():
    program, threads, rounds, budget = (sys.argv[1:] + ["2", "3", "0.2"][len(sys.argv) - 2:])[:4]
    torch.set_num_threads(int(threads))
    kinds = [("fp32", torch.float32), ("bf16", torch.bfloat16)]
    if subprocess.run([program, "0.01", "1", "bf16x6", "1024", "64"], capture_output=True).returncode == 0:
        kinds.append(("bf16x6", torch.float32))
    for name, dtype in kinds:
        for D in (64, 128):
            for T in (1024, 2048, 4096):
                ours, theirs, share = [], [], []
                for _ in range(int(rounds)):
                    out = subprocess.run([program, budget, threads, name, str(T), str(D)], check=True,
                                         capture_output=True, text=True).stdout
                    rate, percent = re.search(r"both +([\d.]+) GFLOP/s +([\d.]+) %", out).groups()
                    ours.append(7.0 * T * T * D * HEADS / float(rate) * 1e-9)
                    share.append(float(percent))
                    theirs.append(peer(dtype, T, D, float(budget)))
                a, b = statistics.median(ours), statistics.median(theirs)
                print(f"{name} T {T:4} D {D:3} threads {threads}: Orthant {a * 1e3:8.2f} ms "
                      f"({statistics.median(share):5.1f} % of the peak), PyTorch {b * 1e3:8.2f} ms, "
                      f"x {b / a:.2f}", flush=True)


main()
