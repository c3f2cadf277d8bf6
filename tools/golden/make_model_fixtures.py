#!/usr/bin/env python3
"""Makes tests/fixtures/models/: tiny random Hugging Face models and what PyTorch computes with them.

    python tools/golden/make_model_fixtures.py [CASE ...] [--out DIR]

Needs torch, transformers, safetensors (the venv of tools/bench/peers.sh has them). CPU, one thread,
seeded: on one machine and with the same versions, the same bytes each time. tests/fixtures/README.md
says what the files hold; every number a test needs is a tensor of expected.safetensors, meta.json is
for people. The loss is always sum(weight * nll) / sum(weight).
"""
import argparse
import contextlib
import json
import shutil
from pathlib import Path

import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file
from transformers import (AutoModelForCausalLM, GPT2Config, LlamaConfig, MistralConfig, Qwen2Config,
                          Qwen3Config)

VOCAB, SEQS, TOKENS, LONG, STEPS = 131, 2, 33, 64, 10
TRAIN = dict(lr=3e-3, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, clip_norm=1.0)
COMMON = dict(vocab_size=VOCAB, bos_token_id=0, eos_token_id=0, pad_token_id=None)
ROPE = dict(max_position_embeddings=LONG, hidden_act="silu")
LLAMA3 = dict(rope_type="llama3", rope_theta=10000.0, factor=4.0, low_freq_factor=1.0,
              high_freq_factor=4.0, original_max_position_embeddings=32)

# case: (config, stored type, options)
#   shard      weights in several files with an index
#   old_config the keys that Transformers 4 wrote (rope_theta, rope_scaling, torch_dtype)
#   hub_gpt2   names without "transformer." and the mask buffers, like the published GPT-2
#   all_grads  gradients of the packed batch too
CASES = {
    "gpt2": (GPT2Config(n_embd=48, n_layer=2, n_head=4, n_positions=LONG, n_inner=104,
                        attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0, **COMMON), "F32", set()),
    "gpt2_hub": (GPT2Config(n_embd=16, n_layer=2, n_head=2, n_positions=LONG, **COMMON), "F32",
                 {"hub_gpt2", "all_grads"}),
    "llama": (LlamaConfig(hidden_size=48, intermediate_size=88, num_hidden_layers=2, num_attention_heads=4,
                          num_key_value_heads=2, rope_parameters=LLAMA3, rms_norm_eps=1e-5,
                          tie_word_embeddings=False, **{**ROPE, "max_position_embeddings": 128}, **COMMON),
              "F32", set()),
    "llama_tied": (LlamaConfig(hidden_size=32, intermediate_size=56, num_hidden_layers=2, num_attention_heads=4,
                               num_key_value_heads=4, attention_bias=True, mlp_bias=True, rms_norm_eps=1e-6,
                               tie_word_embeddings=True, rope_parameters={**LLAMA3, "factor": 8.0},
                               **ROPE, **COMMON), "BF16", {"old_config", "all_grads"}),
    "mistral": (MistralConfig(hidden_size=48, intermediate_size=72, num_hidden_layers=3, num_attention_heads=6,
                              num_key_value_heads=2, head_dim=8, sliding_window=None, rms_norm_eps=1e-5,
                              tie_word_embeddings=False, **ROPE, **COMMON), "BF16", {"shard", "old_config"}),
    "qwen2": (Qwen2Config(hidden_size=32, intermediate_size=80, num_hidden_layers=2, num_attention_heads=4,
                          num_key_value_heads=2, use_sliding_window=False, rms_norm_eps=1e-6,
                          tie_word_embeddings=True,
                          rope_parameters=dict(rope_type="default", rope_theta=1000000.0), **ROPE, **COMMON),
              "F16", {"old_config"}),
    "qwen3": (Qwen3Config(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                          num_key_value_heads=2, head_dim=16, use_sliding_window=False, rms_norm_eps=1e-6,
                          tie_word_embeddings=True,
                          rope_parameters=dict(rope_type="default", rope_theta=1000000.0), **ROPE, **COMMON),
              "F32", set()),
    "gpt2_erf": (GPT2Config(n_embd=24, n_layer=2, n_head=3, n_positions=LONG, activation_function="gelu",
                            attn_pdrop=0.25, embd_pdrop=0.0, resid_pdrop=0.125, **COMMON), "F32", set()),
}
TYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}


