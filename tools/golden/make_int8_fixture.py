#!/usr/bin/env python3
"""Makes tests/fixtures/int8.json: vectors as blocks of int8 with a scale each, and sums of such vectors, recomputed from the definition.

    python tools/golden/make_int8_fixture.py

Needs torch and numpy. Definition (src/tensor/q8.h): scale = largest magnitude of a block of 256 / 127, code = number / scale to the nearest integer, half
to even, number again = code * scale; quotients and products rounded to fp32. All is exact here: numbers are fractions, rounded where the
definition rounds. torch.quantize_per_tensor, which multiplies by 1 / scale, is asked too: its codes may differ by one, at a tie only.

`cases`: `x` bit patterns of fp32, `scale` of each block likewise, `code` (blocks are filled up with 0), `back` the numbers again. A block
with a number that is not finite: all codes 0, scale and numbers NaN (patterns as they come; tests ask for NaN only).
`sums`: of each number of ranks the blocks [rank] {scale, code}, the sum of whose numbers along the aligned tree is rounded to fp32 at each
addition and quantised again: `scale`, `code`.
"""
import json
import math
from fractions import Fraction as F
from pathlib import Path

import numpy as np
import torch

from exact import bits, f32

BLOCK = 256
NAN = 0x7FC00000


def encode(block):
    """Scale and codes of at most 256 floats."""
    if not all(math.isfinite(v) for v in block):
        return None, [0] * BLOCK
    x = [F(v) for v in block]
    scale = f32(max(abs(v) for v in x) / 127)
    codes = [max(-127, min(127, round(f32(v / scale)))) if scale else 0 for v in x]
    if scale >= F(2) ** -120:
        asked = torch.quantize_per_tensor(torch.tensor(block), float(scale), 0, torch.qint8).int_repr().tolist()
        for v, code, other in zip(x, codes, asked):
            assert code == other or (abs(code - other) == 1 and abs(v / scale % 1 - F(1, 2)) < F(1, 10**4)), (v, code, other)
    return scale, codes + [0] * (BLOCK - len(codes))


def decode(scale, codes):
    return [f32(c * scale) for c in codes]


def vectors():
    rng = np.random.default_rng(8)
    normal = rng.standard_normal(700) * 1e-3
    sizes = rng.standard_normal(1000) * 2.0 ** rng.uniform(-30, 30, 1000)
    ties = np.concatenate([np.arange(-127, 128) / 2, [127.0]])  # the scale is 1
    tiny = rng.standard_normal(256) * 1e-42
    odd = rng.standard_normal(1030)
    odd[[3, 300, 600]] = np.inf, -np.inf, np.nan
    zeros = np.array([0.0, -0.0, 0.0])
    huge = rng.uniform(-1, 1, 256) * 3.4e38
    return [v.astype(np.float32) for v in (normal, sizes, ties, tiny, odd, zeros, huge, normal[:1])]


def case(x):
    blocks = [encode([float(v) for v in x[i : i + BLOCK]]) for i in range(0, len(x), BLOCK)]
    back = [v for scale, codes in blocks for v in ([NAN] * BLOCK if scale is None else [bits(v) for v in decode(scale, codes)])]
    return {"x": x.view(np.uint32).astype(np.int64).tolist(), "scale": [NAN if s is None else bits(s) for s, _ in blocks],
            "code": [c for _, codes in blocks for c in codes], "back": back[: len(x)]}


def tree(terms):
    if len(terms) == 1:
        return terms[0]
    left = 1
    while 2 * left < len(terms):
        left *= 2
    return [f32(a + b) for a, b in zip(tree(terms[:left]), tree(terms[left:]))]


def total(ranks):
    rng = np.random.default_rng(100 + ranks)
    blocks = [encode([float(v) for v in (rng.standard_normal(BLOCK) * 2.0 ** rng.integers(-3, 3)).astype(np.float32)]) for _ in range(ranks)]
    scale, codes = encode([float(v) for v in tree([decode(*b) for b in blocks])])
    return {"ranks": [{"scale": bits(s), "code": c} for s, c in blocks], "scale": bits(scale), "code": codes}


def main():
    root = {"block": BLOCK, "cases": [case(x) for x in vectors()], "sums": [total(n) for n in (2, 3, 4, 5, 8)]}
    path = Path(__file__).resolve().parents[2] / "tests/fixtures/int8.json"
    path.write_text(json.dumps(root, separators=(",", ":")) + "\n")
    print(path.stat().st_size, "bytes,", torch.__version__)


main()
