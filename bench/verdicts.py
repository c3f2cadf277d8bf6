#!/usr/bin/env python3
"""verdicts.py RESULTS.md -- whether the bars in a results file of bench/run.sh are met, as one table.

A bar is written in one place: the line "Bar: ..." of its part, which bench/run.sh writes. The thresholds are read from there and do not stand
here. What stands here is how to find the figure of a bar in the output of its part. Where a bar is about several figures, the
worst one is quoted; figures of several rounds are the medians that the part printed.

A part that is not in the file is "not measured". After the table the script fails if a part with a bar is unknown to it, or if a bar or an output
does not look as expected: then bench/run.sh, or a program that it runs, has changed, and this script must follow.
"""
import os
import re
import sys

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NUMBER = r"(\d+(?:\.\d+)?)"


class NotMeasured(Exception):
    """The part has no figure to hold against its bar."""


class Mismatch(Exception):
    """The part does not look as expected."""


class Part:
    def __init__(self, title):
        self.title, self.bar, self.output = title, "", []


def read_parts(path):
    parts, part, fenced = {}, None, False
    with open(path) as f:
        for line in f.read().split("\n"):
            if line == "```":
                fenced = not fenced
            elif fenced and part:
                part.output.append(line)
            elif line.startswith("## "):  # not in a fence, where a program printed it
                part = parts[line[3:]] = Part(line[3:])
            elif line.startswith("Bar: ") and part:
                part.bar = line[5:]
    return parts


def matches(lines, pattern):
    found = [m for m in (re.search(pattern, line) for line in lines) if m]
    if not found:
        raise Mismatch(f"no line of the output matches '{pattern}'")
    return found


def tables(lines):
    """The tables in the output: (the heading above it, its rows below the head as lists of cells) of each."""
    out, heading = [], ""
    for line, after in zip(lines, lines[1:] + [""]):
        if line.startswith("## "):
            heading = line[3:]
        elif line.startswith("| ---"):
            out.append((heading, []))
        elif line.startswith("|") and not after.startswith("| ---"):
            out[-1][1].append([cell.strip() for cell in line.strip("|").split("|")])
    if not out:
        raise Mismatch("no table in the output")
    return out


def one(found, what):
    if len(found) != 1:
        raise Mismatch(f"{len(found)} rows of '{what}', not one")
    return found[0]


def row(what, figures, unit="", decimals=3, least=None, most=None):
    """A row of the table, for the bar `least` or `most`, as it is written. figures: (value, where it was found)."""
    if not figures:
        raise Mismatch(f"no figure of '{what}'")
    bar = float(most if least is None else least)
    worst, where = max(figures) if least is None else min(figures)
    missed = [value for value, _ in figures if (value > bar if least is None else value < bar)]
    found = f"{worst:.{decimals}f}{unit}" + (f" ({where})" if where else "")
    if missed and len(figures) > 1:
        found += f"; missed by {len(missed)} of {len(figures)}"
    return what, f"at {'most' if least is None else 'least'} {most if least is None else least}{unit}", found, "missed" if missed else "met"


# ---- the parts: (part, thresholds of its bar, all parts) -> rows ----

def products(part, bars, parts):
    fast, reproducible, lowest = bars
    means = {"1": [], "8": []}  # numerics.parts: 1 is what fast mode has on one rank, 8 the default of reproducible mode
    shapes = []
    for line in part.output:
        if line.startswith("# fp32 as bf16x6"):  # its bars are not those of the two types above
            break
        mean = re.match(rf"# (fp32|bf16) parts=([18]): geometric mean of \d+ ratios {NUMBER}, lowest", line)
        if mean:
            means[mean[2]].append((float(mean[3]), mean[1]))
        cells = line.split()
        if len(cells) == 17 and cells[3] in ("fp32", "bf16"):
            shapes += [(float(cells[13 + i]), f"{' '.join(cells[:4])}, parts={p}") for i, p in enumerate((1, 8))]
    return [row("geometric mean, fast mode", means["1"], least=fast), row("geometric mean, reproducible", means["8"], least=reproducible),
            row("lowest shape", shapes, least=lowest)]


def attention(part, bars, parts):
    share, low, high, *sizes = bars
    figures = [(float(m[5]), f"T {m[1]}, head size {m[2]}, parts {m[3]}, threads {m[4]}")
               for m in matches(part.output, rf"^fp32 +T +(\d+) D +(\d+) parts (\d+) threads (\d+) .* {NUMBER} % of")
               if int(low) <= int(m[1]) <= int(high) and m[2] in sizes]
    return [row("share of the peak", figures, " %", 1, least=share)]


