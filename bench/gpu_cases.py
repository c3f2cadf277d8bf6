"""Trains models with PyTorch on one GPU and writes what was measured as cases (docs/formats/cases.md): none of them is in
published_cases.json, so `orthant plan --cases` is judged on runs that its constants have not seen.

usage: gpu_cases.py CASES.json [--seconds=300] [--set=2]   needs PyTorch with CUDA; what does not fit into the seconds is left out
       gpu_cases.py CASES.json --list=H200 [--set=2]       the cases without measurements, to predict them before they run; or H100
       gpu_cases.py CASES.json --parts                     also the time of a step's kernels by what they do; of set 1 some cases only
Set 2 has other models, lengths and numbers of micro-batches than set 1. bench/one_gpu_cases.json holds both, of one H200 and one H100.
Parameters, gradients and moments are fp32 and products bf16 (autocast), AdamW is PyTorch's fused one, attention is PyTorch's SDPA with
cuDNN first, tokens are random. The time of a step is the median of 8; memory is the peak that the allocator gave out.
"""
import argparse
import json
import statistics
import sys
import time

GPUS = {"H200": ("H200-SXM-141GB", 139.8, 4800), "H100": ("H100-SXM5-80GB", 79.2, 3350)}
GPT = {"arch": "gpt", "glu": False, "vocab": 50304, "tied_embeddings": True, "seq": 1024, "head_dim": 64}
LLAMA = {"arch": "llama", "glu": True, "vocab": 128256, "tied_embeddings": True}


def gpt(layers, hidden):
    return {**GPT, "layers": layers, "hidden": hidden, "heads": hidden // 64, "kv_heads": hidden // 64, "ffn": 4 * hidden}


def llama(layers, hidden, heads, seq, head_dim, **other):
    return {**LLAMA, "layers": layers, "hidden": hidden, "heads": heads, "kv_heads": 8, "ffn": 8192, "seq": seq, "head_dim": head_dim, **other}


MODELS = {"gpt2-124M": gpt(12, 768), "gpt2-350M": gpt(24, 1024), "gpt2-774M": gpt(36, 1280), "gpt2-1558M": gpt(48, 1600),
          "llama-1B": llama(16, 2048, 32, 4096, 64), "llama-1B-2k": llama(16, 2048, 32, 2048, 64),
          "llama-3B": llama(28, 3072, 24, 4096, 128),
          "gpt2-124M-4k": {**gpt(12, 768), "seq": 4096}, "gpt-8x3072": gpt(8, 3072), "llama-1B-8k": llama(16, 2048, 32, 8192, 64),
          "llama-0.6B": llama(28, 1024, 16, 4096, 128, ffn=3072, vocab=151936),
          "tinyllama": llama(22, 2048, 32, 2048, 64, kv_heads=4, ffn=5632, vocab=32000, tied_embeddings=False),
          "llama-6x4096": llama(6, 4096, 32, 4096, 128, ffn=14336, vocab=32000, tied_embeddings=False)}
SETS = {  # model, micro-batch, recompute, compiled, micro-batches; the quick ones first
    1: [("gpt2-124M", 8, "none", False, 1), ("gpt2-124M", 32, "none", False, 1), ("gpt2-124M", 64, "none", False, 1),
        ("gpt2-350M", 16, "none", False, 1), ("gpt2-350M", 16, "full", False, 1), ("gpt2-774M", 8, "none", False, 1),
        ("gpt2-774M", 16, "none", False, 1), ("gpt2-774M", 16, "full", False, 1), ("gpt2-1558M", 8, "none", False, 1),
        ("gpt2-1558M", 8, "full", False, 1), ("llama-1B", 2, "none", False, 1), ("llama-1B", 4, "full", False, 1),
        ("llama-1B-2k", 8, "none", False, 1), ("llama-3B", 1, "none", False, 1), ("llama-3B", 2, "full", False, 1),
        ("gpt2-124M", 32, "none", True, 1), ("gpt2-350M", 16, "none", True, 1), ("gpt2-774M", 16, "none", True, 1),
        ("llama-1B", 2, "none", True, 1), ("llama-3B", 1, "none", True, 1)],
    2: [("gpt2-124M-4k", 4, "none", False, 1), ("gpt2-124M-4k", 8, "full", False, 1), ("gpt-8x3072", 8, "none", False, 1),
        ("gpt-8x3072", 8, "none", False, 4), ("gpt2-350M", 4, "none", False, 4), ("gpt2-350M", 32, "full", False, 1),
        ("llama-0.6B", 3, "none", False, 1), ("llama-0.6B", 4, "full", False, 1), ("tinyllama", 8, "none", False, 1),
        ("tinyllama", 4, "none", False, 4), ("tinyllama", 16, "full", False, 1), ("llama-6x4096", 2, "none", False, 1),
        ("llama-6x4096", 2, "none", False, 4), ("llama-6x4096", 8, "full", False, 1), ("llama-1B-8k", 1, "none", False, 1),
        ("gpt-8x3072", 8, "none", True, 1), ("tinyllama", 8, "none", True, 1), ("llama-6x4096", 2, "none", True, 1),
        ("gpt2-124M-4k", 4, "none", True, 1), ("llama-0.6B", 3, "none", True, 1)]}


def case(gpu, name, batch, recompute, compiled, micro_batches):
    part, gib, gbps = GPUS[gpu]
    how = "compiled" if compiled else "eager"
    times = f"x{micro_batches}" if micro_batches > 1 else ""
    return {"id": f"{gpu}-{name}-B{batch}{times}-{recompute}-{how}", "family": f"one-{gpu}-{how}", "group": f"{gpu}-{name}-{how}",
            "source": {"name": f"PyTorch {how}, one GPU"}, "model": MODELS[name],
            "hardware": {"gpu": part, "mem_GiB": gib, "peak_dense_bf16_TFLOPs": 989.5, "hbm_GBps": gbps, "per_node": 1, "count": 1},
            "layout": {"tp": 1, "pp": 1, "vpp": 1, "dp": 1, "cp": 1, "zero_stage": 0, "sequence_parallel": False, "micro_batch": batch,
                       "global_batch_seqs": batch * micro_batches, "recompute": recompute, "flash_attention": True, "optimizer_state": "adam-mixed"},
            "precision": "bf16 autocast, fp32 parameters", "measured": {}, "derived": {}, "time_tier": "core",
            "memory_class": "allocated"}


def write(path, cases):
    with open(path, "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")


args = argparse.ArgumentParser()
args.add_argument("cases")
args.add_argument("--seconds", type=float, default=300)
args.add_argument("--set", type=int, choices=SETS, default=1)
args.add_argument("--list", choices=GPUS)
args.add_argument("--parts", action="store_true")
args = args.parse_args()
RUNS = SETS[args.set]
if args.list:
    write(args.cases, [case(args.list, *r) for r in RUNS])
    sys.exit()

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

BACKENDS = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


def attend(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])


