#!/usr/bin/env python3
"""Writes tests/fixtures/tokenizer/patterns.json: pre-tokenizers with patterns, drawn at random and published ones, and a hash of how
Hugging Face `tokenizers` splits texts with each. tests/test_tokenizer_patterns.c replays it.

    pip install tokenizers
    python3 tools/golden/make_pattern_fixtures.py [OUT [SEED [COUNT]]]

Another seed and a larger count check more, live:
    python3 tools/golden/make_pattern_fixtures.py /tmp/patterns.json 7 5000
    ORTHANT_PATTERNS=/tmp/patterns.json build/test_tokenizer_patterns
"""
import json
import os
import random
import sys

from tokenizers import Regex, pre_tokenizers

HERE = os.path.dirname(os.path.abspath(__file__))

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
# Moonshot's Kimi K2: Han by itself, and the classes of o200k without it
KIMI = "|".join([
    r"[\p{Han}]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
DEEPSEEK = [r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
            r"|\s*[\r\n]+|\s+(?!\S)|\s+"]
# Other libraries read these otherwise, or not at all.
KNOWN = [r"[a-z&&[^aeiou]]+", r"\h", r"\H", r"\h+|\H+", r"[^\W\d]+", r"\p{Han}", r"\p{Hiragana}+", r"\p{Arabic}+", r"\P{Latin}+",
         r"\w", r"\W", r"\w+", r"\W+", r"[\w]+", r"[^\w]+", r"[\W]+", r"[[:alnum:]]+", r"[[:upper:]]", r"[[:punct:]]+", r"[[:word:]]+",
         r"x*", r"", r"\s*", r"a|", r"$", r"^", r"\b", r"\B", r"(?=\d)", r"\u4e00", r"[\u4e00-\u9fff]+", r"\x{4e00}|\x61", r"\p{Lower}+",
         r"\p{^L}+", r"\P{^L}+", r"(?i)[k\u212a]+", r"(?i)stra\u00dfe|ss", r"(?i)\p{Lu}+", r"(?i:garay|[\x{10D50}-\x{10D55}])+",
         r"(?i)\x{1C89}", r"(?<=a)b|(?<!a)c", r"(?>a+)b|a", r"a{2,3}?", r"a++b?", r"(\w)\1", r"(?<q>['\"]).*?\k<q>", r"\N+", r"\O",
         r"(?m:.+)", r".+", r"\A.|.\z", r"\A.|.\Z", r"\G\w", r"(?~ab)", r"[a-c-x]", r"[]x]|y", r"[\]x]+", r"[a\-z]+", r"\p{Cn}+", r"\p{C}",
         r"[^\p{L}\p{N}\s]+", r"\p{Sc}|\p{Sm}|\p{Sk}", r"\p{Extended_Pictographic}", r"\p{Kawi}+", r"\p{Zs}", r"\p{Any}"]

PROPERTIES = ("L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Zl Zp C Cc Cf Cn Co LC Han Hiragana "
              "Katakana Latin Greek Cyrillic Arabic Hebrew Devanagari Thai Hangul Common Inherited Alphabetic Uppercase Lowercase "
              "White_Space Alpha Digit Space Upper Lower Punct Alnum Cntrl Graph Print XDigit Letter Number Any Kannada Telugu "
              "Garay Kawi").split()
POSIX = "alpha digit space upper lower punct alnum cntrl graph print xdigit word blank ascii".split()
LITERALS = list("abcxyzABZ0159 '\"-_.,!/:é") + ["ß", "ſ", "K", "λ", "Ж", "中", "日", "か", "\u0301", "²", "½", "Ⅳ", "😀", "\n", "\r", "\t",
                                               "ss", "the", "'s", "ﬁ", "\U00010D50", "\u1C89"]


def escaped(c):
    if c in "\n\r\t":
        return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}[c]
    if random.random() < 0.1 and len(c) == 1:
        return "\\x{%x}" % ord(c) if ord(c) > 0xFFFF or random.random() < 0.5 else "\\u%04x" % ord(c)
    return "".join("\\" + x if x in "\"'-.!/:[]()" and x in ".-[]()" else x for x in c)


def shorthand():
    r = random.random()
    if r < 0.5:
        return "\\" + random.choice("wWsSdDhH")
    form = random.choice(["\\p{%s}", "\\p{%s}", "\\P{%s}", "\\p{^%s}"])
    return form % random.choice(PROPERTIES)


def char_class(depth):
    parts = []
    for _ in range(random.randint(1, 4)):
        r = random.random()
        if r < 0.35:
            parts.append(escaped(random.choice([c for c in LITERALS if len(c) == 1])))
        elif r < 0.55:
            parts.append(random.choice(["a-z", "A-Z", "0-9", "\\r\\n", "á-ž", "一-龥", "\\u0400-\\u04ff", "\\x{1F600}-\\x{1F64F}"]))
        elif r < 0.8:
            parts.append(shorthand())
        elif r < 0.9:
            parts.append("[:%s:]" % random.choice(POSIX))
        elif depth > 0:
            parts.append(char_class(depth - 1))
    if random.random() < 0.2:
        parts.insert(random.randint(1, len(parts)) if parts else 0, "&&")
        parts.append(char_class(depth - 1) if depth > 0 else shorthand())
    if parts and parts[0] == ":":
        parts[0] = "a"  # "[:" is refused where it begins no POSIX bracket
    return "[%s%s]" % ("^" if random.random() < 0.3 else "", "".join(parts) or "a")


def fixed():
    """Something of a length that a look-behind takes."""
    return random.choice([lambda: escaped(random.choice(LITERALS)), shorthand, lambda: char_class(0)])()


def atom(depth):
    r = random.random()
    if r < 0.28:
        return escaped(random.choice(LITERALS))
    if r < 0.5:
        return shorthand()
    if r < 0.72:
        return char_class(1)
    if r < 0.76:
        return random.choice([".", "\\b", "\\B", "^", "$", "\\A", "\\z", "\\N"])
    if r < 0.80 or depth == 0:
        return random.choice(["(?=%s)", "(?!%s)", "(?<=%s)", "(?<!%s)"]) % fixed()
    return random.choice(["(?:%s)", "(?:%s)", "(%s)", "(?i:%s)", "(?m:%s)", "(?>%s)"]) % alternation(depth - 1)


def sequence(depth):
    out = ""
    for _ in range(random.randint(1, 3)):
        a = atom(depth)
        anchor = a in ("\\b", "\\B", "^", "$", "\\A", "\\z") or a.startswith(("(?=", "(?!", "(?<=", "(?<!"))
        if not anchor and random.random() < 0.45:
            if len(a) > 1 and a[0] not in "\\[(":
                a = "(?:%s)" % a
            a += random.choice(["*", "+", "+", "?", "{1,3}", "{2}", "{2,}"]) + random.choice(["", "", "", "?", "+"])
        out += a
    return out


def alternation(depth):
    return "|".join(sequence(depth) for _ in range(random.choice([1, 1, 2, 3])))


def texts():
    with open(os.path.join(HERE, "../../tests/fixtures/tokenizer/texts.json"), encoding="utf-8") as f:
        out = [t for t in json.load(f) if len(t) < 250]
    assigned = [(0x1C80, 0x1C90), (0xA7C0, 0xA7E0), (0x10D40, 0x10D90), (0x11F00, 0x11F5A), (0x1E4D0, 0x1E4FA), (0x2EBF0, 0x2EE5D),
                (0x31350, 0x323AF), (0x897, 0x898), (0xCF3, 0xCF4), (0x1CC00, 0x1CD00), (0x16D40, 0x16D80), (0x1FA75, 0x1FA78), (0x16FF4, 0x16FF7)]
    for i in range(60):  # characters of Unicode 15 to 17 among others
        parts = [chr(random.randrange(*random.choice(assigned))) if random.random() < 0.4 else random.choice("aZ 9é中_'!")
                 for _ in range(random.randint(2, 12))]
        out.append("".join(parts))
    for i in range(40):
        out.append("".join(random.choice(LITERALS) for _ in range(random.randint(1, 25))))
    return out


def split_hash(pre, all_texts):
    """FNV-1a over the pieces of all texts, each followed by a byte 0xFF, and by another after the last."""
    h = 0xCBF29CE484222325
    for t in all_texts:
        for piece, _ in pre.pre_tokenize_str(t):
            for b in piece.encode() + b"\xff":
                h = ((h ^ b) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
        h = ((h ^ 0xFF) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return "%016x" % h


def as_json(pre):
    return json.loads(pre.__getstate__())


def published():
    isolated = lambda p: pre_tokenizers.Split(Regex(p), "isolated")
    qwen = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
    yield from map(isolated, (GPT2, LLAMA3, qwen, O200K, KIMI))
    yield pre_tokenizers.Sequence([isolated(p) for p in DEEPSEEK])
    for p in (GPT2, LLAMA3, qwen, KIMI):  # not the scanners
        yield isolated("(?:" + p + ")")
    behaviors = ["isolated", "removed", "contiguous", "merged_with_previous", "merged_with_next"]
    for i, p in enumerate(KNOWN):
        try:
            yield pre_tokenizers.Split(Regex(p), behaviors[i % 5])
            yield pre_tokenizers.Split(Regex(p), "isolated")
        except Exception:
            print("not a pattern to tokenizers:", p, file=sys.stderr)
    yield pre_tokenizers.Digits(individual_digits=True)
    yield pre_tokenizers.Digits(individual_digits=False)


def drawn():
    while True:
        pattern = alternation(2)
        try:
            yield pre_tokenizers.Split(Regex(pattern), random.choice(
                ["isolated", "isolated", "removed", "contiguous", "merged_with_previous", "merged_with_next"]), random.random() < 0.2)
        except Exception:
            continue


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "../../tests/fixtures/tokenizer/patterns.json")
    random.seed(int(sys.argv[2]) if len(sys.argv) > 2 else 20261124)
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 500
    all_texts, cases = texts(), []
    for pre in published():
        cases.append({"pre_tokenizer": as_json(pre), "hash": split_hash(pre, all_texts)})
    for pre in drawn():
        if count == 0:
            break
        try:
            cases.append({"pre_tokenizer": as_json(pre), "hash": split_hash(pre, all_texts)})
            count -= 1
        except BaseException as e:  # Oniguruma's limits end in a panic there
            if isinstance(e, KeyboardInterrupt):
                raise
    with open(out, "w", encoding="utf-8") as f:
        f.write('{"texts": %s,\n"cases": [\n%s\n]}\n' % (json.dumps(all_texts), ",\n".join(json.dumps(c) for c in cases)))


main()
