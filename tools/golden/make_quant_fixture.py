#!/usr/bin/env python3
"""Makes tests/fixtures/quant.json: numbers of 8 and 4 bits as PyTorch and ml_dtypes convert them, and tensors quantised with these types.

    python tools/golden/make_quant_fixture.py

Needs torch, numpy, ml_dtypes. `convert`: `x`, bit patterns of fp32 (all values of each type, what is halfway between two, its
neighbours, denormals, infinities, NaN, random patterns), and their codes as `e4m3` (ml_dtypes.float8_e4m3fn), `e5m2` (torch.float8_e5m2) and `e2m1`
(ml_dtypes.float4_e2m1fn; 255 for NaN, which the type has not); `e4m3_saturated` is torch.float8_e4m3fn, which saturates (PyTorch 2.15).
PyTorch's and ml_dtypes' codes of what is not too large are compared here.
`decode`: the values of all codes, as bit patterns.

`tensors`: a matrix [ROWS, COLS] of numbers that tests make themselves (`number`), and matrices of `special` numbers (their bits are in `x`: no numbers,
infinities, zeros, denormals, the largest), quantised by TransformerEngine's rules, written here anew with these types: largest magnitude, scale, product,
clamp, conversion. Codes and scales of one byte are hexadecimal text, other scales bit patterns of fp32.

    python tools/golden/make_quant_fixture.py --te=CHECKOUT

also runs the reference quantisers of a checkout of TransformerEngine (tests/pytorch/references: scales, a tensor, blocks; reference_nvfp4.py) on the same
matrices, and ends with an error where one bit differs. Where a tile has an infinite number these references make the scale 0 and a NaN makes the scale NaN;
TransformerEngine's kernels (recipe_common.cuh) take 1 and leave NaN out, as is done here. Such tiles are not compared, and are counted. The kernels of MXFP8 have
no reference in PyTorch there.
"""
import argparse
import json
import sys
import types
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
    for r in range(0, x.shape[0], rows):
        for c in range(0, x.shape[1], cols):
            yield slice(r, min(r + rows, x.shape[0])), slice(c, min(c + cols, x.shape[1]))


def amax_of(x):
    """NaN does not count."""
    return x.float().abs().nan_to_num(nan=0.0, posinf=torch.inf).max()


def scale_of(amax, largest, power_of_2, most=MOST):
    """TransformerEngine: compute_scale_from_amax."""
    if amax == 0 or torch.isinf(amax):
        return torch.tensor(1.0)
    s = torch.tensor(largest) / amax
    s = torch.tensor(most) if torch.isinf(s) else s
    return torch.exp2(torch.floor(torch.log2(s.double()))).float() if power_of_2 else s


def fp8(x, scale, name):
    dtype, largest, _ = FP8[name]
    return (x.float() * scale).clamp(-largest, largest).to(dtype).view(torch.uint8)


def blocks(x, rows, cols, name, power_of_2):
    q, scales = torch.zeros_like(x, dtype=torch.uint8), []
    for t in tiles(x, rows, cols):
        s = scale_of(amax_of(x[t]), FP8[name][1], power_of_2, torch.finfo(x.dtype).max)
        q[t] = fp8(x[t], s, name)
        scales.append(float(1 / s))
    return dict(rows=rows, cols=cols, type=name, power_of_2=power_of_2, q=q.numpy().tobytes().hex(), scale=bits(scales))


def mx(x, name):
    """The exponent of amax / largest, rounded up when any bit of the fraction is set."""
    q, scales = torch.zeros_like(x, dtype=torch.uint8), []
    for t in tiles(x, 1, 32):
        d = amax_of(x[t]) * (torch.tensor(1.0) / FP8[name][1])
        e = 254 if torch.isinf(d) else int(torch.ceil(torch.log2(d.double()))) + 127 if d > 0 else 0
        e = min(max(e, 0), 254)
        q[t] = fp8(x[t], torch.tensor(2.0 ** (127 - e)), name)
        scales.append(e)
    return dict(rows=1, cols=32, type=name, q=q.numpy().tobytes().hex(), scale=bytes(scales).hex())


