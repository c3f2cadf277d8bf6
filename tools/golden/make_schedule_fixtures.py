"""make_schedule_fixtures.py -- learning rates of PyTorch's and Transformers' schedulers, for tests/test_lr.c.

    pip install torch transformers
    python tools/golden/make_schedule_fixtures.py tests/fixtures/schedules/schedules.json

A scheduler's value at index i is the rate of its optimizer step i + 1. Orthant counts from 1 and warms up from 1/warmup in
its first step; these schedulers warm up from 0. Step s of Orthant is therefore held against index s, and `lr` lists the
indices 1 .. n.
"""
import json
import sys

import torch
from torch.optim import lr_scheduler as pytorch
from transformers import optimization as hf


def rates(make, lr, n):
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=lr)
    scheduler = make(optimizer)
    found = []
    for _ in range(n):
        optimizer.step()
        scheduler.step()
        found.append(optimizer.param_groups[0]["lr"])
    return found


def warmed(optimizer, warmup, after):
    """PyTorch's own way: a line up, then another scheduler. LinearLR may not start at 0: 1e-12 of the peak stands for it."""
    up = pytorch.LinearLR(optimizer, start_factor=1e-12, total_iters=warmup)
    return pytorch.SequentialLR(optimizer, [up, after], milestones=[warmup])


def cases():
    steps, lr = 50, 3e-4
    base = {"train.steps": steps, "optimizer.lr": lr}

    def case(who, make, tolerance=1e-12, lr=lr, **options):
        run = dict(base, **{k.replace("__", "."): v for k, v in options.items()})
        run["optimizer.lr"] = options.get("optimizer__lr", lr)
        return {"scheduler": who, "options": {k: str(v) for k, v in run.items()}, "tolerance": tolerance,
                "lr": rates(make, lr, run["train.steps"])}

    yield case("transformers constant_with_warmup",
               lambda o: hf.get_constant_schedule_with_warmup(o, 7), schedule__name="constant", schedule__warmup_steps=7)
    yield case("transformers constant", hf.get_constant_schedule, schedule__name="constant", schedule__warmup_steps=0)
    yield case("transformers linear", lambda o: hf.get_linear_schedule_with_warmup(o, 10, steps),
               schedule__name="linear", schedule__warmup_steps=10, schedule__min_lr_ratio=0)
    yield case("transformers polynomial of power 1",
               lambda o: hf.get_polynomial_decay_schedule_with_warmup(o, 5, steps, lr_end=0.2 * lr, power=1.0),
               schedule__name="linear", schedule__warmup_steps=5, schedule__min_lr_ratio=0.2)
    yield case("transformers cosine", lambda o: hf.get_cosine_schedule_with_warmup(o, 10, steps),
               schedule__name="cosine", schedule__warmup_steps=10, schedule__min_lr_ratio=0)
    yield case("transformers cosine_with_min_lr",
               lambda o: hf.get_cosine_with_min_lr_schedule_with_warmup(o, 8, steps, min_lr_rate=0.1),
               schedule__name="cosine", schedule__warmup_steps=8, schedule__min_lr_ratio=0.1)
    yield case("transformers warmup_stable_decay",
               lambda o: hf.get_wsd_schedule(o, 6, 12, num_training_steps=steps, decay_type="linear"),
               schedule__name="wsd", schedule__warmup_steps=6, schedule__decay_steps=12, schedule__min_lr_ratio=0)
    yield case("transformers warmup_stable_decay, the default decay of a fifth",
               lambda o: hf.get_wsd_schedule(o, 0, steps // 5, num_training_steps=steps, decay_type="linear", min_lr_ratio=0.05),
               schedule__name="wsd", schedule__warmup_steps=0, schedule__min_lr_ratio=0.05)
    yield case("pytorch CosineAnnealingLR after LinearLR",
               lambda o: warmed(o, 9, pytorch.CosineAnnealingLR(o, T_max=steps - 9, eta_min=0.1 * lr)), tolerance=1e-9,
               schedule__name="cosine", schedule__warmup_steps=9, schedule__min_lr_ratio=0.1)
    yield case("pytorch LinearLR after LinearLR, shorter than the run",
               lambda o: warmed(o, 4, pytorch.LinearLR(o, start_factor=1.0, end_factor=0.3, total_iters=20)), tolerance=1e-9,
               schedule__name="linear", schedule__warmup_steps=4, schedule__min_lr_ratio=0.3, schedule__decay_steps=20)
    # The linear scaling rule: the rate is stated for a batch of 256, the run has 1024.
    yield case("transformers linear at 4 times the rate", lambda o: hf.get_linear_schedule_with_warmup(o, 10, steps), lr=4 * lr,
               optimizer__lr=lr, optimizer__lr_scaling="linear", optimizer__lr_base_batch=256, train__global_batch=1024,
               schedule__name="linear", schedule__warmup_steps=10, schedule__min_lr_ratio=0)


def main():
    with open(sys.argv[1], "w") as out:
        out.write("[\n" + ",\n".join(json.dumps(c) for c in cases()) + "\n]\n")


if __name__ == "__main__":
    main()