def pointwise(part, bars, parts):
    ratio = one(matches(part.output, rf"^norm\+clip\+adamw\+cast .* ratio {NUMBER}"), "norm+clip+adamw+cast")
    return [row("AdamW + clip + cast", [(100 * float(ratio[1]), "")], " %", 0, least=bars[0])]


def plans(part, bars, parts):
    rows = tables(part.output)[0][1]

    def plan(of):
        found = [(float(r[2]), float(r[3])) for r in rows if re.search(of, r[0])]
        if not found:
            raise Mismatch(f"no plan '{of}'")
        return found
    peaks, large = one(plan("^peaks alone"), "peaks alone"), one(plan("^llama3-70b.* 256 ranks"), "llama3-70b")
    cluster = [(s, "cp=2" if cp == 2 else "cp=1") for cp, of in ((1, "llama3-405b, (?!.*cp=2).*16,384 ranks"), (2, "llama3-405b, .*cp=2.*16,384 ranks"))
               for s, _ in plan(of)]
    return [row("llama3-70b, 256 ranks, without the peaks", [(large[0] - peaks[0], "")], " s", 2, most=bars[0]),
            row("llama3-70b, memory", [(large[1] * 1.024 ** 2 / 1000, "")], " GB", 2, most=bars[1]),
            row("llama3-405b, 16,384 devices", cluster, " s", 2, most=bars[2])]


def collectives(part, bars, parts):
    # Not held against the bar: what bounds it (copy, stream) and methods that comm.algorithm=auto does not take between threads.
    kinds = ("all_reduce", "all_reduce apart", "all_reduce bf16", "reduce_scatter", "all_gather", "broadcast", "all_to_all")
    optimum, from_mb, price = bars
    shares, prices, size = [], [], 0
    for line in part.output:
        m = re.match(rf"([a-z_]+(?: [a-z0-9]+)?) +(\d+) .* {NUMBER} %$", line)
        over = re.match(rf"canonical / free order: {NUMBER}", line)
        if m:
            size = int(m[2])
            if m[1] in kinds and size >= int(from_mb) << 20:
                shares.append((float(m[3]), f"{m[1]}, {size} bytes"))
        elif over:
            prices.append((100 * (float(over[1]) - 1), f"{size} bytes"))
    return [row("share of the byte optimum", shares, " %", 1, least=optimum), row("price of canonical order", prices, " %", 1, most=price)]


def against_mpi(part, bars, parts):
    figures = [(float(m[2]), f"{m[1]} bytes") for m in matches(part.output, rf"^ *(\d+) +[\d.]+ +[\d.]+ +{NUMBER}$")]
    return [row("Open MPI's time over ours", figures, "", 2, least=bars[0])]


def algorithms(part, bars, parts):
    # The rule of comm.algorithm=auto between processes, orth_comm_algo_of; its sizes are read where they are written.
    with open(os.path.join(TOP, "src/comm/bytes.c")) as f:
        source = f.read().split("\n")
    unit = one(matches(source, r"^#define TREE_BYTES \(\(int64_t\)(\d+) << (\d+)\)$"), "TREE_BYTES")
    direct_ranks = int(one(matches(source, r"^#define DIRECT_BROADCAST_RANKS (\d+)$"), "DIRECT_BROADCAST_RANKS")[1])
    figures = {}
    for through, ranks, size, *times in tables(part.output)[0][1]:
        tree, direct, ring, broadcast_tree, broadcast_direct = (float(t) for t in times)
        small = int(size) <= int(unit[1]) << int(unit[2])
        chosen, least = tree if small else direct, min(tree, direct, ring)
        found = figures.setdefault(through, [])
        found.append((100 * (chosen / least - 1), f"all-reduce, {ranks} ranks, {size} bytes"))
        chosen = broadcast_tree if small or int(ranks) > direct_ranks else broadcast_direct
        found.append((100 * (chosen / min(broadcast_tree, broadcast_direct) - 1), f"broadcast, {ranks} ranks, {size} bytes"))
    return [row(f"auto's choice over the fastest, {through}", f, " %", 0, most=bars[0]) for through, f in figures.items()]


def threads(part, bars, parts):
    share = one(matches(part.output, rf": {NUMBER} % of the peak's gain"), "gain")
    return [row("share of the peak's gain", [(float(share[1]), "")], " %", 1, least=bars[0])]


def layouts(part, bars, parts):
    dp, idle, of, others = bars
    rows = [r for _, rows in tables(part.output) for r in rows]

    def share(name, busy=1.0):
        return [(100 / float(one([r for r in rows if r[0] == name], name)[4]) / busy, "")]
    return [row("dp 2", share("dp 2"), " %", 1, least=dp), row("tp 2", share("tp 2"), " %", 1, least=others),
            row("pp 2, the bubble taken out", share("pp 2", 1 - int(idle) / int(of)), " %", 1, least=others)]


