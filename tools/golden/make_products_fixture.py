#!/usr/bin/env python3
"""Makes tests/fixtures/models/gpt2_spread: a model, a batch, and a step whose linear layers multiply quantised operands, for each recipe.

    python tools/golden/make_products_fixture.py [--out DIR]

Needs torch, transformers, safetensors, numpy, ml_dtypes. Each Conv1D of a block becomes y = Q(x) Q(w) + bias, and its backward
dx = Q(dy) Q(w)^T, dw = Q(x)^T Q(dy): Q quantises and gives the numbers that the codes stand for, by PyTorch's float8 types and ml_dtypes'
float4_e2m1fn. The rules are those of TransformerEngine's recipes, with the tensors and tiles of docs/numerics.md; numerics.parts is 1, so that
tokens are in their order. Draws of nvfp4 are Philox 4x32-10 of seed 0, step 1, with the counters of docs/numerics.md.

The model is small, and its numbers are spread: columns from SPREAD_FROM on of what products read are SPREAD times smaller, and their weights
larger, so that a tile of 16, 32 or 128 elements with one scale, or a scale for all, each lose something else. The script refuses to write
a fixture in which two recipes are near.

Tensors of expected.safetensors: main.input_ids, main.targets, main.weight, as in the other models; RECIPE.loss, RECIPE.grad_norm (fp64),
RECIPE.grad.NAME.
"""
import argparse
import json
from pathlib import Path

import ml_dtypes
import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, GPT2Config
from transformers.pytorch_utils import Conv1D

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
LARGEST = {E4M3: 448.0, E5M2: 57344.0}
MOST = torch.finfo(torch.float32).max
SPREAD, SPREAD_FROM = 2.0**13, 20
SEQS, TOKENS, VOCAB, SEED, STEP = 2, 64, 67, 0, 1
HISTORY, MARGIN, LOSS_TIMES = 2, 1, (7, 5, 3, 1)  # fp8_delayed: the last of these steps, which change no weight; the loss is multiplied
APART = 0.03  # of two recipes: some gradient, relative in norm; ten times what tests/test_products.c allows
PRODUCTS = ["attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"]  # of a layer, in the order of the forward
SIGNS = [1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1]  # get_wgrad_sign_vector of TransformerEngine


def encode_scale(amax, dtype, power_of_2):
    scale = torch.where(amax > 0, LARGEST[dtype] / amax, torch.ones_like(amax))
    if power_of_2:
        scale = (scale.view(torch.int32) & 0x7F800000).view(torch.float32)
    return scale


def rounded(x, scale, dtype):
    largest = LARGEST[dtype]
    return (x * scale).clamp(-largest, largest).to(dtype).float() * (1 / scale)


def fp8_tensor(x, dtype, axis, weight=False, use=None, tensor=None):
    """x [sequences, rows, columns]; a weight is one sequence."""
    return rounded(x, encode_scale(x.abs().amax((1, 2), keepdim=True), dtype, False), dtype)


def tiled(x, rows, cols, rounded_tile):
    """Tiles of rows x cols from the first element on; those at the edges are cut short."""
    out = torch.empty_like(x)
    for r in range(0, x.shape[1], rows):
        for c in range(0, x.shape[2], cols):
            for b in range(x.shape[0]):
                out[b, r:r + rows, c:c + cols] = rounded_tile(x[b, r:r + rows, c:c + cols])
    return out


def fp8_block(x, dtype, axis, weight=False, use=None, tensor=None):
    """128 elements along `axis`, the contraction; of a weight 128 x 128."""
    def one(t):
        return rounded(t, encode_scale(t.abs().amax(), dtype, True), dtype)
    return tiled(x, 128 if weight or axis == 1 else 1, 128 if weight or axis == 2 else 1, one)


def mxfp8(x, dtype, axis, weight=False, use=None, tensor=None):
    """32 elements along `axis`; the scale is the power of 2 that is not below amax / largest."""
    def one(t):
        down = t.abs().amax() * torch.tensor(1 / LARGEST[dtype])
        bits = down.reshape(1).view(torch.int32)
        exponent = (bits >> 23) + ((bits & 0x7FFFFF) > 0)
        return rounded(t, torch.ldexp(torch.ones(1), 127 - exponent), dtype)
    return tiled(x, 32 if axis == 1 else 1, 32 if axis == 2 else 1, one)


def philox(seed, stream, hi, lo):
    """The four words of Philox 4x32-10 for the counters hi, lo; src/base/rng.h says what the key is."""
    mask, k0, k1 = 0xFFFFFFFF, (seed ^ stream * 0x85EBCA6B) & 0xFFFFFFFF, ((seed >> 32) + stream) & 0xFFFFFFFF
    c = [lo & mask, lo >> 32, hi & mask, hi >> 32]
    c = [np.broadcast_to(np.asarray(v, dtype=np.uint64), lo.shape) for v in c]
    for _ in range(10):
        p0, p1 = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(p1 >> np.uint64(32)) ^ c[1] ^ np.uint64(k0), p1 & np.uint64(mask), (p0 >> np.uint64(32)) ^ c[3] ^ np.uint64(k1), p0 & np.uint64(mask)]
        k0, k1 = (k0 + 0x9E3779B9) & mask, (k1 + 0xBB67AE85) & mask
    return np.stack(c)