def nvfp4(x, rows):
    amax = amax_of(x)
    s = torch.clamp(torch.tensor(448.0 * 6.0) / amax, max=MOST) if 0 < amax < torch.inf else torch.tensor(1.0)
    per_block = s * (torch.tensor(1.0) / 6.0)
    q, scales = np.zeros(x.shape, dtype=np.uint8), []
    for t in tiles(x, rows, 16):
        d = (amax_of(x[t]) * per_block).clamp(max=MOST).clamp(-448, 448).to(torch.float8_e4m3fn)
        encode = torch.clamp(1.0 / (d.float() * (1.0 / s)), max=MOST)
        y = (x[t].float() * encode).clamp(-6, 6).nan_to_num(nan=6.0).numpy() # the type has no NaN: the largest, as conversions on GPUs make it
        q[t] = y.astype(ml_dtypes.float4_e2m1fn).view(np.uint8) & 15
        scales.append(int(d.view(torch.uint8)))
    packed = q[:, 0::2] | q[:, 1::2] << 4
    return dict(rows=rows, cols=16, q=packed.astype(np.uint8).tobytes().hex(), scale=bytes(scales).hex())


def special():
    """Each row has other numbers; tiles are parts of rows, or all."""
    rng = np.random.default_rng(5)
    row = lambda scale: (rng.standard_normal(COLS) * scale).astype(F32)
    inf, nan, tiny, small, huge, zero, plain = row(1), row(1), row(1e-40), row(1e-37), row(3e37), row(0), row(1)
    inf[[5, 40]], nan[[0, 33, 143]] = [np.inf, -np.inf], np.nan
    huge[7], zero[3], small[140] = np.finfo(F32).max / 2, -0.0, 0
    small[::16], tiny[::16] = F32(3e-37), F32(2.0**-140)
    every = {"all": [inf, nan, tiny, small, huge, zero, plain], "no_infinity": [nan, huge, plain, zero], "small": [tiny, small, zero], "zero": [zero, -zero]}
    for name, rows in every.items():
        for dtype in (torch.float32, torch.bfloat16):
            x = torch.from_numpy(np.stack(rows)).to(dtype)
            if dtype == torch.bfloat16:  # PyTorch's conversion makes negative ones, too
                x.view(torch.int16)[x.isnan()] = 0x7FC0
            yield f"{name} {dtype}", x


def quantised(x):
    tensor = []
    for name, p in (("e4m3", False), ("e5m2", True)):
        s = scale_of(amax_of(x), FP8[name][1], p)
        tensor.append(dict(type=name, power_of_2=p, q=fp8(x, s, name).numpy().tobytes().hex(), scale=bits([float(1 / s)])))
    return dict(rows=x.shape[0], cols=x.shape[1], bf16=x.dtype == torch.bfloat16, amax=bits([float(amax_of(x))])[0], tensor=tensor,
                blocks=[blocks(x, 1, 128, "e4m3", True), blocks(x, 128, 128, "e4m3", True), blocks(x, 1, 128, "e5m2", False)],
                mx=[mx(x, "e4m3"), mx(x, "e5m2")], nvfp4=[nvfp4(x, 1), nvfp4(x, 16)])


# ---- TransformerEngine's own references ----


def load_te(checkout):
    """Its references need PyTorch only; what they import beside it is for types and backends."""
    for name in ("transformer_engine", "transformer_engine.pytorch", "transformer_engine.pytorch.constants", "transformer_engine.pytorch.custom_recipes",
                 "transformer_engine.pytorch.quantized_tensor", "transformer_engine.pytorch.tensor", "transformer_engine.pytorch.tensor.utils"):
        sys.modules[name] = types.ModuleType(name)
    te = sys.modules["transformer_engine.pytorch"]
    te.DType = types.SimpleNamespace(kFloat8E4M3="e4m3", kFloat8E5M2="e5m2")
    sys.modules["transformer_engine.pytorch.constants"].TE_DType_To_Torch = {k: d for k, (d, _, _) in FP8.items()}
    sys.modules["transformer_engine.pytorch.custom_recipes"].__path__ = [str(checkout / "transformer_engine/pytorch/custom_recipes")]
    base = sys.modules["transformer_engine.pytorch.quantized_tensor"]
    sys.modules["transformer_engine.pytorch.tensor.utils"].is_custom = None
    base.QuantizedTensorStorage = base.Quantizer = object
    sys.path.insert(0, str(checkout / "tests/pytorch"))
    from references.blockwise_quantizer_reference import BlockwiseQuantizerReference
    from references.ref_per_tensor_cs import ref_per_tensor_cs_cast
    from transformer_engine.pytorch.custom_recipes.reference_nvfp4 import NVFP4QuantizerRef
    return BlockwiseQuantizerReference(), ref_per_tensor_cs_cast, NVFP4QuantizerRef