class GptBlock(nn.Module):
    def __init__(self, m):
        super().__init__()
        C = m["hidden"]
        self.heads = m["heads"]
        self.ln1, self.ln2 = nn.LayerNorm(C), nn.LayerNorm(C)
        self.qkv, self.proj = nn.Linear(C, 3 * C), nn.Linear(C, C)
        self.up, self.down = nn.Linear(C, m["ffn"]), nn.Linear(m["ffn"], C)

    def forward(self, x, rope):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, self.heads, C // self.heads).transpose(1, 2) for t in self.qkv(self.ln1(x)).split(C, 2))
        x = x + self.proj(attend(q, k, v).transpose(1, 2).reshape(B, T, C))
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))


def turn(x, rope):
    cos, sin = rope
    a, b = x.chunk(2, -1)
    return (x * cos + torch.cat((-b, a), -1) * sin).to(x.dtype)


class LlamaBlock(nn.Module):
    def __init__(self, m):
        super().__init__()
        C, self.d, self.heads, self.kv = m["hidden"], m["head_dim"], m["heads"], m["kv_heads"]
        self.n1, self.n2 = nn.RMSNorm(C, eps=1e-5), nn.RMSNorm(C, eps=1e-5)
        self.q, self.o = nn.Linear(C, self.heads * self.d, bias=False), nn.Linear(self.heads * self.d, C, bias=False)
        self.k, self.v = nn.Linear(C, self.kv * self.d, bias=False), nn.Linear(C, self.kv * self.d, bias=False)
        self.gate, self.up = nn.Linear(C, m["ffn"], bias=False), nn.Linear(C, m["ffn"], bias=False)
        self.down = nn.Linear(m["ffn"], C, bias=False)

    def forward(self, x, rope):
        B, T, C = x.shape
        h = self.n1(x)
        q, k, v = (f(h).view(B, T, -1, self.d).transpose(1, 2) for f in (self.q, self.k, self.v))
        x = x + self.o(attend(turn(q, rope), turn(k, rope), v).transpose(1, 2).reshape(B, T, -1))
        h = self.n2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Model(nn.Module):
    def __init__(self, m, again):
        super().__init__()
        C, self.again = m["hidden"], again
        self.tokens = nn.Embedding(m["vocab"], C)
        self.places = None if m["glu"] else nn.Embedding(m["seq"], C)
        self.blocks = nn.ModuleList((LlamaBlock if m["glu"] else GptBlock)(m) for _ in range(m["layers"]))
        self.norm = nn.RMSNorm(C, eps=1e-5) if m["glu"] else nn.LayerNorm(C)
        self.head = nn.Linear(C, m["vocab"], bias=False)
        for p in self.parameters():
            nn.init.normal_(p, std=0.02) if p.dim() > 1 else None
        if m["tied_embeddings"]:
            self.head.weight = self.tokens.weight
        at = torch.outer(torch.arange(m["seq"]).float(), 10000.0 ** (-torch.arange(0, m["head_dim"], 2) / m["head_dim"]))
        at = torch.cat((at, at), -1)
        self.register_buffer("cos", at.cos(), persistent=False)
        self.register_buffer("sin", at.sin(), persistent=False)

    def forward(self, x, y):
        h = self.tokens(x)
        if self.places:
            h = h + self.places.weight
        rope = (self.cos, self.sin)
        for b in self.blocks:
            h = checkpoint(b, h, rope, use_reentrant=False) if self.again else b(h, rope)
        z = self.head(self.norm(h))
        return F.cross_entropy(z.view(-1, z.shape[-1]).float(), y.view(-1))