def drawn(shape, use):
    """24 bits for each element [sequence, position, column] of tensor `use` of the step, over 2^24."""
    b, t, c = (np.arange(n, dtype=np.uint64) for n in shape)
    lo = b[:, None, None] << np.uint64(40) ^ t[None, :, None] << np.uint64(18) ^ (c // np.uint64(4))[None, None, :]
    words = philox(SEED, 10, STEP << 24 | use, lo)
    word = np.take_along_axis(words, np.broadcast_to((c % np.uint64(4)).astype(np.int64), lo.shape)[None], 0)[0]
    return torch.from_numpy((word >> np.uint64(8)).astype(np.float32) * np.float32(2.0**-24))


def e2m1(x, use):
    """Nearest, ties to even; with `use` one of the two around it, at random."""
    if use is None:
        return torch.from_numpy(x.clamp(-6, 6).numpy().astype(ml_dtypes.float4_e2m1fn).astype(np.float32))
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 6])
    a = x.abs().clamp(max=6)
    down = torch.searchsorted(values[:8].contiguous(), a, right=True) - 1
    low, step = values[down], torch.where(a < 2, 0.5, torch.where(a < 4, 1.0, 2.0))
    return torch.copysign(values[down + ((a - low) / step > drawn(x.shape, use)).long()], x)


def hadamard(x):
    """Runs of 16 tokens."""
    h = torch.ones(1, 1)
    while h.shape[0] < 16:
        h = torch.cat([torch.cat([h, h], 1), torch.cat([h, -h], 1)])
    b, t, c = x.shape
    return torch.einsum("ik,bnkc->bnic", h * torch.tensor(SIGNS) / 4, x.reshape(b, t // 16, 16, c)).reshape(b, t, c)


def nvfp4(x, dtype, axis, weight=False, use=None, tensor=None):
    """16 elements along `axis`, of a weight 16 x 16, with an E4M3 scale under one of the sequence, or weight."""
    if axis == 1 and not weight:
        x = hadamard(x)
    tensor = (448.0 * 6.0 / x.abs().amax((1, 2))).clamp(max=MOST).reshape(-1, 1, 1, 1, 1)
    b, r, c = x.shape
    rows, cols = (16, 16) if weight else (16, 1) if axis == 1 else (1, 16)
    t = x.reshape(b, r // rows, rows, c // cols, cols)
    block = (t.abs().amax((2, 4), keepdim=True) * (tensor * torch.tensor(1 / 6.0))).clamp(max=448).to(E4M3).float()
    down = block * (1 / tensor)
    return (e2m1((t * (1 / down).clamp(max=MOST)).reshape(b, r, c), use).reshape(t.shape) * down).reshape(b, r, c)


class Delayed:
    """DelayedScaling of TransformerEngine, amax_compute_algo max: of each tensor scale, amax of the step at hand, and amax of the steps before.
    The margin is one for which products summed in fp64 give the same codes: amplified by the steps, one other code is seen in the gradients."""
    scale, amax, history, largest = {}, {}, {}, {}

    def __call__(self, x, dtype, axis, weight=False, use=None, tensor=None):
        self.amax[tensor] = max(self.amax.get(tensor, 0), x.abs().max().item())
        self.largest[tensor] = LARGEST[dtype]
        return rounded(x, torch.tensor(self.scale.get(tensor, 1.0)), dtype)

    def end_of_step(self):
        for tensor, amax in self.amax.items():
            self.history[tensor] = [amax] + self.history.get(tensor, [])[:HISTORY - 1]
            most = max(self.history[tensor])
            if most > 0:
                self.scale[tensor] = np.float32(self.largest[tensor] / 2**MARGIN) / np.float32(most)
        self.amax = {}


DELAYED = Delayed()
RECIPES = {"fp8_tensor": (fp8_tensor, E5M2), "fp8_block": (fp8_block, E4M3), "mxfp8": (mxfp8, E4M3), "nvfp4": (nvfp4, None),
           "fp8_delayed": (DELAYED, E5M2)}


class Product(torch.autograd.Function):
    """x [B, T, K], w [O, K], bias [O]; use: number of the gradient among the tensors of the step."""

    @staticmethod
    def forward(ctx, x, w, bias, recipe, use):
        quantise, _ = RECIPES[recipe]
        ctx.save_for_backward(x, w)
        ctx.recipe, ctx.use = recipe, use
        return quantise(x, E4M3, 2, tensor=(use, 0)) @ quantise(w[None], E4M3, 2, True, tensor=(use, 1))[0].t() + bias

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        quantise, backward = RECIPES[ctx.recipe]
        x_of, w_of, dy_of = ((ctx.use, k) for k in range(3))
        dx = quantise(dy, backward, 2, use=ctx.use, tensor=dy_of) @ quantise(w[None], E4M3, 1, True, tensor=w_of)[0]
        dw = torch.einsum("bto,btk->ok", quantise(dy, backward, 1, use=ctx.use + 1, tensor=dy_of), quantise(x, E4M3, 1, tensor=x_of))
        return dx, dw, dy.sum((0, 1)), None, None


def fused_order(config):
    """Rows of c_attn [q, k, v] in the order of kernels/ops.def: k, v, q of each head."""
    C, D = config.n_embd, config.n_embd // config.n_head
    heads = torch.arange(C).view(config.n_head, D)
    return torch.cat([torch.cat([heads[h] + C, heads[h] + 2 * C, heads[h]]) for h in range(config.n_head)])


def quantise_products(model, recipe):
    order = fused_order(model.config)
    for name, module in model.named_modules():
        if isinstance(module, Conv1D):
            _, _, layer, product = name.split(".", 3)
            use = 8 * (int(layer) + 1) + 2 * PRODUCTS.index(product)
            rows = order if name.endswith("c_attn") else torch.arange(module.nf)
            back = torch.argsort(rows)
            module.forward = lambda x, m=module, rows=rows, back=back, use=use: Product.apply(x, m.weight.t()[rows], m.bias[rows], recipe, use)[..., back]


def make_model(folder):
    torch.manual_seed(11)
    model = AutoModelForCausalLM.from_config(GPT2Config(
        vocab_size=VOCAB, n_positions=TOKENS, n_embd=48, n_layer=2, n_head=2, n_inner=64, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0,
        bos_token_id=0, eos_token_id=0, pad_token_id=None))
    with torch.no_grad():
        for name, p in model.named_parameters():
            x = torch.randn(p.shape)
            p.copy_(1 + 0.2 * x if p.dim() == 1 and name.endswith("weight") else 0.1 * x)
        for block in model.transformer.h:
            for norm, product in ((block.ln_1, block.attn.c_attn), (block.ln_2, block.mlp.c_fc)):
                norm.weight[SPREAD_FROM:] /= SPREAD
                norm.bias[SPREAD_FROM:] /= SPREAD
                product.weight[SPREAD_FROM:] *= SPREAD
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()), indent=1, sort_keys=True) + "\n")


