#!/usr/bin/env python3
"""Makes tests/fixtures/quant.json: numbers of 8 and 4 bits as PyTorch and ml_dtypes convert them, and tensors quantised with these types.

    python tools/golden/make_quant_fixture.py

Needs torch, numpy, ml_dtypes. `convert`: `x`, bit patterns of fp32 (all values of each type, what is halfway between two, its
neighbours, denormals, infinities, NaN, random patterns), and their codes as `e4m3` (ml_dtypes.float8_e4m3fn), `e5m2` (torch.float8_e5m2) and `e2m1`
(ml_dtypes.float4_e2m1fn; 255 for NaN, which the type has not); `e4m3_saturated` is torch.float8_e4m3fn, which saturates (PyTorch 2.15).
PyTorch's and ml_dtypes' codes of what is not too large are compared here.
`decode`: the values of all codes, as bit patterns.

`tensors`: a matrix [ROWS, COLS] of numbers that tests make themselves (`number`), quantised as TransformerEngine's reference quantisers do it,
written here anew with these types: largest magnitude, scale, product, clamp, conversion. Codes and scales of one byte are hexadecimal text,
other scales bit patterns of fp32.
"""
import json
from pathlib import Path

import ml_dtypes
import numpy as np
import torch

ROWS, COLS = 130, 144
F32 = np.float32
FP8 = {"e4m3": (torch.float8_e4m3fn, 448.0, ml_dtypes.float8_e4m3fn), "e5m2": (torch.float8_e5m2, 57344.0, ml_dtypes.float8_e5m2)}
MOST = torch.finfo(torch.float32).max


def number(i):
    """Number i: a 32-bit hash of i as fraction and sign, times a power of 2 that changes every 7 numbers."""
    h = (i * 2654435761 + 12345) % 2**32
    h = (h ^ h >> 15) * 2246822519 % 2**32
    return (h / 2**31 - 1) * 2.0 ** (i // 7 % 24 - 12)


def bits(x):
    return np.asarray(x, dtype=F32).view(np.uint32).astype(np.int64).tolist()


def to_codes(x, dtype):
    return torch.from_numpy(x).to(dtype).view(torch.uint8).numpy()


def patterns():
    xs = [0.0, np.inf, np.nan, 1e-45, 1e38, 464.0, 479.9, 480.0, 61440.0, 61439.9, 65536.0, 2.0**-10, 2.0**-17, 0.25, 5.0, 7.0]
    for dt in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
        v = np.arange(128, dtype=np.uint8).view(dt).astype(F32)
        v = v[np.isfinite(v)]
        half = (v[:-1] + v[1:]) / 2
        xs += [*v, *half, *np.nextafter(half, F32(np.inf)), *np.nextafter(half, F32(0))]
    half = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0], dtype=F32)
    xs += [*half, *np.nextafter(half, F32(9)), *np.nextafter(half, F32(0))]
    x = np.array(xs, dtype=F32)
    rng = np.random.default_rng(4)
    random = rng.integers(0, 2**32, 300, dtype=np.uint32).view(F32)
    near = (rng.standard_normal(300) * 2.0 ** rng.uniform(-18, 17, 300)).astype(F32)
    return np.concatenate([x, -x, random, near])


def convert():
    x = patterns()
    out = dict(x=bits(x))
    for name, (dtype, _, other) in FP8.items():
        codes = to_codes(x, dtype)
        theirs = x.astype(other).view(np.uint8)
        assert (codes == theirs)[~np.isnan(x) & (np.abs(x) <= FP8[name][1])].all()
        out[name] = (theirs if name == "e4m3" else codes).tolist()
    out["e4m3_saturated"] = to_codes(x, torch.float8_e4m3fn).tolist()
    four = x.astype(ml_dtypes.float4_e2m1fn).view(np.uint8) & 15
    out["e2m1"] = np.where(np.isnan(x), 255, four).tolist()
    return out


def decode():
    every = np.arange(256, dtype=np.uint8)
    out = {k: bits(torch.from_numpy(every).view(d).float().numpy()) for k, (d, _, _) in FP8.items()}
    out["e2m1"] = bits(every[:16].view(ml_dtypes.float4_e2m1fn).astype(F32))
    out["e8m0"] = bits(torch.from_numpy(every).view(torch.float8_e8m0fnu).float().numpy())
    return out