def bubble(part, bars, parts):
    figures = [(float(m[2]), m[1]) for m in matches(part.output, rf"^(\S+) over .*: idle .*, at most {NUMBER} points less")]
    return [row("idle beyond the schedule's", figures, " points", 2, most=bars[0])]


def memory(part, bars, parts):
    full, selective, offload, auto = bars
    found = tables(part.output)

    def price(change):
        rows = one([rows for heading, rows in found if heading == change], change)
        return [(float(one([r for r in rows if r[0] == "changed"], "changed")[4]), "")]
    rows = [row("recompute=full", price("memory.recompute=full"), most=full), row("recompute=selective", price("memory.recompute=selective"), most=selective),
            row("offload_optimizer=host", price("memory.offload_optimizer=host"), most=offload)]

    def spread(r):  # what its rounds differ by, as a share: 0 of one round
        low, high = r[3].split("-")
        return (float(high) - float(low)) / float(r[1])
    bests = []  # of each limit: the best policy's time over auto's, and what the rounds of the two differ by
    for heading, runs in found:
        if heading.startswith("auto in "):
            own = one([r for r in runs if r[0] == "auto"], "auto")
            best = min((r for r in runs if r is not own), key=lambda r: float(r[4]))
            bests.append((float(best[4]), max(spread(own), spread(best)), f"{best[0]}, limit of {heading.split(' those of ')[-1]}"))
    if not bests:
        raise Mismatch("no 'auto in N bytes' in the output")
    missed = [ratio for ratio, differ, _ in bests if ratio + differ < float(auto)]
    ratio, differ, where = min(bests, key=lambda b: b[0] + b[1])
    found = f"{ratio:.3f} ({where})" + (f", rounds differ by {differ:.3f}" if differ else ", one round")
    return rows + [("best policy's time over auto's", f"at least {auto}, less what rounds differ by",
                    found + (f"; missed by {len(missed)} of {len(bests)}" if missed else ""), "missed" if missed else "met")]


def file_floor(part, bars, parts):
    if any("quote no ratio" in line for line in part.output):
        raise NotMeasured("the machine was busy, and the part says to quote no ratio")
    figures = [(100 * float(m[2]) / float(m[3]), f"disk measured {m[1]}")
               for m in matches(part.output, rf"^(before|after) .* floor {NUMBER} s; .* its update {NUMBER} s")]
    return [row("floor over the update", figures, " %", 1, least=bars[0])]


def step_seconds(part):
    return float(one(matches(part.output, rf"^step {NUMBER} s "), "step")[1])


def products_of_step(parts, type_):
    """Seconds that the products of a step of GPT-2 124M on 1,024 tokens, 12 layers and the head, take at bare oneDNN's better rate for each."""
    if PRODUCTS not in parts:
        raise NotMeasured("needs the rates of oneDNN")
    seconds, num = 0.0, 0
    for line in parts[PRODUCTS].output:
        cells = line.split()
        if line.startswith("# fp32 as bf16x6"):
            break
        if len(cells) == 17 and cells[0] == "124m" and cells[3] == type_:
            m, n, k, packed, own = (float(c) for c in cells[4:9])
            seconds += 2e-9 * m * n * k / max(packed, own) * (1 if cells[1] == "head" else 12)
            num += 1
    if num == 0:
        raise NotMeasured("needs the rates of oneDNN, which has no such product here")
    if num != 15:
        raise Mismatch(f"{num} products of 124m in {type_}, not 15")
    return seconds


def step(part, bars, parts):
    batch, type_ = re.match(r"GPT-2 124M, step of (\d+) x 1024 tokens, (\w+),", part.title).groups()
    share = 100 * int(batch) * products_of_step(parts, type_) / step_seconds(part)
    return [row("products at oneDNN's rates over the step", [(share, "")], " %", 1, least=bars[("fp32", "bf16").index(type_)])]


def step_in_parts(part, bars, parts):
    other = parts.get(part.title.replace("parts=8", "parts=1"))
    if not other:
        raise NotMeasured("needs the step with numerics.parts=1")
    return [row("slower than parts=1", [(100 * (step_seconds(part) / step_seconds(other) - 1), "")], " %", 1, most=bars[0])]


# ---- what there is to judge: title, bar, how. A part without a bar says so by no line "Bar:", or by one of NO_BAR. ----

