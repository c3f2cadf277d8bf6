#!/usr/bin/env python3
"""Writes tests/fixtures/tokenizer/chars/: small tokenizers of the kind of SentencePiece, trained by Hugging Face `tokenizers`, and
tokenizers with each normalizer; the ids that `tokenizers` gives for the texts of ../texts.json, and a hash of what it decodes from them.

    pip install tokenizers
    python3 tools/golden/make_char_fixtures.py [OUT]

NAME.json is a tokenizer.json, NAME.ids has a line of ids per text, NAME.decoded a line with the FNV-1a hash of decode(ids), or - where
that has U+FFFD for bytes that are no UTF-8.
"""
import json
import os
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

FIXTURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/fixtures/tokenizer")
BYTES = ["<0x%02X>" % b for b in range(256)]
SPECIAL = ["<unk>", "<s>", "</s>"]


def llama_decoder(strip):
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    return decoders.Sequence(steps + ([decoders.Strip(" ", 1, 0)] if strip else []))


def spaces():
    return normalizers.Replace(" ", "▁")


def kinds():
    """name -> (model options, normalizer, pre_tokenizer, decoder, byte tokens left out)"""
    meta, fallback = pre_tokenizers.Metaspace, {"byte_fallback": True, "unk_token": "<unk>", "fuse_unk": True}
    bl, bld = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    seq = normalizers.Sequence
    return {
        "llama2": (fallback, seq([normalizers.Prepend("▁"), spaces()]), None, llama_decoder(True), []),
        "gemma": (fallback, spaces(), pre_tokenizers.Split(" ", "merged_with_previous"), llama_decoder(False), []),
        "mistral": (dict(fallback, ignore_merges=True), None, meta("▁", "first", False), llama_decoder(True), []),
        "metaspace": ({"unk_token": "<unk>"}, None, meta("▁", "always", True), decoders.Metaspace("▁", "always", True), BYTES),
        "never": ({"unk_token": "<unk>", "fuse_unk": True}, normalizers.NFKC(), meta("_", "never", True),
                  decoders.Metaspace("_", "never", True), BYTES),
        # some bytes have no token: then the unknown token comes behind what bytes give
        "holes": (dict(fallback, fuse_unk=False), seq([normalizers.Strip(), normalizers.Lowercase(), spaces()]), None, None,
                  ["<0x%02X>" % b for b in range(0xE4, 0xF5)]),
        "nounk": ({}, seq([normalizers.Replace(Regex(r"\s+|^"), "▁")]), pre_tokenizers.Sequence([
            pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.Split(Regex(r"(?=▁)"), "isolated")]), llama_decoder(False), BYTES),
        "nfkc": ({}, normalizers.NFKC(), bl, bld, BYTES),
        "nfd": ({}, seq([normalizers.NFD(), normalizers.Lowercase()]), bl, bld, BYTES),
        "nfkd": ({}, seq([normalizers.Lowercase(), normalizers.NFKD(), normalizers.Strip(left=True, right=False)]), bl, bld, BYTES),
    }


ADDED = [AddedToken("<|strip|>", lstrip=True, rstrip=True, special=True, normalized=False),
         AddedToken("word", single_word=True, special=False, normalized=True),
         AddedToken("cafe\u0301", special=False, normalized=True)]


def make(name, corpus):
    options, norm, pre, dec, left_out = kinds()[name]
    tok = Tokenizer(models.BPE(**options))
    if norm:
        tok.normalizer = norm
    if pre:
        tok.pre_tokenizer = pre
    byte_level = isinstance(pre, pre_tokenizers.ByteLevel)
    learn = Tokenizer(models.BPE(**options))  # words are learned on their own, as SentencePiece does
    learn.normalizer = norm if byte_level else normalizers.Sequence([])
    learn.pre_tokenizer = pre if byte_level else pre_tokenizers.Metaspace("_" if name == "never" else "▁", "always", True)
    learn.train_from_iterator([corpus], trainers.BpeTrainer(
        vocab_size=700 if byte_level or left_out == BYTES else 956, show_progress=False,
        special_tokens=SPECIAL + [b for b in BYTES if b not in left_out],
        **({"initial_alphabet": pre_tokenizers.ByteLevel.alphabet()} if byte_level else {"limit_alphabet": 120})))
    data, learned = json.loads(tok.to_str()), json.loads(learn.to_str())
    data["model"]["vocab"], data["model"]["merges"] = learned["model"]["vocab"], learned["model"]["merges"]
    if name == "mistral":  # a word that is in the vocabulary but that no merges make
        data["model"]["merges"] = [m for m in data["model"]["merges"] if "".join(m) != "▁number"]
    tok = Tokenizer.from_str(json.dumps(data))
    if dec:
        tok.decoder = dec
    tok.add_special_tokens(SPECIAL)
    tok.add_special_tokens(["<|endoftext|>"])
    tok.add_tokens(ADDED)
    return tok


def fnv(data):
    h = 0xCBF29CE484222325
    for b in data:
        h = ((h ^ b) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return "%016x" % h


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(FIXTURES, "chars")
    os.makedirs(out, exist_ok=True)
    texts = json.load(open(os.path.join(FIXTURES, "texts.json"), encoding="utf-8"))
    corpus = open(os.path.join(FIXTURES, "train.txt"), encoding="utf-8", newline="").read()
    for name in kinds():
        tok = make(name, corpus)
        with open(os.path.join(out, name + ".json"), "w", encoding="utf-8") as f:
            f.write(json.dumps(json.loads(tok.to_str()), ensure_ascii=False))
        with open(os.path.join(out, name + ".ids"), "w") as f, open(os.path.join(out, name + ".decoded"), "w") as g:
            for t in texts:
                ids = tok.encode(t, add_special_tokens=False).ids
                text = tok.decode(ids, skip_special_tokens=False)
                f.write(" ".join(map(str, ids)) + "\n")
                g.write(("-" if "\ufffd" in text else fnv(text.encode())) + "\n")


main()