def codes_of(case, shape):
    return np.frombuffer(bytes.fromhex(case["q"]), dtype=np.uint8).reshape(shape)


def same_tiles(x, case, codes, scales, what):
    """Compares where all of a tile is finite. Returns (tiles compared, tiles left out)."""
    mine, left = codes_of(case, codes.shape), 0
    grid = list(tiles(x, case["rows"], case["cols"]))
    if codes.shape != x.shape:  # two of 4 bits; the reference has no -0, which conversions on GPUs keep
        mine, codes = (np.stack([c & 15, c >> 4], axis=-1).reshape(x.shape) for c in (mine, codes))
        mine[x.float().numpy() == 0] &= 7
    for at, (r, c) in enumerate(grid):
        if not torch.isfinite(x[r, c]).all():
            left += 1
            continue
        assert (mine[r, c] == codes[r, c]).all(), f"{what}: codes of tile {at}"
        assert case["scale"][at] == scales[at], f"{what}: scale of tile {at}"
    return np.array([len(grid) - left, left])


def against_te(name, x, made, te):
    by_block, by_tensor, nv = te
    sums = np.zeros(2, dtype=int)
    for case in made["tensor"]:
        q, s, _, _ = by_tensor(x, case["type"], False, case["power_of_2"])
        whole = dict(case, rows=x.shape[0], cols=x.shape[1])
        sums += same_tiles(x, whole, q.view(torch.uint8).numpy(), bits(s), f"{name}: tensor {case['type']}")
    for case in made["blocks"]:
        r = by_block.quantize(x, FP8[case["type"]][0], pow_2_scales=case["power_of_2"], quant_tile_shape=(case["rows"], case["cols"]), munge_scale_shapes=False)
        sums += same_tiles(x, case, r.data.view(torch.uint8).numpy(), bits(r.scale.flatten()), f"{name}: blocks {case['rows']} {case['type']}")
    for case in made["nvfp4"]:
        rows, amax = case["rows"], amax_of(x)
        if amax == 0 or torch.isinf(amax):
            continue  # the reference divides by amax
        padded = torch.nn.functional.pad(x, (0, 0, 0, -x.shape[0] % rows))
        q, s = nv._quantize_blockwise_reference(padded, amax, 16, rows, pow_2_scales=False, eps=0.0)
        s = s[::rows].contiguous().view(torch.uint8).flatten().tolist()
        scales = dict(case, scale=list(bytes.fromhex(case["scale"])))
        sums += same_tiles(x, scales, q[: x.shape[0]].numpy(), s, f"{name}: nvfp4 {rows}")
    return sums


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--te", type=Path, help="a checkout of TransformerEngine")
    checkout = args.parse_args().te
    te, sums = checkout and load_te(checkout), np.zeros(2, dtype=int)
    x = torch.tensor([number(i) for i in range(ROWS * COLS)], dtype=torch.float32).reshape(ROWS, COLS)
    x[3, :32] = 0
    made, specials = quantised(x), []
    for name, y in special():
        specials.append(dict(quantised(y), name=name, x=bits(y.float().flatten())))
    if te:
        for name, m, y in [("numbers", made, x)] + [(n, m, y) for (n, y), m in zip(special(), specials)]:
            sums += against_te(name, y, m, te)
        print(f"{sums[0]} tiles equal TransformerEngine's references, {sums[1]} with NaN or infinities were not compared")
    out = dict(made_by="tools/golden/make_quant_fixture.py", torch=torch.__version__, ml_dtypes=ml_dtypes.__version__, convert=convert(),
               decode=decode(), **made, special=specials)
    path = Path(__file__).resolve().parents[2] / "tests" / "fixtures" / "quant.json"
    path.write_text(json.dumps(out, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