def make_batch():
    text = torch.randint(0, VOCAB, (SEQS, TOKENS + 1))
    return {"main.input_ids": text[:, :-1].int().contiguous(), "main.targets": text[:, 1:].int().contiguous(),
            "main.weight": (torch.rand(SEQS, TOKENS) >= 0.2).float()}


def step(folder, batch, recipe, times=1):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    if recipe:
        quantise_products(model, recipe)
    ids, targets, weight = (batch[f"main.{k}"] for k in ("input_ids", "targets", "weight"))
    nll = F.cross_entropy(model(input_ids=ids.long(), use_cache=False).logits.flatten(0, 1), targets.long().flatten(), reduction="none")
    loss = (nll * weight.flatten()).sum() / weight.sum()
    (loss * times).backward()
    grads = {n: p.grad for n, p in model.named_parameters()}
    norm = torch.stack([g.double().square().sum() for g in grads.values()]).sum().sqrt()
    print(f"{recipe or 'plain'}: loss {loss.item():.6f}, gradient norm {norm:.6f}")
    return {f"{recipe}.loss": loss.detach().double().reshape(1), f"{recipe}.grad_norm": norm.reshape(1),
            **{f"{recipe}.grad.{n}": g.clone() for n, g in grads.items()}}


def apart(out, a, b):
    """The largest difference of two recipes in a gradient."""
    names = [n.removeprefix(f"{a}.grad.") for n in out if n.startswith(f"{a}.grad.")]
    return max(((out[f"{a}.grad.{n}"] - out[f"{b}.grad.{n}"]).norm() / out[f"{b}.grad.{n}"].norm()).item() for n in names)


def main():
    here = Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=here / "tests" / "fixtures" / "models" / "gpt2_spread")
    args = parser.parse_args()
    torch.set_num_threads(1)
    args.out.mkdir(parents=True, exist_ok=True)
    make_model(args.out)
    out = make_batch()
    step(args.out, out, None)
    for recipe in RECIPES:
        for times in LOSS_TIMES if recipe == "fp8_delayed" else (1,):
            result = step(args.out, out, recipe, times)
            DELAYED.end_of_step()
        out |= result
    for a in RECIPES:
        for b in RECIPES:
            if a != b and apart(out, a, b) < APART:
                raise SystemExit(f"{a} and {b} are {apart(out, a, b):.3g} apart")
    print({(a, b): round(apart(out, a, b), 3) for a in RECIPES for b in RECIPES if a < b})
    save_file(out, args.out / "expected.safetensors")


if __name__ == "__main__":
    main()
