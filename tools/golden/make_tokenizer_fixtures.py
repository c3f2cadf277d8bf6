#!/usr/bin/env python3
"""Writes tests/fixtures/tokenizer/: small tokenizers of each kind made by Hugging Face `tokenizers`, texts that
are hard to tokenize, and the ids that `tokenizers` gives for them.

    pip install tokenizers
    python3 tools/golden/make_tokenizer_fixtures.py [OUT]

NAME.json is a tokenizer.json; NAME.ids has one line of ids per text of texts.json. train.txt and train.merges
are a corpus and the merges that BpeTrainer learns from it, for each kind.
"""
import json
import os
import random
import sys

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors,
                        trainers)

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])

random.seed(20261121)


def corpus():
    """Words of several scripts with Zipf frequencies, numbers, code and punctuation."""
    stems = ("the of and to in a is that it for was on are as with his they at be this have from or one had by "
             "word but not what all were we when your can said there use an each which she do how their if will "
             "up other about out many then them these so some her would make like him into time has look two "
             "more write go see number no way could people my than first water been call who oil its now find "
             "long down day did get come made may part over new sound take only little work know place year "
             "naïve façade größe straße élève señor привет мир слово число 東京 日本語 中文 分词 한국어 단어 "
             "हिन्दी शब्द العربية كلمة עברית ελληνικά λέξη ไทย don't it's we're I'll they'd you've I'm").split()
    code = ["for (int i = 0; i < n; i++) {\n", "    return x + 1;\n", "}\n\n", "def f(a, b):\n    pass\n",
            "#include <stdio.h>\n", "\tif (!p)\n\t\treturn NULL;\n", "x = {'a': 1, \"b\": [2, 3]}\n"]
    out = []
    for line in range(6000):
        words = []
        for _ in range(random.randint(3, 14)):
            w = stems[min(int(random.paretovariate(0.7)) - 1, len(stems) - 1)]
            if random.random() < 0.25:
                w = random.choice(stems) + random.choice(["ing", "ed", "er", "s", "ly", "ness", "tion"])
            if random.random() < 0.08:
                w = w.capitalize()
            if random.random() < 0.05:
                w = str(random.randint(0, 10 ** random.randint(1, 7)))
            words.append(w)
        out.append(" ".join(words) + random.choice([".\n", ",\n", "!\n", "\n", "?\n\n", " 😀👍\n", "...\n"]))
        if line % 9 == 0:
            out.append(random.choice(code))
    return "".join(out)


