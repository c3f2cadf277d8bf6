#!/usr/bin/env python3
"""Makes tests/fixtures/fp16.json: ten AdamW steps of PyTorch in fp16, autocast with a dynamic loss scale.

    python tools/golden/make_fp16_fixture.py

Needs torch, transformers, safetensors. From the weights and on the batches of tests/fixtures/models/<case>: torch.autocast in
float16, torch.amp.GradScaler: scale, unscale_, clip_grad_norm_, step, update. The scale begins so large, and grows so far after three
good steps, that gradients overflow fp16 in some of the steps, which are then left out (norm 0). It differs by 2^12 or more between a
step that overflows and one that does not, so that rounding does not decide. `scale`: that of each step. CPU, one thread.
"""
import json
import math
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from make_model_fixtures import STEPS, TRAIN, run

WORDS = dict(init_scale=2.0**30, growth_factor=2.0**14, backoff_factor=2.0**-16, growth_interval=3)


def train(folder):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa").eval()
    groups = [dict(params=[p], weight_decay=TRAIN["weight_decay"] * (p.dim() > 1)) for p in model.parameters()]
    opt = torch.optim.AdamW(groups, lr=TRAIN["lr"], betas=(TRAIN["beta1"], TRAIN["beta2"]), eps=TRAIN["eps"])
    scaler = torch.amp.GradScaler("cpu", **WORDS)
    scaler.scale(torch.ones(()))
    stored = load_file(folder / "expected.safetensors")
    out = dict(WORDS, loss=[], grad_norm=[], scale=[])
    for i in range(STEPS):
        batch = {k: stored[f"train.{k}"][i] for k in ("input_ids", "targets", "weight")}
        batch = {k: v if v.is_floating_point() else v.long() for k, v in batch.items()}
        opt.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = run(model, batch)[1]
        scaler.scale(loss).backward()
        out["scale"].append(scaler.get_scale())
        scaler.unscale_(opt)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), TRAIN["clip_norm"]).item()
        scaler.step(opt)
        scaler.update()
        out["loss"].append(loss.item())
        out["grad_norm"].append(norm if math.isfinite(norm) else 0.0)
    return out


def main():
    torch.set_num_threads(1)
    fixtures = Path(__file__).resolve().parents[2] / "tests" / "fixtures"
    cases = {case: train(fixtures / "models" / case) for case in ("gpt2", "llama")}
    text = json.dumps(dict(made_by="tools/golden/make_fp16_fixture.py", torch=torch.__version__, cases=cases), indent=1)
    (fixtures / "fp16.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
