#!/usr/bin/env python3
"""Prints src/data/unicode_properties.def: the members of \\p{...}, [:...:] and \\w in the Oniguruma that is inside Hugging Face
`tokenizers`.

The sets are read off the library itself: an installed libonig may be of another version of Unicode, and equal tokens
need equal sets. Properties that are not listed here are refused by src/data/tokenizer_onig.c.

    pip install tokenizers
    python3 tools/golden/make_unicode_properties.py > src/data/unicode_properties.def
"""
import textwrap

import tokenizers
from tokenizers import Regex, pre_tokenizers

ALL = "".join(chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000)

POSIX = "alpha blank cntrl digit graph lower print punct space upper xdigit word alnum ascii".split()

CATEGORIES = """C,Other Cc,Control Cf,Format Cn,Unassigned Co,Private_Use L,Letter LC,Cased_Letter Ll,Lowercase_Letter
Lm,Modifier_Letter Lo,Other_Letter Lt,Titlecase_Letter Lu,Uppercase_Letter M,Mark,Combining_Mark Mc,Spacing_Mark
Me,Enclosing_Mark Mn,Nonspacing_Mark N,Number Nd,Decimal_Number Nl,Letter_Number No,Other_Number P,Punctuation,Punct
Pc,Connector_Punctuation Pd,Dash_Punctuation Pe,Close_Punctuation Pf,Final_Punctuation Pi,Initial_Punctuation
Po,Other_Punctuation Ps,Open_Punctuation S,Symbol Sc,Currency_Symbol Sk,Modifier_Symbol Sm,Math_Symbol So,Other_Symbol
Z,Separator Zl,Line_Separator Zp,Paragraph_Separator Zs,Space_Separator"""

BINARY = "Any Alphabetic Lowercase Uppercase White_Space,WSpace Ideographic Extended_Pictographic"