PRODUCTS = "Matrix products against bare oneDNN"
NO_BAR = ("against Hugging Face: see the table of peers", "in shares of the FMA peak")
TYPES = ("fp32", "bf16")
LESS_MEMORY = "The price of less memory: recomputation and host space beside a plain step of GPT-2 124M, "
PARTS = [
    (PRODUCTS, f"geometric mean of the ratio at least {NUMBER} in fast mode and {NUMBER} in reproducible mode, fp32 and bf16; "
     rf"no shape below {NUMBER}(?:\. d\.any: .*)?", products),
    ("Attention, forward and backward", rf"at least {NUMBER} % of the FMA peak in fp32 at T = (\d+) to (\d+), head size (\d+) and (\d+)", attention),
    ("AdamW, clipping, cast, norms against copying", rf"AdamW \+ clip \+ cast at least {NUMBER} % of copy bandwidth", pointwise),
    ("Plans of large layouts", f"llama3-70b on 256 ranks within {NUMBER} s of one core and {NUMBER} GB, measuring the peaks not counted; "
     f"llama3-405b on 16,384 devices, cp=1 and cp=2, within {NUMBER} s of one core each", plans),
    ("Collectives between 2 thread ranks", rf"at least {NUMBER} % of the byte optimum from (\d+) MB on; canonical order costs at most {NUMBER} %",
     collectives),
    ("All-reduce against Open MPI", f"at least {NUMBER} times as fast from 64 KB to 256 MB", against_mpi),
    ("Tree, direct and ring between processes", f"what comm.algorithm=auto chooses is within {NUMBER} % of the fastest", algorithms),
    *((f"GPT-2 124M on one thread and on two, {t}", f"two threads gain at least {NUMBER} % of what they gain in the peak", threads) for t in TYPES),
    *((f"GPT-2 124M on two ranks of one thread beside one rank of two, {t}",
       rf"dp 2: at least {NUMBER} % of one rank's tokens/s; tp 2 and pp 2 \(8 micro-batches, 1f1b: idle (\d+)/(\d+) by formula\) "
       f"at least {NUMBER} % with the bubble taken out", layouts) for t in TYPES),
    ("Bubble of a pipeline of 2 ranks of one thread", f"within {NUMBER} points of what the schedule has with the same time for every action", bubble),
    *((LESS_MEMORY + t, f"recompute=full at most {NUMBER}, selective {NUMBER}, offload_optimizer=host {NUMBER}; "
       f"auto never slower than the best named policy that fits the same limit: {NUMBER}, and what rounds differ", memory) for t in TYPES),
    ("GPT-2 774M under 2 GB, state in a file, against the floor of the disk", f"the floor is at least {NUMBER} % of the update", file_floor),
    *((f"GPT-2 124M, step of {batch} x 1024 tokens, {t}, numerics.parts=1",
       rf"the step's products at bare oneDNN's rate are at least {NUMBER} % \(fp32\), {NUMBER} % \(bf16\) of its time", step)
      for t in TYPES for batch in (1, 4)),
    *((f"GPT-2 124M, step of {batch} x 1024 tokens, {t}, numerics.parts=8", f"at most {NUMBER} % slower than parts=1", step_in_parts)
      for t in TYPES for batch in (1, 4)),
]


def judge(title, pattern, how, parts):
    """Rows of (what, bar, figure found, verdict)."""
    part = parts.get(title)
    if not part:
        return [("", "", "", "not measured")]
    bar = re.fullmatch(pattern, part.bar)
    if not bar:
        raise Mismatch(f"its bar is not as bench/verdicts.py expects: '{part.bar}'")
    ended = [line for line in part.output if line.startswith("(ended with ")]
    try:
        if ended:
            raise NotMeasured(ended[0].strip("()"))
        return how(part, bar.groups(), parts)
    except NotMeasured as e:
        return [("", part.bar, str(e), "not measured")]
    except (ValueError, IndexError) as e:  # a table with other columns
        raise Mismatch(f"its output is not as bench/verdicts.py expects: {e}") from e


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: verdicts.py RESULTS.md")
    parts, wrong = read_parts(sys.argv[1]), []
    print("| part | bar | found | verdict |\n| --- | --- | --- | --- |")
    for title, pattern, how in PARTS:
        try:
            rows = judge(title, pattern, how, parts)
        except Mismatch as e:
            rows = [("", "", "", "not understood")]
            wrong.append(f"{title}: {e}")
        for what, bar, found, verdict in rows:
            print(f"| {title}{': ' if what else ''}{what} | {bar} | {found} | {verdict} |")
    known = {title for title, _, _ in PARTS} | {"Bars", "Peaks, before", "Peaks, after"}
    for part in parts.values():
        if part.title not in known and part.bar and part.bar not in NO_BAR:
            wrong.append(f"{part.title}: bench/verdicts.py has no such part; its bar: '{part.bar}'")
        elif part.title not in known:
            print(f"| {part.title} | {part.bar} | | no bar here |")
    for text in wrong:
        print(f"verdicts: {sys.argv[1]}: {text}", file=sys.stderr)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
