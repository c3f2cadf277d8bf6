#!/usr/bin/env python3
"""Prints src/data/unicode_classes.def: what Hugging Face `tokenizers` takes every character for.

The sets are read off the library itself (Oniguruma's tables for L, N and white space, those of Rust's
regex for word characters and of Rust for Digits, its own older ones for normal forms), because equal ids need equal sets, and the tables
of libonig or libunistring on a given machine may be of another version of Unicode.

    pip install tokenizers
    python3 tools/golden/make_unicode_classes.py > src/data/unicode_classes.def
"""
import unicodedata

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

ALL = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def matching(pattern):
    """Characters that one-character `pattern` matches."""
    split = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
    found = set()
    for at in range(0, len(ALL), 4096):
        for piece, _ in split.pre_tokenize_str("".join(map(chr, ALL[at:at + 4096]))):
            found.update(map(ord, piece))
    return found


def word_characters():
    """Characters next to which a single_word token does not match."""
    tok = Tokenizer(models.BPE(vocab={"a": 0}, merges=[]))
    tok.add_tokens([AddedToken("QQ", single_word=True, normalized=False)])
    qq = tok.token_to_id("QQ")
    encoded = tok.encode_batch([chr(c) + "QQ" for c in ALL])
    return {c for c, e in zip(ALL, encoded) if qq not in e.ids}


def numeric_characters():
    """Characters that are numbers to the pre-tokenizer Digits."""
    digits = pre_tokenizers.Digits(individual_digits=True)
    found = set()
    for at in range(0, len(ALL), 4096):
        for piece, _ in digits.pre_tokenize_str("a" + "a".join(map(chr, ALL[at:at + 4096])) + "a"):
            if "a" not in piece:
                found.add(ord(piece))
    return found


MARKS = matching(r"\p{M}")


def moves(c, form):
    """Whether the mark c changes places with a mark of another class. Marks that the tables of `tokenizers` do not know yet do not."""
    s, low, high = chr(c), "\u0334", "\u0345"
    return c in MARKS and (form("a" + s + low) != "a" + s + low or form("a" + high + s) != "a" + high + s)


def form_unsafe():
    """The same as nfc_unsafe, for the other forms."""
    nfkd, nfkc, nfd = (n().normalize_str for n in (normalizers.NFKD, normalizers.NFKC, normalizers.NFD))
    return {c for c in ALL if nfkd(chr(c)) != chr(c) or nfkc(chr(c)) != chr(c) or moves(c, nfd)}


def nfc_unsafe():
    """Characters that NFC may change, move or join with what stands before them. All others are places
    where a text can be cut without changing its normal form."""
    nfc = normalizers.NFC().normalize_str
    unsafe = set()
    for c in ALL:
        s = chr(c)
        if nfc(s) != s:
            unsafe.add(c)
        if moves(c, nfc):
            unsafe.add(c)
        d = unicodedata.decomposition(s)
        if d and not d.startswith("<") and " " in d:
            first, second = (chr(int(x, 16)) for x in d.split())
            if nfc(first + second) == s:
                unsafe.add(ord(second))
    unsafe.update(range(0x1161, 0x1176))   # Hangul vowels and finals join by rule, not by table
    unsafe.update(range(0x11A8, 0x11C3))
    return unsafe


def main():
    sets = [("L", matching(r"\p{L}")), ("N", matching(r"\p{N}")), ("S", matching(r"\s")),
            ("W", word_characters()), ("U", nfc_unsafe()),
            ("D", numeric_characters()), ("K", form_unsafe())]
    print("/* unicode_classes.def -- made by tools/golden/make_unicode_classes.py from tokenizers %s.\n"
          " * R(first, last, classes): L letter, N number, S white space, W word character, U: NFC may change,\n"
          " * move or join it with what stands before, K: NFD, NFKC or NFKD may, D: a number to Digits. Characters\n"
          " * in no row have no class. */"
          % tokenizers.__version__)
    rows, start, last, now = [], None, None, ""
    for c in ALL + [0x110000]:
        classes = "|".join(n for n, members in sets if c in members)
        if classes != now or last is None or c != last + 1:
            if now:
                rows.append("R(0x%X,0x%X,%s)" % (start, last, now))
            start, now = c, classes
        last = c
    line = ""
    for row in rows:
        if len(line) + len(row) + 1 > 108:
            print(line)
            line = ""
        line += (" " if line else "") + row
    print(line)


main()