def texts():
    hard = [
        "", " ", "  ", "\n", "\n\n", " \n ", "\t", "a", "Hello world", "Hello  world", " Hello   world  ",
        "I'm you're he'll SHE'LL we'Ve DON'T it'ſ 's 'S 'x ''s ' s", "don't'll've", "'", "''", "a'", "'re", "'R", "'ré",
        "1", "12", "123", "1234", "1234567890", " 12 345 6789", "3.14159e-10", "①②③ Ⅳ ½ ٣٤٥ ৩৪ 〇 １２３",
        "foo(bar)[0] = \"baz\";\n\n\n    return 'x';\n\t\t}\r\n\r\n  // done\r", "a\r\nb\rc\n\rd", "  \n  x", "x  \n\n  ",
        "\u00a0a\u00a0\u00a0b\u2003\u2003c\u3000d\u0085e\u180ef\u200bg\ufeffh\u2028i\u2029j\u1680k\u202fl\u205fm",
        "😀😃 👨‍👩‍👧‍👦 👍🏽 🇩🇪🇯🇵 ❤️ ☺︎", "日本語のテキスト、中文字符。한국어 텍스트 ไทยไม่มีช่องว่าง", "Привет, мир! Ёлка ЁЖ",
        "हिन्दी में लिखा हुआ पाठ", "النص العربي مع التشكيل: مَرْحَبًا", "עִבְרִית", "e\u0301 é e\u0323\u0301 e\u0301\u0323 \u1e69 s\u0323\u0307 s\u0307\u0323",
        "\u0301a", " \u0301", "a\u0345\u0301\u0323b", "\u1100\u1161\u11a8 각 \uac00\u11a8 \u1161", "\u212b \u2126 \ufb01 ﬁ \uf900 \uf9ff",
        "\u0958 \u0915\u093c \u09dc \u0344 \u0f73 \u2adc \ufb1d", "\U00011938 \U00011935\U00011930 a\u0898\u0316 a\u07fd\u0301\u0316",
        "Ǆ ǅ ǆ İ ı ß ẞ ŉ K Å", "ﷺ﷽ \U0001d54f\U0001d7d8 \U00020000\U0002a6df \U000e0100 \U0010ffff", "\u0378\u0e00\U00030000\U00031350 \u1c89\ua7cb",
        "<|endoftext|>", "a<|endoftext|>b", "<|endoftext|><|endoftext|>", " <|endoftext|> ", "<|endoftext|", "<|endoftext>",
        "x <|strip|> y", "x  <|strip|>  \n y<|strip|>", "<|strip|>", "<|strip|>  <|strip|>", "<|left|> a <|left|>  b", "a <|right|>  <|right|> b",
        "word aword wordb word, (word) word1 é́word word", "caf\u00e9 cafe\u0301 xcaf\u00e9y cafe\u0301\u0301", "<|end<|endoftext|>", "<tool><tool_call></tool>",
        "AAAA aaaa aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "ab" * 200, "the" * 100, " " * 100 + "x" + "\n" * 50 + " " * 7 + "\n" + "\t" * 9 + "y",
        "__init__ self.x==y!=z<=>=->=>::/**/#$%^&*()", "http://www.example.com/a?b=c&d=e#f user@host.org", "\u0000\u0001\u0002\u007f\u0080\u009f\u00ad",
        "a\u0000b", "\\n \\ \" ' ` ~", "“quoted” ‘single’ – — … • © ® ™ € £ ¥", "𝕳𝖊𝖑𝖑𝖔 Ｆｕｌｌ ｗｉｄｔｈ", "ẞTRASSE ÅNGSTRÖM ŒUVRE",
        "100000000000000000000000 1,000,000.00 1_000 0x1F 1e5 12ab34", "x1y22z333w4444", "\u0663\u0664\u0665\u0666\u0667", "!!!???...,,,;;;", "!\n\n?\r\r.\n x",
        " !\n", "  !", " \t!", "\t!", "\ta\tb", "\n a", "\na", "\n\n\na b", " \u3000a", "\u3000\u3000a", "\u2003\n\u2003a",
    ]
    pools = [
        "abcdefgh XYZ 0123 '\"!?.,;:-_()[]{}<>/\\|@#$%^&*+=~`\t\n\r ", "aé\u0301\u0323\u0327ñ 'sSſtTrReEvVlLmMdD\u00df\ufb05",
        "中日한국語テ\u3099か\u3099 \u3000。、1１①", "\u0905\u093c\u0915\u094d\u0937 \u09c7\u09be\u0bc6\u0bbe \u1100\u1161\u11a8\uac00",
        "😀👍\u200d\ufe0f🏽🇩🇪\u2764 a1", " \n\r\t\u00a0\u2003\u0085\u2028a1!", "\u05d0\u05b4\u05bc\u0627\u064b\u0651\u0670 \u0e01\u0e33\u0e38\u0e49 ",
    ]
    for i in range(160):
        pool = random.choice(pools) if i % 4 else "".join(pools)
        hard.append("".join(random.choice(pool) for _ in range(random.randint(1, 60))))
    for _ in range(40):
        cps = [random.choice([random.randrange(0x80), random.randrange(0x800), random.randrange(0x3100),
                              random.randrange(0xD800), random.randrange(0xE000, 0x110000),
                              random.randrange(0x10000, 0x1FB00)]) for _ in range(40)]
        hard.append("".join(map(chr, cps)))
    for _ in range(20):
        parts = ["<|endoftext|>", "<|strip|>", "<|left|>", "<|right|>", "word", "café", "cafe\u0301", " ", "\n", "a", "é", "<|"]
        hard.append("".join(random.choice(parts) for _ in range(12)))
    return hard


def split(pattern):
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated", invert=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)])


