#!/usr/bin/env python3
"""Makes tests/fixtures/bf16_adamw.json: steps of PyTorch's fused AdamW on weights in bf16, without masters, moments in bf16.

    python tools/golden/make_bf16_adamw_fixture.py

Needs torch. `w` are the weights before the first step, `g` the gradients of each step, `p`, `m`, `v` what is kept after each: bit
patterns of bf16. The fused step computes in fp32 and rounds to nearest at the end, as `precision.rounding=nearest` does; its formulas
round otherwise in fp32, which may move a number to its neighbour in bf16 now and then. CPU, one thread.
"""
import json
from pathlib import Path

import torch

N, STEPS, WORDS = 200, 4, dict(lr=0.01, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)


def bits(t):
    return [x & 0xFFFF for x in t.detach().view(torch.int16).tolist()]


def main():
    torch.set_num_threads(1)
    torch.manual_seed(5)
    p = torch.nn.Parameter(torch.randn(N).bfloat16())
    opt = torch.optim.AdamW([p], fused=True, **WORDS)
    out = dict(made_by="tools/golden/make_bf16_adamw_fixture.py", torch=torch.__version__, lr=WORDS["lr"], beta1=0.9, beta2=0.95,
               eps=WORDS["eps"], weight_decay=WORDS["weight_decay"], w=bits(p), g=[], p=[], m=[], v=[])
    for _ in range(STEPS):
        p.grad = torch.randn(N).bfloat16()
        out["g"].append(bits(p.grad))
        opt.step()
        out["p"].append(bits(p))
        out["m"].append(bits(opt.state[p]["exp_avg"]))
        out["v"].append(bits(opt.state[p]["exp_avg_sq"]))
    path = Path(__file__).resolve().parents[2] / "tests" / "fixtures" / "bf16_adamw.json"
    path.write_text(json.dumps(out) + "\n")


if __name__ == "__main__":
    main()