def measure(c, compiled):
    m, B = c["model"], c["layout"]["micro_batch"]
    micro_batches = c["layout"]["global_batch_seqs"] // B
    torch._dynamo.reset()
    torch.cuda.empty_cache()
    torch.manual_seed(1)
    with torch.device("cuda"):
        plain = Model(m, c["layout"]["recompute"] == "full")
    torch.cuda.reset_peak_memory_stats()
    model = torch.compile(plain, dynamic=False) if compiled else plain
    opt = torch.optim.AdamW(plain.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    t = torch.randint(0, m["vocab"], (B, m["seq"] + 1), device="cuda")
    x, y = t[:, :-1].contiguous(), t[:, 1:].contiguous()

    def one():
        for _ in range(micro_batches):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(x, y)
            (loss / micro_batches).backward()
        opt.step()
        opt.zero_grad(set_to_none=True)
        return loss

    times = []
    with sdpa_kernel(BACKENDS, set_priority=True):
        for i in range(11):
            a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            a.record()
            loss = one()
            b.record()
            b.synchronize()
            times += [a.elapsed_time(b) * 1e-3] if i > 2 else []
    s = statistics.median(times)
    c["measured"] = {"peak_mem_GiB": round(torch.cuda.max_memory_allocated() / 2**30, 3), "step_s": round(s, 5)}
    c["derived"] = {"tokens_per_s_per_gpu": round(micro_batches * B * m["seq"] / s, 1)}
    assert torch.isfinite(loss)
    if args.parts:
        with sdpa_kernel(BACKENDS, set_priority=True):
            c["derived"]["parts_ms"] = parts(one)


PARTS = [("attention", ("sdpa", "flash", "fmha", "attention")), ("products", ("gemm", "nvjet", "cutlass", "cublas", "splitk")),
         ("optimizer", ("adam", "multi_tensor")), ("compiled", ("triton",)), ("loss", ("softmax", "nll_loss")),
         ("norms", ("layer_norm", "rms_norm", "layernorm", "reduce_kernel", "GammaBeta")), ("embedding", ("embedding", "indexSelect")),
         ("copies", ("copy", "CatArray", "Memset", "Memcpy", "fill"))]


def parts(one, steps=2):
    """Milliseconds of a step by kind of kernel; "busy": of all kernels, "wall": from the first one's start to the last one's end."""
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CUDA]) as p:
        for _ in range(steps):
            one()
        torch.cuda.synchronize()
    times, names = {}, {}
    events = [e for e in p.events() if e.device_type.name == "CUDA"]
    for e in events:
        kind = next((k for k, words in PARTS if any(w.lower() in e.name.lower() for w in words)), "elementwise")
        times[kind] = times.get(kind, 0) + e.device_time / 1e3 / steps
        names[e.name] = names.get(e.name, 0) + e.device_time / 1e3 / steps
    times["busy"] = sum(times.values())
    times["wall"] = (max(e.time_range.end for e in events) - min(e.time_range.start for e in events)) / 1e3 / steps
    for name, ms in sorted(names.items(), key=lambda i: -i[1])[:14]:
        print(f"    {ms:8.3f} ms  {name[:150]}", flush=True)
    return {k: round(v, 3) for k, v in times.items()}


PROFILED = [1, 3, 4, 6, 8, 10, 13, 16, 18]  # of set 1, by --parts
start, done = time.time(), []
gpu = next(g for g in GPUS if g in torch.cuda.get_device_name())
for run in [RUNS[i] for i in PROFILED] if args.parts and args.set == 1 else RUNS:
    if time.time() - start > args.seconds - (40 if run[3] else 10):
        print("left out:", run)
        continue
    c = case(gpu, *run)
    try:
        measure(c, run[3])
    except torch.OutOfMemoryError:
        c["measured"] = {"oom": True}
    except Exception as e:
        print(c["id"], "failed:", repr(e)[:300], flush=True)
        continue
    print(c["id"], c["measured"], c["derived"], f"{time.time() - start:.0f} s", flush=True)
    done.append(c)
    write(args.cases, done)