def kinds():
    """name -> (pre_tokenizer, normalizer, BPE options)"""
    bl = pre_tokenizers.ByteLevel
    return {
        "gpt2": (bl(add_prefix_space=False), None, {}),
        "llama3": (split(LLAMA3), None, {"ignore_merges": True}),
        "qwen": (split(QWEN), normalizers.NFC(), {}),
        "prefix": (bl(add_prefix_space=True), normalizers.Sequence([normalizers.NFC()]), {}),
        "o200k": (split(O200K), None, {}),
        "stages": (pre_tokenizers.Sequence([
            pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.Split("a", "merged_with_previous"),
            pre_tokenizers.Split(Regex(r"[A-Z]|\s"), "merged_with_next"),
            pre_tokenizers.Split(Regex(r"[.!?]"), "contiguous"), pre_tokenizers.Split("~", "removed"),
            pre_tokenizers.Split(Regex(r"\w+|[^\w]"), "removed", invert=True),
            bl(add_prefix_space=False, use_regex=False)]), None, {}),
    }


ADDED = [AddedToken("<|strip|>", lstrip=True, rstrip=True, special=True, normalized=False),
         AddedToken("<|left|>", lstrip=True, special=True, normalized=False),
         AddedToken("<|right|>", rstrip=True, special=False, normalized=False),
         AddedToken("word", single_word=True, special=False, normalized=True),
         AddedToken("cafe\u0301", special=False, normalized=True),
         AddedToken("<tool_call>", special=False, normalized=False), AddedToken("<tool", special=False, normalized=False)]


def train(name, text, vocab_size):
    pre, norm, options = kinds()[name]
    tok = Tokenizer(models.BPE(**options))
    tok.pre_tokenizer, tok.decoder = pre, decoders.ByteLevel()
    if norm:
        tok.normalizer = norm
    tok.train_from_iterator([text], trainers.BpeTrainer(
        vocab_size=vocab_size, min_frequency=2, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tok


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "../../tests/fixtures/tokenizer")
    os.makedirs(out, exist_ok=True)
    text, hard = corpus(), texts()
    with open(os.path.join(out, "texts.json"), "w", encoding="utf-8") as f:
        json.dump(hard, f, ensure_ascii=True, indent=0)
    for name in kinds():
        tok = train(name, text, 800)
        tok.add_special_tokens(["<|endoftext|>"])
        tok.add_tokens(ADDED)
        if name == "llama3":
            tok.post_processor = processors.TemplateProcessing(single="<|endoftext|> $A", special_tokens=[
                ("<|endoftext|>", tok.token_to_id("<|endoftext|>"))])
        data = json.loads(tok.to_str())
        if name == "llama3":  # a word that is in the vocabulary but that no merges make
            data["model"]["merges"] = [m for m in data["model"]["merges"] if "".join(m) != "\u0120number"]
        if name == "gpt2":  # as older files spell merges
            data["model"]["merges"] = [" ".join(m) for m in data["model"]["merges"]]
        if name == "stages":  # bytes without a token
            for byte in ("\u00ff", "Z", "\u0142"):
                data["model"]["vocab"]["<gone %x>" % ord(byte)] = data["model"]["vocab"].pop(byte)
            data["model"]["merges"] = [m for m in data["model"]["merges"] if not set("".join(m)) & set("\u00ffZ\u0142")]
            data["model"]["unk_token"] = "<gone 5a>"
        raw = json.dumps(data, ensure_ascii=False)
        tok = Tokenizer.from_str(raw)
        with open(os.path.join(out, name + ".json"), "w", encoding="utf-8") as f:
            f.write(raw)
        with open(os.path.join(out, name + ".ids"), "w") as f:
            for t in hard:
                f.write(" ".join(map(str, tok.encode(t, add_special_tokens=False).ids)) + "\n")
    short = text[:60000]
    short = short.encode()[:60000].decode(errors="ignore")
    with open(os.path.join(out, "train.txt"), "w", encoding="utf-8", newline="") as f:
        f.write(short)
    for name in ("gpt2", "llama3", "qwen"):
        data = json.loads(train(name, short, 700).to_str())
        with open(os.path.join(out, "train_%s.merges" % name), "w", encoding="utf-8") as f:
            for a, b in data["model"]["merges"]:
                f.write(a + " " + b + "\n")


main()
