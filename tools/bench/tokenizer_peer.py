#!/usr/bin/env python3
"""Speed of Orthant's tokenizer beside Hugging Face `tokenizers`, in one interleaved run.

    pip install tokenizers
    python3 tools/bench/tokenizer_peer.py BENCH_TOKENIZER [TEXT] [--vocab 32000] [--no-train] [--rounds 3]

TEXT defaults to Webster's dictionary of the package dict-gcide. Both train on it with the same options (all
cores), and the merges are compared; then both encode its first 10 MB with the same tokenizer.json on one
thread, and the ids are counted. Every line names what was measured; ratios are of medians.
"""
import argparse
import gzip
import json
import os
import re
import statistics
import subprocess
import tempfile
import time

os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
import tokenizers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

GCIDE = "/usr/share/dictd/gcide.dict.dz"


def run_ours(bench, *args):
    """name -> (MB/s, seconds)"""
    out = subprocess.run([bench, *map(str, args)], check=True, capture_output=True, text=True).stdout
    rows = {}
    for line in out.splitlines():
        f = line.split()
        if len(f) == 5 and f[2] == "MB/s":
            rows[f[0]] = (float(f[1]), float(f[3]))
        if f[0] == "tokens":
            rows["tokens"] = int(f[1])
    return rows


def train_theirs(text, vocab):
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    start = time.perf_counter()
    tok.train_from_iterator(text, trainers.BpeTrainer(
        vocab_size=vocab - 1, min_frequency=2, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tok, time.perf_counter() - start


def cut(text):
    """Pieces of about 256 KB, cut where the pattern cuts too (as Orthant does), so that the trainer has work for
    all cores and the words are those of the whole."""
    pieces, at = [], 0
    while at < len(text):
        m = re.compile(r"[A-Za-z](?=[ \n])").search(text, at + 262144)
        end = m.end() if m else len(text)
        pieces.append(text[at:end])
        at = end
    return pieces


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("bench")
    ap.add_argument("text", nargs="?")
    ap.add_argument("--vocab", type=int, default=32000)
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--no-train", action="store_true")
    a = ap.parse_args()
    data = open(a.text, "rb").read() if a.text else gzip.open(GCIDE).read()
    text = data.decode("utf-8", errors="replace")
    data = text.encode()
    tmp = tempfile.mkdtemp()
    whole, part, ours = (os.path.join(tmp, n) for n in ("whole.txt", "part.txt", "ours.json"))
    open(whole, "wb").write(data)
    small = data[:10_000_000].decode(errors="ignore")
    open(part, "wb").write(small.encode())
    print("tokenizers %s, %d cores, %.1f MB" % (tokenizers.__version__, os.cpu_count(), 1e-6 * len(data)))

    s_ours, s_theirs = [], []
    for _ in range(1 if a.no_train else a.rounds):
        s_ours.append(run_ours(a.bench, whole, ours, "--train", a.vocab, "--repeat", 0)["train"][1])
        if not a.no_train:
            theirs, s = train_theirs(cut(text), a.vocab)
            s_theirs.append(s)
    if not a.no_train:
        o, t = statistics.median(s_ours), statistics.median(s_theirs)
        print("train %d tokens: ours %.2f s, theirs %.2f s, ratio %.1f" % (a.vocab, o, t, t / o))
        mine = json.load(open(ours))["model"]["merges"]
        his = json.loads(theirs.to_str())["model"]["merges"]
        same = sum(x == y for x, y in zip(mine, his))
        print("merges equal at the same rank: %d of %d" % (same, len(his)))

    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    tok = Tokenizer.from_file(ours)
    rows = {"encode-document": ([], []), "encode-paragraphs": ([], [])}
    paragraphs = [p for p in small.split("\n\n")]
    paragraphs = [p + "\n\n" for p in paragraphs[:-1]] + paragraphs[-1:]
    for _ in range(a.rounds):
        r = run_ours(a.bench, part, ours, "--repeat", 3)
        for name in rows:
            rows[name][0].append(r[name][0])
        start = time.perf_counter()
        num = len(tok.encode(small).ids)
        rows["encode-document"][1].append(1e-6 * len(small.encode()) / (time.perf_counter() - start))
        start = time.perf_counter()
        in_paragraphs = sum(len(tok.encode(p).ids) for p in paragraphs)
        rows["encode-paragraphs"][1].append(1e-6 * len(small.encode()) / (time.perf_counter() - start))
        assert in_paragraphs == r["tokens"], (in_paragraphs, r["tokens"])
    for name, (x, y) in rows.items():
        o, t = statistics.median(x), statistics.median(y)
        print("%s: ours %.1f MB/s (%.1f-%.1f), theirs %.2f MB/s (%.2f-%.2f), ratio %.1f" % (
            name, o, min(x), max(x), t, min(y), max(y), o / t))
    print("document: %d tokens" % num)


main()
