#!/usr/bin/env python3
"""Checks the losses of a run on packed documents of blended corpora against Transformers, from the texts.

    python tools/golden/compare_packed.py RUN HF CORPUS.jsonl WEIGHT [CORPUS.jsonl WEIGHT ...] [--limit 2e-6]

RUN is the folder of a run with data.tokenizer=bytes, data.doc_mask=true, data.valid_fraction=0, train.global_batch=1, dropout 0
and a learning rate so small that weights stay as they are; HF what `orthant ckpt export` made of it. The corpora are
those of data.path, with data.weights. Nothing of Orthant is used to make the batches: a corpus is the bytes of its documents, each with
token 256 behind it, cut into windows; in a window attention stays inside a document, positions go on, and targets that begin the
next document do not count. Each step's loss must be that of a window that its corpus has not shown before in this pass, and the
corpora must have their shares of the steps to within one. Exit: 0 all right, 1 not.
"""
import argparse
import json
import sys

import torch
from transformers import AutoModelForCausalLM

END = 256


def windows(path, seq_len):
    tokens, starts = [], []
    for line in open(path, encoding="utf-8"):
        starts += [len(tokens)]
        tokens += list(json.loads(line)["text"].encode()) + [END]
    starts, start, of = set(starts), 0, []
    for i in range(len(tokens)):
        start = i if i in starts else start
        of.append(start)
    for begin in range(0, len(tokens) - seq_len, seq_len):
        here = range(begin, begin + seq_len)
        yield ([tokens[i] for i in here], [tokens[i + 1] for i in here], [max(of[i], begin) - begin for i in here],
               [i + 1 not in starts for i in here])


def loss_of(model, window):
    ids, targets, doc, counts = window
    n, at = len(ids), torch.arange(len(ids))
    seen = (at[None] <= at[:, None]) & (at[None] >= torch.tensor(doc)[:, None])
    mask = torch.zeros(n, n).masked_fill(~seen, torch.finfo(torch.float32).min)
    with torch.no_grad():
        logits = model(torch.tensor([ids]), attention_mask=mask[None, None], position_ids=at[None]).logits[0]
    nll = torch.nn.functional.cross_entropy(logits, torch.tensor(targets), reduction="none")
    counts = torch.tensor(counts, dtype=torch.float32)
    return float((nll * counts).sum() / counts.sum())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("run")
    parser.add_argument("hf")
    parser.add_argument("corpora", nargs="+")
    parser.add_argument("--seq-len", type=int, default=64)
    parser.add_argument("--limit", type=float, default=2e-6)
    args = parser.parse_args()
    model = AutoModelForCausalLM.from_pretrained(args.hf, dtype=torch.float32, attn_implementation="eager").eval()
    paths, weights = args.corpora[0::2], [float(w) for w in args.corpora[1::2]]
    losses = [[loss_of(model, w) for w in windows(path, args.seq_len)] for path in paths]
    left, shown, worst = [list(x) for x in losses], [0] * len(paths), 0.0
    steps = [json.loads(line)["loss"] for line in open(f"{args.run}/metrics.jsonl", encoding="utf-8")]
    for number, loss in enumerate(steps, 1):
        error, c, k = min((abs(x - loss) / loss, c, k) for c, of in enumerate(left) for k, x in enumerate(of))
        if error > args.limit:
            sys.exit(f"step {number}: loss {loss} is that of no window left; the nearest is {error:.1e} away")
        worst = max(worst, error)
        left[c].pop(k)
        left[c] = left[c] or list(losses[c])
        shown[c] += 1
    shares = [w / sum(weights) * len(steps) for w in weights]
    print(f"{len(steps)} steps, windows {[len(x) for x in losses]}, shown {shown} of {shares}; largest error {worst:.1e}")
    if any(abs(a - b) > 1 for a, b in zip(shown, shares)):
        sys.exit("the corpora have not their shares")


main()
