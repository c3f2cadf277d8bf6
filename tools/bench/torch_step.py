#!/usr/bin/env python3
"""PyTorch's side of the step benchmark: one full optimizer step of GPT-2 on the CPU.

Forward with SDPA, cross-entropy, backward, global-norm clipping at 1.0, fused AdamW; random weights and
tokens, dropout 0, tied head. fp32, or bf16 by autocast over fp32 weights. --hf takes Transformers'
GPT2LMHeadModel instead of the compact model here (same mathematics). Work of a step, for every program:
6*N + 6*L*C*T per token. Protocol and output: peer.py.
"""
import contextlib

import torch
import torch.nn as nn
import torch.nn.functional as F

import peer

SIZES = {"124m": (12, 768, 12), "350m": (24, 1024, 16), "774m": (36, 1280, 20), "1558m": (48, 1600, 25)}
VOCAB = 50257


class Block(nn.Module):
    def __init__(self, C, H):
        super().__init__()
        self.H = H
        self.ln1, self.ln2 = nn.LayerNorm(C), nn.LayerNorm(C)
        self.qkv, self.out = nn.Linear(C, 3 * C), nn.Linear(C, C)
        self.up, self.down = nn.Linear(C, 4 * C), nn.Linear(4 * C, C)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, self.H, C // self.H).transpose(1, 2) for t in self.qkv(self.ln1(x)).split(C, 2))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(B, T, C))
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, L, C, H, T):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, C), nn.Embedding(T, C)
        self.blocks = nn.ModuleList(Block(C, H) for _ in range(L))
        self.norm = nn.LayerNorm(C)
        for p in self.parameters():
            if p.dim() >= 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids, targets):
        x = self.tok(ids) + self.pos.weight[:ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tok.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


class HuggingFace(nn.Module):
    def __init__(self, L, C, H, T):
        super().__init__()
        from transformers import GPT2Config, GPT2LMHeadModel
        config = GPT2Config(n_layer=L, n_embd=C, n_head=H, n_positions=T, attn_pdrop=0, embd_pdrop=0, resid_pdrop=0,
                            use_cache=False, attn_implementation="sdpa")
        self.model = GPT2LMHeadModel(config)

    def forward(self, ids, targets):
        logits = self.model(ids).logits
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def main():
    p = peer.parser(__doc__)
    p.add_argument("--model", choices=SIZES, default="124m")
    p.add_argument("--hf", action="store_true")
    p.add_argument("--micro-batch", type=int, default=1)
    p.add_argument("--accum", type=int, default=1, help="micro-batches per step")
    p.add_argument("--seq-len", type=int, default=1024)
    args = p.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    base_mb = peer.rss_mb()
    L, C, H = SIZES[args.model]
    T = args.seq_len
    model = (HuggingFace if args.hf else GPT2)(L, C, H, T)
    params = list(model.parameters())
    optimizer = torch.optim.AdamW([{"params": [q for q in params if q.dim() >= 2], "weight_decay": 0.1},
                                   {"params": [q for q in params if q.dim() < 2], "weight_decay": 0.0}],
                                  lr=1e-4, betas=(0.9, 0.95), fused=True)
    forward = torch.compile(model) if args.compile else model
    text = torch.randint(0, VOCAB, (args.accum, args.micro_batch, T + 1))

    def step():
        for micro in text:
            with torch.autocast("cpu", torch.bfloat16) if args.dtype == "bf16" else contextlib.nullcontext():
                loss = forward(micro[:, :-1], micro[:, 1:]) / args.accum
            loss.backward()
        nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    tokens = text[..., 1:].numel()
    N = sum(q.numel() for q in params)
    peer.drive(args, step, tokens * (6 * N + 6 * L * C * T), tokens=tokens, params=N, model=args.model,
               what="hf" if args.hf else "own", micro_batch=args.micro_batch, accum=args.accum, seq_len=T,
               torch=torch.__version__, rss_before_mb=round(base_mb, 1))


if __name__ == "__main__":
    main()