def randomise(model, dtype):
    """Nothing is left at 0 or 1, where a missing term would not show; values are exact in `dtype`."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            x = torch.randn(p.shape)
            gain = p.dim() == 1 and name.endswith("weight")
            p.copy_((1 + 0.2 * x if gain else 0.1 * x).to(dtype).float())


def save_model(folder, model, dtype, options):
    model = model.to(TYPES[dtype])
    model.save_pretrained(folder, max_shard_size="48KB" if "shard" in options else "1GB")
    (folder / "generation_config.json").unlink(missing_ok=True)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    if "old_config" in options:
        rope = config.pop("rope_parameters")
        config["rope_theta"] = rope.pop("rope_theta")
        config["rope_scaling"] = rope if rope["rope_type"] != "default" else None
        config["torch_dtype"] = config.pop("dtype")
    if "hub_gpt2" in options:
        weights = {k.removeprefix("transformer."): v for k, v in load_file(folder / "model.safetensors").items()}
        for i in range(model.config.n_layer):
            weights[f"h.{i}.attn.bias"] = torch.tril(torch.ones(1, 1, LONG, LONG))
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
    path.write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")


def make_batch(num_seqs, tokens, doc_starts=None):
    """ids, targets (the next token), weight (a fifth masked); doc: where each token's document starts."""
    text = torch.randint(0, VOCAB, (num_seqs, tokens + 1))
    text[:, 5] = text[:, 3]                                 # a token that occurs twice, whatever the seed
    batch = dict(input_ids=text[:, :-1].contiguous(), targets=text[:, 1:].contiguous(),
                 weight=(torch.rand(num_seqs, tokens) >= 0.2).float())
    if doc_starts:
        doc = torch.zeros(num_seqs, tokens, dtype=torch.long)
        for b, starts in enumerate(doc_starts):
            for s in starts:
                doc[b, s:] = s
                batch["weight"][b, s - 1] = 0.0             # the next token is another document's
        batch["doc"] = doc
    return batch


def run(model, batch):
    """Logits (fp32, no gradient attached) and loss (attached)."""
    ids = batch["input_ids"]
    B, T = ids.shape
    pos = torch.arange(T).expand(B, T)
    mask = None
    if "doc" in batch:                                      # positions go on, attention stops at documents
        q, k = torch.arange(T)[:, None], torch.arange(T)[None, :]
        mask = ((k <= q) & (k[None] >= batch["doc"][:, :, None]))[:, None]
        if model.config._attn_implementation == "eager":    # wants an addend
            low = torch.finfo(model.dtype).min
            mask = torch.zeros(mask.shape, dtype=model.dtype).masked_fill(~mask, low)
    logits = model(input_ids=ids, position_ids=pos, attention_mask=mask, use_cache=False).logits
    if logits.dtype != torch.float64:
        logits = logits.float()
    nll = F.cross_entropy(logits.flatten(0, 1), batch["targets"].flatten(), reduction="none")
    w = batch["weight"].flatten().to(nll.dtype)
    return logits.detach(), (nll * w).sum() / w.sum()


def gradients(model, batch, autocast=False):
    """{logits, loss, grad_norm, grad.NAME ...} in fp32."""
    model.zero_grad(set_to_none=True)
    with torch.autocast("cpu", torch.bfloat16) if autocast else contextlib.nullcontext():
        logits, loss = run(model, batch)
    loss.backward()
    grads = {"grad." + n: p.grad.detach().clone() for n, p in model.named_parameters()}
    norm = torch.stack([g.double().square().sum() for g in grads.values()]).sum().sqrt()
    return {"logits": logits, "loss": loss.detach().double().reshape(1), "grad_norm": norm.reshape(1), **grads}


@contextlib.contextmanager
def doubles():
    """Transformers computes norms and softmax in `torch.float32` by name; here that name is fp64."""
    f32 = torch.float32
    torch.float32 = torch.float64
    try:
        yield
    finally:
        torch.float32 = f32


def rel_error(a, b):
    return ((a.double() - b.double()).norm() / b.double().norm()).item()


def errors(result, truth):
    return {k: float(f"{rel_error(result[k], truth[k]):.3g}") for k in truth if k == "logits" or k.startswith("grad.")}


