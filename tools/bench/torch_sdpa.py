#!/usr/bin/env python3
"""PyTorch's side of the attention benchmark: causal scaled_dot_product_attention, forward and backward.

Inputs are views [B,H,T,D] of [B,T,H,D], as a transformer has them. Work: 2*T*T*D*H*B forward (two
products, half of each masked away) and 2.5 times that backward. Protocol and output: peer.py.
"""
import torch
import torch.nn.functional as F

import peer


def main():
    p = peer.parser(__doc__)
    p.add_argument("--batch", type=int, default=1)
    p.add_argument("--heads", type=int, default=12)
    p.add_argument("--head-dim", type=int, default=64)
    p.add_argument("--seq-len", type=int, default=1024)
    args = p.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    B, H, T, D = args.batch, args.heads, args.seq_len, args.head_dim
    dtype = torch.bfloat16 if args.dtype == "bf16" else torch.float32
    q, k, v = (torch.randn(B, T, H, D).to(dtype).requires_grad_() for _ in range(3))
    d = torch.randn(B, T, H, D).to(dtype).transpose(1, 2)

    def attention(q, k, v):
        return F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True)

    forward = torch.compile(attention) if args.compile else attention

    def step():
        q.grad = k.grad = v.grad = None
        forward(q, k, v).backward(d)

    peer.drive(args, step, 7 * B * H * T * T * D, batch=B, heads=H, seq_len=T, head_dim=D, torch=torch.__version__)


if __name__ == "__main__":
    main()