SCRIPTS = """Adlam,Adlm Ahom Anatolian_Hieroglyphs,Hluw Arabic,Arab Armenian,Armn Avestan,Avst Balinese,Bali Bamum,Bamu
Bassa_Vah,Bass Batak,Batk Bengali,Beng Bhaiksuki,Bhks Bopomofo,Bopo Brahmi,Brah Braille,Brai Buginese,Bugi Buhid,Buhd
Canadian_Aboriginal,Cans Carian,Cari Caucasian_Albanian,Aghb Chakma,Cakm Cham Cherokee,Cher Chorasmian,Chrs Common,Zyyy
Coptic,Copt Cuneiform,Xsux Cypriot,Cprt Cypro_Minoan,Cpmn Cyrillic,Cyrl Deseret,Dsrt Devanagari,Deva Dives_Akuru,Diak
Dogra,Dogr Duployan,Dupl Egyptian_Hieroglyphs,Egyp Elbasan,Elba Elymaic,Elym Ethiopic,Ethi Garay,Gara Georgian,Geor
Glagolitic,Glag Gothic,Goth Grantha,Gran Greek,Grek Gujarati,Gujr Gunjala_Gondi,Gong Gurmukhi,Guru Gurung_Khema,Gukh
Han,Hani Hangul,Hang Hanifi_Rohingya,Rohg Hanunoo,Hano Hatran,Hatr Hebrew,Hebr Hiragana,Hira Imperial_Aramaic,Armi
Inherited,Zinh Inscriptional_Pahlavi,Phli Inscriptional_Parthian,Prti Javanese,Java Kaithi,Kthi Kannada,Knda
Katakana,Kana Kawi Kayah_Li,Kali Kharoshthi,Khar Khitan_Small_Script,Kits Khmer,Khmr Khojki,Khoj Khudawadi,Sind
Kirat_Rai,Krai Lao,Laoo Latin,Latn Lepcha,Lepc Limbu,Limb Linear_A,Lina Linear_B,Linb Lisu Lycian,Lyci Lydian,Lydi
Mahajani,Mahj Makasar,Maka Malayalam,Mlym Mandaic,Mand Manichaean,Mani Marchen,Marc Masaram_Gondi,Gonm Medefaidrin,Medf
Meetei_Mayek,Mtei Mende_Kikakui,Mend Meroitic_Cursive,Merc Meroitic_Hieroglyphs,Mero Miao,Plrd Modi Mongolian,Mong
Mro,Mroo Multani,Mult Myanmar,Mymr Nabataean,Nbat Nag_Mundari,Nagm Nandinagari,Nand New_Tai_Lue,Talu Newa Nko,Nkoo
Nushu,Nshu Nyiakeng_Puachue_Hmong,Hmnp Ogham,Ogam Ol_Chiki,Olck Ol_Onal,Onao Old_Hungarian,Hung Old_Italic,Ital
Old_North_Arabian,Narb Old_Permic,Perm Old_Persian,Xpeo Old_Sogdian,Sogo Old_South_Arabian,Sarb Old_Turkic,Orkh
Old_Uyghur,Ougr Oriya,Orya Osage,Osge Osmanya,Osma Pahawh_Hmong,Hmng Palmyrene,Palm Pau_Cin_Hau,Pauc Phags_Pa,Phag
Phoenician,Phnx Psalter_Pahlavi,Phlp Rejang,Rjng Runic,Runr Samaritan,Samr Saurashtra,Saur Sharada,Shrd Shavian,Shaw
Siddham,Sidd SignWriting,Sgnw Sinhala,Sinh Sogdian,Sogd Sora_Sompeng,Sora Soyombo,Soyo Sundanese,Sund Sunuwar,Sunu
Syloti_Nagri,Sylo Syriac,Syrc Tagalog,Tglg Tagbanwa,Tagb Tai_Le,Tale Tai_Tham,Lana Tai_Viet,Tavt Takri,Takr Tamil,Taml
Tangsa,Tnsa Tangut,Tang Telugu,Telu Thaana,Thaa Thai Tibetan,Tibt Tifinagh,Tfng Tirhuta,Tirh Todhri,Todr Toto
Tulu_Tigalari,Tutg Ugaritic,Ugar Vai,Vaii Vithkuqi,Vith Wancho,Wcho Warang_Citi,Wara Yezidi,Yezi Yi,Yiii
Zanabazar_Square,Zanb"""


def ranges(pattern):
    """Characters that `pattern` matches, as (first, last); what is on both sides of the surrogates is joined."""
    split = pre_tokenizers.Split(Regex(pattern + "+"), "removed", invert=True)
    out = []
    for piece, _ in split.pre_tokenize_str(ALL):
        first, last = ord(piece[0]), ord(piece[-1])
        if out and out[-1][1] + 1 == first:
            first = out.pop()[0]
        out.append((first, last))
    return tuple(out)


def main():
    names = {}
    for name in POSIX:
        names.setdefault(ranges("[[:%s:]]" % name), []).append("[%s]" % name)
    for group in (CATEGORIES + " " + BINARY + " " + SCRIPTS).split():
        for name in group.split(","):
            names.setdefault(ranges(r"\p{%s}" % name), []).append(name.lower().replace("_", ""))
    # \p{Punct} is \p{P}; the other POSIX names are the same in \p{} as in [: :].
    print("/* unicode_properties.def -- made by tools/golden/make_unicode_properties.py from tokenizers %s.\n"
          " * P(id, names, number of ranges, first, last, first, last, ...): a set of characters and what it is called\n"
          " * in patterns, between spaces; [name] is a POSIX bracket, and a property too but for [punct]. */" % tokenizers.__version__)
    for members, called in names.items():
        row = 'P(%s, " %s ", %d, %s)' % (called[0].strip("[]"), " ".join(dict.fromkeys(called)), len(members),
                                        ", ".join("0x%X,0x%X" % r for r in members))
        print("\n".join(textwrap.wrap(row, 108, break_long_words=False, break_on_hyphens=False)))


main()
