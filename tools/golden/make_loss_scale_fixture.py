#!/usr/bin/env python3
"""Makes tests/fixtures/loss_scale.json: what torch.amp.GradScaler makes of overflows, alone and around AdamW steps.

    python tools/golden/make_loss_scale_fixture.py

Needs torch, transformers, safetensors. `scales`: the scale after each of 60 steps, of which those with a 1 in `overflow` had an
infinite gradient. `cases`: ten steps from the weights and on the batches of tests/fixtures/models/<case>, fp32, of a loss that is
multiplied by `times`, with a scale so large that gradients overflow fp32: unscale_, clip_grad_norm_, step, update. Scales differ
by 2^16, so whether a step overflows does not depend on rounding. CPU, one thread.
"""
import json
import math
import random
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from make_model_fixtures import STEPS, TRAIN, run

TIMES = 1024.0

SCALES = [dict(init_scale=65536.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=4),
          dict(init_scale=1000.0, growth_factor=3.0, backoff_factor=0.3, growth_interval=2),
          dict(init_scale=2.0**126, growth_factor=2.0, backoff_factor=0.25, growth_interval=1)]


def scales_of(words, seed):
    draw = random.Random(seed)
    p = torch.nn.Parameter(torch.zeros(2))
    opt = torch.optim.SGD([p], lr=0.0)
    scaler = torch.amp.GradScaler("cpu", **words)
    scaler.scale(torch.ones(()))
    overflow, scales = [], []
    for _ in range(60):
        overflow.append(int(draw.random() < 0.25))
        p.grad = torch.tensor([1.0, math.inf if overflow[-1] else 2.0])
        scaler.step(opt)
        scaler.update()
        scales.append(scaler.get_scale())
    return dict(words, overflow=overflow, scale=scales)


def train(folder, words, loss_of):
    """Loss, norm of the gradients, scale and whether it was left out, of ten steps; loss_of(model, batch) is what is scaled."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa").eval()
    groups = [dict(params=[p], weight_decay=TRAIN["weight_decay"] * (p.dim() > 1)) for p in model.parameters()]
    opt = torch.optim.AdamW(groups, lr=TRAIN["lr"], betas=(TRAIN["beta1"], TRAIN["beta2"]), eps=TRAIN["eps"])
    scaler = torch.amp.GradScaler("cpu", **words)
    scaler.scale(torch.ones(()))
    stored = load_file(folder / "expected.safetensors")
    out = dict(loss=[], grad_norm=[], scale=[], skipped=[])
    for i in range(STEPS):
        batch = {k: stored[f"train.{k}"][i] for k in ("input_ids", "targets", "weight")}
        batch = {k: v if v.is_floating_point() else v.long() for k, v in batch.items()}
        opt.zero_grad()
        loss = loss_of(model, batch)
        scaler.scale(loss).backward()
        out["scale"].append(scaler.get_scale())
        largest = max(p.grad.abs().max().item() for p in model.parameters())
        overflow = not math.isfinite(largest)
        assert overflow or largest < 2.0**120, largest
        scaler.unscale_(opt)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), TRAIN["clip_norm"]).item()
        scaler.step(opt)
        scaler.update()
        out["loss"].append(loss.item())
        out["skipped"].append(int(overflow))
        out["grad_norm"].append(0.0 if overflow else norm)
    return out


def times_loss(model, batch):
    return TIMES * run(model, batch)[1]


def main():
    torch.set_num_threads(1)
    fixtures = Path(__file__).resolve().parents[2] / "tests" / "fixtures"
    words = dict(init_scale=2.0**126, growth_factor=2.0**16, backoff_factor=2.0**-16, growth_interval=3)
    cases = {case: dict(words, times=TIMES, **train(fixtures / "models" / case, words, times_loss)) for case in ("gpt2", "llama")}
    text = json.dumps(dict(made_by="tools/golden/make_loss_scale_fixture.py", torch=torch.__version__,
                           scales=[scales_of(w, i) for i, w in enumerate(SCALES)], cases=cases), indent=1)
    (fixtures / "loss_scale.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
