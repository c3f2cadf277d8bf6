#!/usr/bin/env python3
"""Makes tests/fixtures/moments_8bit.json: steps of AdamW with moments in 8 bits, recomputed from the published definition.

    python tools/golden/make_moments_8bit_fixture.py

Needs torch. Source: Dettmers et al., "8-bit Optimizers via Block-wise Quantization", arXiv:2110.02861, section 2; the dynamic map in steps of
fp32 as bitsandbytes makes it (create_dynamic_map): boundaries by torch.linspace. All else is exact: numbers are fractions, rounded once to
fp32 where the kernel has one rounding (kernels/optim.h: a fused multiply-add is one), the nearest value is found by looking at all 256, and
between two equally near ones the smaller magnitude is taken. All numbers are bit patterns of fp32.

`map` {signed, unsigned}: by code. `cols`, `block`: a row begins a new block. `w`: weights before the first step, `g`: gradients of each step, of
very different sizes within a block. `p`, `m`, `v`, `scales`: what is kept after each step; scales of m and v in turns.
"""
import json
import math
from fractions import Fraction as F
from pathlib import Path

import numpy as np
import torch

from exact import bits, f32

ROWS, COLS, BLOCK, STEPS = 2, 300, 256, 3
LR, B1, B2, EPS, DECAY = 0.01, 0.9, 0.95, 1e-8, 0.1


def dynamic_map(signed):
    values = [0.0, 1.0]
    for i in range(7):
        edges = torch.linspace(0.1, 1, 2 ** (i if signed else i + 1) + 1, dtype=torch.float32)
        middles = ((edges[:-1] + edges[1:]) / 2 * 10 ** (i - 6)).tolist()
        values += middles + ([-x for x in middles] if signed else [])
    assert len(values) == 256
    return [F(x) for x in sorted(values)]


def encode(table, x):
    scale = max(abs(v) for v in x)
    codes = []
    for v in x:
        y = f32(v / scale) if scale else F(0)
        codes.append(min(range(256), key=lambda c: (abs(table[c] - y), abs(table[c]))))
    return codes, scale


def blocks():
    for r in range(ROWS):
        for c in range(0, COLS, BLOCK):
            yield range(r * COLS + c, r * COLS + min(c + BLOCK, COLS))


def step(t, p, m, v, scales, g, maps):
    s = [F(float(np.float32(x))) for x in (LR, B1, B2, EPS, DECAY)]
    lr, b1, b2, eps, decay = s
    keep = f32(1 - lr * decay)
    new1, new2 = f32(1 - b1), f32(1 - b2)
    size = F(float(np.float32(float(lr) / (1.0 - float(b1) ** t))))
    root = F(float(np.float32(1.0 / math.sqrt(1.0 - float(b2) ** t))))
    for n, block in enumerate(blocks()):
        ms, vs = [], []
        for i in block:
            m1 = f32(b1 * f32(maps[0][m[i]] * scales[2 * n]) + f32(new1 * g[i]))
            v1 = f32(b2 * f32(maps[1][v[i]] * scales[2 * n + 1]) + f32(f32(new2 * g[i]) * g[i]))
            sq = F(float(np.sqrt(np.float32(float(v1)))))
            p[i] = f32(f32(p[i] * keep) - size * f32(m1 / f32(sq * root + eps)))
            ms.append(m1)
            vs.append(v1)
        for table, kept, x, k in ((maps[0], m, ms, 0), (maps[1], v, vs, 1)):
            codes, scales[2 * n + k] = encode(table, x)
            for i, c in zip(block, codes):
                kept[i] = c


def main():
    rng = np.random.default_rng(8)
    n = ROWS * COLS
    maps = (dynamic_map(True), dynamic_map(False))
    p = [F(float(x)) for x in rng.standard_normal(n).astype(np.float32)]
    m, v, scales = [127] * n, [0] * n, [F(0)] * (2 * len(list(blocks())))
    out = dict(made_by="tools/golden/make_moments_8bit_fixture.py", torch=torch.__version__, rows=ROWS, cols=COLS, block=BLOCK, lr=LR, beta1=B1,
               beta2=B2, eps=EPS, weight_decay=DECAY, map=dict(signed=[bits(x) for x in maps[0]], unsigned=[bits(x) for x in maps[1]]),
               w=[bits(x) for x in p], g=[], p=[], m=[], v=[], scales=[])
    for t in range(1, STEPS + 1):
        g = (rng.standard_normal(n) * 10.0 ** rng.uniform(-4, 0, n)).astype(np.float32)
        g[rng.integers(0, n, n // 20)] = 0
        step(t, p, m, v, scales, [F(float(x)) for x in g], maps)
        out["g"].append([bits(x) for x in g])
        out["p"].append([bits(x) for x in p])
        out["m"].append(list(m))
        out["v"].append(list(v))
        out["scales"].append([bits(x) for x in scales])
    path = Path(__file__).resolve().parents[2] / "tests" / "fixtures" / "moments_8bit.json"
    path.write_text(json.dumps(out, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