def tiles(x, rows, cols):
    for r in range(0, ROWS, rows):
        for c in range(0, COLS, cols):
            yield slice(r, min(r + rows, ROWS)), slice(c, min(c + cols, COLS))


def scale_of(amax, largest, power_of_2):
    """TransformerEngine: compute_scale_from_amax."""
    if amax == 0 or torch.isinf(amax):
        return torch.tensor(1.0)
    s = torch.clamp(torch.tensor(largest) / amax, max=MOST)
    return torch.exp2(torch.floor(torch.log2(s.double()))).float() if power_of_2 else s


def fp8(x, scale, name):
    dtype, largest, _ = FP8[name]
    return (x * scale).clamp(-largest, largest).to(dtype).view(torch.uint8)


def blocks(x, rows, cols, name, power_of_2):
    q, scales = torch.zeros_like(x, dtype=torch.uint8), []
    for t in tiles(x, rows, cols):
        s = scale_of(x[t].abs().max(), FP8[name][1], power_of_2)
        q[t] = fp8(x[t], s, name)
        scales.append(float(1 / s))
    return dict(rows=rows, cols=cols, type=name, power_of_2=power_of_2, q=q.numpy().tobytes().hex(), scale=bits(scales))


def mx(x, name):
    """The exponent of amax / largest, rounded up when any bit of the fraction is set."""
    q, scales = torch.zeros_like(x, dtype=torch.uint8), []
    for t in tiles(x, 1, 32):
        d = x[t].abs().max() * (torch.tensor(1.0) / FP8[name][1])
        e = int(torch.ceil(torch.log2(d.double()))) + 127 if d > 0 else 0
        e = min(max(e, 0), 254)
        q[t] = fp8(x[t], torch.tensor(2.0 ** (127 - e)), name)
        scales.append(e)
    return dict(rows=1, cols=32, type=name, q=q.numpy().tobytes().hex(), scale=bytes(scales).hex())


def nvfp4(x, rows):
    amax = x.abs().max()
    s = torch.clamp(torch.tensor(448.0 * 6.0) / amax, max=MOST)
    per_block = s * (torch.tensor(1.0) / 6.0)
    q, scales = np.zeros(x.shape, dtype=np.uint8), []
    for t in tiles(x, rows, 16):
        d = (x[t].abs().max() * per_block).clamp(max=MOST).clamp(-448, 448).to(torch.float8_e4m3fn)
        encode = torch.clamp(1.0 / (d.float() * (1.0 / s)), max=MOST)
        y = (x[t] * encode).clamp(-6, 6).numpy()
        q[t] = y.astype(ml_dtypes.float4_e2m1fn).view(np.uint8) & 15
        scales.append(int(d.view(torch.uint8)))
    packed = q[:, 0::2] | q[:, 1::2] << 4
    return dict(rows=rows, cols=16, q=packed.astype(np.uint8).tobytes().hex(), scale=bytes(scales).hex())


def main():
    x = torch.tensor([number(i) for i in range(ROWS * COLS)], dtype=torch.float32).reshape(ROWS, COLS)
    x[3, :32] = 0
    tensor = {}
    for name, p in (("e4m3", False), ("e5m2", True)):
        s = scale_of(x.abs().max(), FP8[name][1], p)
        tensor[name] = dict(type=name, power_of_2=p, q=fp8(x, s, name).numpy().tobytes().hex(), scale=bits([float(1 / s)]))
    out = dict(made_by="tools/golden/make_quant_fixture.py", torch=torch.__version__, ml_dtypes=ml_dtypes.__version__, convert=convert(),
               decode=decode(), rows=ROWS, cols=COLS, amax=bits([float(x.abs().max())])[0], tensor=list(tensor.values()),
               blocks=[blocks(x, 1, 128, "e4m3", True), blocks(x, 128, 128, "e4m3", True), blocks(x, 1, 128, "e5m2", False)],
               mx=[mx(x, "e4m3"), mx(x, "e5m2")], nvfp4=[nvfp4(x, 1), nvfp4(x, 16)])
    path = Path(__file__).resolve().parents[2] / "tests" / "fixtures" / "quant.json"
    path.write_text(json.dumps(out, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
