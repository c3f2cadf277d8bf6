#!/usr/bin/env python3
"""Makes tests/fixtures/products.safetensors: a step of the model gpt2_hub whose linear layers multiply quantised operands.

    python tools/golden/make_products_fixture.py [--out FILE]

Needs torch, transformers, safetensors. Each Conv1D of a block becomes y = Q(x) Q(w) + bias, and its backward dx = Q(dy) Q(w)^T,
dw = Q(x)^T Q(dy): Q quantises and gives the numbers that the codes stand for, by PyTorch's float8 types. The rules are those of
TransformerEngine's recipes, with the tensors and tiles of docs/numerics.md; numerics.parts is 1, so that tokens are in their order.
Tensors: RECIPE.loss, RECIPE.grad_norm (fp64), RECIPE.grad.NAME.
"""
import argparse
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM
from transformers.pytorch_utils import Conv1D

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
LARGEST = {E4M3: 448.0, E5M2: 57344.0}


def encode_scale(amax, dtype, power_of_2):
    scale = torch.where(amax > 0, LARGEST[dtype] / amax, torch.ones_like(amax))
    if power_of_2:
        scale = (scale.view(torch.int32) & 0x7F800000).view(torch.float32)
    return scale


def rounded(x, scale, dtype):
    largest = LARGEST[dtype]
    return (x * scale).clamp(-largest, largest).to(dtype).float() * (1 / scale)


def fp8_tensor(x, dtype, axis, weight=False):
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


def fp8_block(x, dtype, axis, weight=False):
    """128 elements along `axis`, the contraction; of a weight 128 x 128."""
    def one(t):
        return rounded(t, encode_scale(t.abs().amax(), dtype, True), dtype)
    return tiled(x, 128 if weight or axis == 1 else 1, 128 if weight or axis == 2 else 1, one)


def mxfp8(x, dtype, axis, weight=False):
    """32 elements along `axis`; the scale is the power of 2 that is not below amax / largest."""
    def one(t):
        down = t.abs().amax() * torch.tensor(1 / LARGEST[dtype])
        bits = down.reshape(1).view(torch.int32)
        exponent = (bits >> 23) + ((bits & 0x7FFFFF) > 0)
        return rounded(t, torch.ldexp(torch.ones(1), 127 - exponent), dtype)
    return tiled(x, 32 if axis == 1 else 1, 32 if axis == 2 else 1, one)


RECIPES = {"fp8_tensor": (fp8_tensor, E5M2), "fp8_block": (fp8_block, E4M3), "mxfp8": (mxfp8, E4M3)}


class Product(torch.autograd.Function):
    """x [B, T, K], w [O, K], bias [O]."""

    @staticmethod
    def forward(ctx, x, w, bias, recipe):
        quantise, _ = RECIPES[recipe]
        ctx.save_for_backward(x, w)
        ctx.recipe = recipe
        return quantise(x, E4M3, 2) @ quantise(w[None], E4M3, 2, True)[0].t() + bias

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        quantise, backward = RECIPES[ctx.recipe]
        dx = quantise(dy, backward, 2) @ quantise(w[None], E4M3, 1, True)[0]
        dw = torch.einsum("bto,btk->ok", quantise(dy, backward, 1), quantise(x, E4M3, 1))
        return dx, dw, dy.sum((0, 1)), None


def fused_order(config):
    """Rows of c_attn [q, k, v] in the order of kernels/ops.def: k, v, q of each head."""
    C, D = config.n_embd, config.n_embd // config.n_head
    heads = torch.arange(C).view(config.n_head, D)
    return torch.cat([torch.cat([heads[h] + C, heads[h] + 2 * C, heads[h]]) for h in range(config.n_head)])


def quantise_products(model, recipe):
    order = fused_order(model.config)
    for name, module in model.named_modules():
        if isinstance(module, Conv1D):
            rows = order if name.endswith("c_attn") else torch.arange(module.nf)
            back = torch.argsort(rows)
            module.forward = lambda x, m=module, rows=rows, back=back: Product.apply(x, m.weight.t()[rows], m.bias[rows], recipe)[..., back]


def step(folder, expected, recipe):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    quantise_products(model, recipe)
    ids, targets, weight = (expected[f"main.{k}"] for k in ("input_ids", "targets", "weight"))
    nll = F.cross_entropy(model(input_ids=ids.long(), use_cache=False).logits.flatten(0, 1), targets.long().flatten(), reduction="none")
    loss = (nll * weight.flatten()).sum() / weight.sum()
    loss.backward()
    grads = {n: p.grad for n, p in model.named_parameters()}
    norm = torch.stack([g.double().square().sum() for g in grads.values()]).sum().sqrt()
    print(f"{recipe}: loss {loss.item():.6f}, plain {expected['main.loss'].item():.6f}; gradient norm {norm:.6f}, "
          f"plain {expected['main.grad_norm'].item():.6f}")
    return {f"{recipe}.loss": loss.detach().double().reshape(1), f"{recipe}.grad_norm": norm.reshape(1),
            **{f"{recipe}.grad.{n}": g.clone() for n, g in grads.items()}}


def main():
    here = Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=here / "tests" / "fixtures" / "products.safetensors")
    args = parser.parse_args()
    torch.set_num_threads(1)
    folder = here / "tests" / "fixtures" / "models" / "gpt2_hub"
    expected = load_file(folder / "expected.safetensors")
    out = {}
    for recipe in RECIPES:
        out |= step(folder, expected, recipe)
    save_file(out, args.out)


if __name__ == "__main__":
    main()
