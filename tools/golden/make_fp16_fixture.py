#!/usr/bin/env python3
"""Makes tests/fixtures/fp16.json: ten AdamW steps of PyTorch in fp16, autocast with a dynamic loss scale.

    python tools/golden/make_fp16_fixture.py

Needs torch, transformers, safetensors. From the weights and on the batches of tests/fixtures/models/<case>: torch.autocast in
float16, torch.amp.GradScaler: scale, unscale_, clip_grad_norm_, step, update. The scale begins so large, and grows so far after three
good steps, that gradients overflow fp16 in some of the steps, which are then left out (norm 0). It differs by 2^12 or more between a
step that overflows and one that does not, so that rounding does not decide. `scale`: that of each step. CPU, one thread.
"""
import json
from pathlib import Path

import torch

from make_loss_scale_fixture import train
from make_model_fixtures import run

WORDS = dict(init_scale=2.0**30, growth_factor=2.0**14, backoff_factor=2.0**-16, growth_interval=3)


def autocast_loss(model, batch):
    with torch.autocast("cpu", torch.float16):
        return run(model, batch)[1]


def case_of(folder):
    steps = train(folder, WORDS, autocast_loss)
    return dict(WORDS, **{k: steps[k] for k in ("loss", "grad_norm", "scale")})


def main():
    torch.set_num_threads(1)
    fixtures = Path(__file__).resolve().parents[2] / "tests" / "fixtures"
    cases = {case: case_of(fixtures / "models" / case) for case in ("gpt2", "llama")}
    text = json.dumps(dict(made_by="tools/golden/make_fp16_fixture.py", torch=torch.__version__, cases=cases), indent=1)
    (fixtures / "fp16.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
