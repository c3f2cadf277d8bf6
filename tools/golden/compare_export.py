#!/usr/bin/env python3
"""Checks that Transformers loads a folder that Orthant wrote, and computes the same logits from it.

    python tools/golden/compare_export.py FOLDER LOGITS.safetensors [--batch main] [--limit 2e-5]
    python tools/golden/compare_export.py FOLDER --same-weights FOLDER2
    python tools/golden/compare_export.py FOLDER --scores SCORES [--limit 2e-5]

LOGITS holds input_ids [B,T] (I32 or I64), logits [B,T,V] (F32) and perhaps doc [B,T] under the prefix
`BATCH.`, as tests/fixtures/models/*/expected.safetensors does, or without one; more than max_seq
positions are refused. --same-weights compares tensor by tensor, bit for bit. SCORES is what
`orthant eval CHECKPOINT --logprobs` printed: its log-probabilities against Transformers', as norms.
Exit: 0 equal, 1 not.
"""
import argparse
import sys

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM


def load(folder):
    model, info = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    wrong = {k: v for k, v in info.items() if v and k in ("missing_keys", "unexpected_keys", "mismatched_keys")}
    if wrong:
        sys.exit(f"{folder}: Transformers complains: {wrong}")
    return model.eval()


def same_weights(a, b):
    a, b = load(a).state_dict(), load(b).state_dict()
    wrong = sorted(set(a) ^ set(b)) + [k for k in sorted(set(a) & set(b)) if not torch.equal(a[k], b[k])]
    print(f"{len(a)} tensors, {len(wrong)} differ{': ' + ', '.join(wrong[:5]) if wrong else ''}")
    return not wrong


def same_logits(folder, path, batch, limit):
    data = load_file(path)
    get = lambda what: data.get(f"{batch}.{what}", data.get(what))   # noqa: E731
    ids, ours, doc = get("input_ids").long(), get("logits").float(), get("doc")
    T = ids.shape[1]
    i = torch.arange(T)
    mask = i[None] <= i[:, None]
    mask = (mask & (i >= doc[:, :, None])) if doc is not None else mask.expand(ids.shape[0], T, T)
    with torch.no_grad():
        model = load(folder)
        if T > model.config.max_position_embeddings:
            sys.exit(f"{T} tokens for {model.config.max_position_embeddings} positions")
        theirs = model(ids, position_ids=i.expand_as(ids), attention_mask=mask[:, None], use_cache=False).logits
    error = ((ours - theirs).double().norm() / theirs.double().norm()).item()
    print(f"logits {list(theirs.shape)}: relative error {error:.3g}, allowed {limit:g}; "
          f"largest difference {(ours - theirs).abs().max().item():.3g}")
    return error <= limit


def same_scores(folder, path, limit):
    """Windows follow each other: the first input of one is the last target of the one before."""
    rows = [line.split("\t") for line in open(path) if line.strip()]
    windows = {}
    for seq, _, target, _, logprob in rows:
        windows.setdefault(int(seq), []).append((int(target), float.fromhex(logprob.strip())))
    T = len(windows[0])
    ours, theirs = [], []
    model = load(folder)
    for w in (w for w in windows if w > 0 and len(windows[w]) == T):
        target = torch.tensor([t for t, _ in windows[w]])
        ids = torch.cat([torch.tensor([windows[w - 1][-1][0]]), target[:-1]])
        with torch.no_grad():
            all_ = torch.log_softmax(model(ids[None]).logits[0].double(), -1)
        theirs.append(all_.gather(1, target[:, None])[:, 0])
        ours.append(torch.tensor([p for _, p in windows[w]], dtype=torch.float64))
    ours, theirs = torch.cat(ours), torch.cat(theirs)
    error = ((ours - theirs).norm() / theirs.norm()).item()
    print(f"{len(ours)} log-probabilities: relative error {error:.3g}, allowed {limit:g}; "
          f"largest difference {(ours - theirs).abs().max().item():.3g}")
    return error <= limit


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder")
    p.add_argument("logits", nargs="?")
    p.add_argument("--same-weights", metavar="FOLDER2")
    p.add_argument("--scores")
    p.add_argument("--batch", default="main")
    p.add_argument("--limit", type=float, default=2e-5)
    args = p.parse_args()
    if not (args.logits or args.same_weights or args.scores):
        p.error("nothing to compare with")
    good = True
    if args.same_weights:
        good &= same_weights(args.folder, args.same_weights)
    if args.logits:
        good &= same_logits(args.folder, args.logits, args.batch, args.limit)
    if args.scores:
        good &= same_scores(args.folder, args.scores, args.limit)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