def train(load, batches):
    """Losses and unclipped gradient norms of STEPS optimizer steps, constant learning rate."""
    model = load()
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    opt = torch.optim.AdamW([dict(params=matrices, weight_decay=TRAIN["weight_decay"]),
                             dict(params=vectors, weight_decay=0.0)],
                            lr=TRAIN["lr"], betas=(TRAIN["beta1"], TRAIN["beta2"]), eps=TRAIN["eps"])
    losses, norms = [], []
    for batch in batches:
        opt.zero_grad()
        loss = run(model, batch)[1]
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), TRAIN["clip_norm"]).item())
        opt.step()
        losses.append(loss.item())
    return losses, norms


def make_case(root, name, seed):
    config, dtype, options = CASES[name]
    folder = root / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config)
    randomise(model, TYPES[dtype])
    save_model(folder, model, dtype, options)

    def load(dtype=torch.float32, attention="sdpa"):
        return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation=attention).eval()

    batches = {"main": make_batch(SEQS, TOKENS), "long": make_batch(1, LONG),
               "packed": make_batch(SEQS, TOKENS, [[11, 12, 25], [20]])}
    training = [make_batch(SEQS, TOKENS), make_batch(SEQS, TOKENS)] * (STEPS // 2)
    out, meta = {}, dict(made_by="tools/golden/make_model_fixtures.py", seed=seed, stored_type=dtype,
                         torch=torch.__version__, transformers=transformers.__version__)
    for which, batch in batches.items():
        for k, v in batch.items():
            out[f"{which}.{k}"] = v if v.is_floating_point() else v.int()
        truth = gradients(load(), batch)
        for k, v in truth.items():
            if which == "main" or not k.startswith("grad.") or (which == "packed" and "all_grads" in options):
                out[f"{which}.{k}"] = v
        if which == "long":
            continue
        exact = load(torch.float64, "eager")
        with doubles():
            meta[f"{which}.fp32_error"] = errors(truth, gradients(exact, batch))
        spread = {"model": errors(gradients(load(torch.bfloat16), batch), truth),
                  "model_eager": errors(gradients(load(torch.bfloat16, "eager"), batch), truth),
                  "autocast": errors(gradients(load(), batch, True), truth),
                  "autocast_eager": errors(gradients(load(attention="eager"), batch, True), truth)}
        meta[f"{which}.bf16_error"] = spread
        grads = [k for k in truth if k.startswith("grad.")]
        out[f"{which}.bf16_rms"] = torch.tensor([[v[k] for k in grads] for v in spread.values()],
                                                dtype=torch.float64).square().mean(1).sqrt()
        for k in spread["model"]:
            if f"{which}.{k}" in out:
                out[f"{which}.bf16_error.{k}"] = torch.tensor([max(v[k] for v in spread.values())],
                                                              dtype=torch.float64)
    for k in training[0]:
        v = torch.stack([b[k] for b in training])
        out[f"train.{k}"] = v if v.is_floating_point() else v.int()
    losses, norms = train(load, training)
    out["train.loss"] = torch.tensor(losses, dtype=torch.float64)
    out["train.grad_norm"] = torch.tensor(norms, dtype=torch.float64)
    for k, v in TRAIN.items():
        out[f"train.{k}"] = torch.tensor([v], dtype=torch.float64)
    save_file(out, folder / "expected.safetensors")
    for f in folder.iterdir():
        f.chmod(0o644)
    (folder / "meta.json").write_text(json.dumps(meta, indent=1, sort_keys=True) + "\n")
    worst = {k: max(v.values()) for k, v in meta.items() if k.endswith("fp32_error")}
    bf16 = {v: max(e.values()) for v, e in meta["main.bf16_error"].items()}
    print(f"{name}: loss {losses[0]:.4f} -> {losses[-1]:.4f}, grad norm {norms[0]:.3f}, "
          f"worst fp32 {worst}, worst bf16 {bf16}, "
          f"{sum(f.stat().st_size for f in folder.iterdir()) / 1e3:.0f} kB")


def main():
    here = Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", nargs="*", help=f"of {', '.join(CASES)}; default all")
    parser.add_argument("--out", type=Path, default=here / "tests" / "fixtures" / "models")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for i, name in enumerate(CASES):                        # the seed does not depend on what is asked for
        if not args.case or name in args.case:
            make_case(args.out, name, 1000 + i)


if __name__ == "__main__":
    main()
