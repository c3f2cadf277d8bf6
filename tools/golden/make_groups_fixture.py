#!/usr/bin/env python3
"""Makes tests/fixtures/groups.json: ten AdamW steps of PyTorch with parameter groups, and with frozen parameters.

    python tools/golden/make_groups_fixture.py

Needs torch, transformers, safetensors. Starts from the weights and takes the batches of tests/fixtures/models/<case>
(make_model_fixtures.py). Groups are chosen twice, apart from each other: by tests of Hugging Face's names for torch's
param_groups, and by the patterns of Orthant's names that are written beside the results. `frozen`: requires_grad=False for
parameters that a test of Hugging Face's names chooses, beside the patterns that are to choose the same; the sum of squares of all
parameters after the last step shows that these have stayed. CPU, one thread, fp32.
"""
import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from make_model_fixtures import STEPS, TRAIN, run

LR_FACTORS = ["*.bias=0.25", "embed.*=2", "layers.1.*=0", "layers.1.attn.qkv.*=0.5", "head.weight=3"]
DECAY_FACTORS = ["embed.weight=0", "*.bias=1", "*norm.gain=0.5", "layers.?.mlp.*=4"]


# case: (name of the result, patterns of names here and of Hugging Face's, the same by a test of Hugging Face's names)
FREEZES = [
    ("gpt2", ["embed.*", "pos.*", "layers.0.*"], lambda n: "wte" in n or "wpe" in n or ".h.0." in n),
    ("gpt2", ["*", "!*.bias", "!*.shift"], lambda n: not n.endswith(".bias")),
    ("gpt2", ["h.*.mlp.c_fc.*", "transformer.h.1.attn.c_attn.weight", "*_norm.gain"],
     lambda n: "c_fc" in n or n == "transformer.h.1.attn.c_attn.weight" or (is_norm(n) and n.endswith("weight"))),
    ("llama", ["*", "!lm_head.weight"], lambda n: n != "lm_head.weight"),
    ("llama", ["model.*", "head.weight", "!layers.1.self_attn.?_proj.weight"],
     lambda n: not (".1.self_attn" in n and n.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight")))),
    ("llama_tied", ["lm_head.weight", "layers.1.*", "!layers.1.mlp.gate_up.bias"],
     lambda n: "embed_tokens" in n or (".1." in n and not n.endswith(("gate_proj.bias", "up_proj.bias")))),
    ("qwen3", ["layers.0.*", "embed.*", "final_norm.*", "!layers.0.attn.q_norm.gain"],
     lambda n: (".layers.0." in n and "q_norm" not in n) or "embed_tokens" in n or n == "model.norm.weight"),
]


def is_norm(name):
    return "norm" in name or ".ln_" in name


def lr_factor(name):
    if "lm_head" in name:
        return 3.0
    if ".1." in name:
        return 0.5 if any(part in name for part in ("c_attn", "q_proj", "k_proj", "v_proj")) else 0.0
    if "wte" in name or "embed_tokens" in name:
        return 2.0
    return 0.25 if name.endswith(".bias") and not is_norm(name) else 1.0


def decay_factor(name, dims):
    if ".mlp." in name:
        return 4.0
    if is_norm(name):
        return 0.5 if name.endswith(".weight") else 0.0
    if name.endswith(".bias"):
        return 1.0
    return 0.0 if "wte" in name or "embed_tokens" in name or dims < 2 else 1.0


def train(folder, frozen=None):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa").eval()
    for n, p in model.named_parameters():
        p.requires_grad = not frozen or not frozen(n)
    groups = [dict(params=[p], lr=TRAIN["lr"] * (1 if frozen else lr_factor(n)),
                   weight_decay=TRAIN["weight_decay"] * (p.dim() > 1 if frozen else decay_factor(n, p.dim())))
              for n, p in model.named_parameters() if p.requires_grad]
    opt = torch.optim.AdamW(groups, betas=(TRAIN["beta1"], TRAIN["beta2"]), eps=TRAIN["eps"])
    stored = load_file(folder / "expected.safetensors")
    losses, norms = [], []
    for i in range(STEPS):
        batch = {k: stored[f"train.{k}"][i] for k in ("input_ids", "targets", "weight")}
        batch = {k: v if v.is_floating_point() else v.long() for k, v in batch.items()}
        opt.zero_grad()
        loss = run(model, batch)[1]
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), TRAIN["clip_norm"]).item())
        opt.step()
        losses.append(loss.item())
    squares = sum(p.detach().double().square().sum().item() for p in model.parameters())
    return dict(loss=losses, grad_norm=norms, squares=squares, trained=sum(p.numel() for p in model.parameters() if p.requires_grad))


def main():
    torch.set_num_threads(1)
    fixtures = Path(__file__).resolve().parents[2] / "tests" / "fixtures"
    cases = {}
    for case in ("gpt2", "llama", "llama_tied", "qwen3"):
        has_head = case == "llama"
        has_bias = case in ("gpt2", "llama_tied")
        words = [w for w in LR_FACTORS if (has_head or "head" not in w) and (has_bias or "bias" not in w)]
        cases[case] = dict(lr_factors=words, decay_factors=[w for w in DECAY_FACTORS if has_bias or "bias" not in w],
                           **train(fixtures / "models" / case))
    frozen = [dict(model=case, freeze=words, **train(fixtures / "models" / case, test)) for case, words, test in FREEZES]
    text = json.dumps(dict(made_by="tools/golden/make_groups_fixture.py", torch=torch.__version__, cases=cases, frozen=frozen),
                      indent=1)
    (fixtures / "groups.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
