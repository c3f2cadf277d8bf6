#!/usr/bin/env python3
"""fit_software.py [CASES.json] [--report FILE] -- fits configs/software.yaml on one half of a file of published runs (docs/formats/cases.md;
bench/published_cases.json if none is named), and prints the errors on both halves. ORTHANT names the program.

The halves: the runs of each family in the order of their names, every second one. A coordinate descent: each constant of
src/plan/software.def in turn (--sections: of these only) is made larger or smaller, and keeps what lowers the objective: the mean absolute
error of the step's time, stress runs counted a quarter. A weak pull to the defaults keeps constants that no run depends on where they are.
--fit-memory fits `saved` of each system (with --sections `logits`, too) in the same way, on errors of the peak of memory. Without
either it only reports with the constants as they are. --report also writes the errors of the half that was not fitted, which `plan` prints, into
configs/software.yaml (of published runs only); it keeps what stands below "## Notes" in FILE.
"""
import argparse
import json
import math
import os
import re
import subprocess
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ORTHANT = os.environ.get("ORTHANT", os.path.join(TOP, "build", "orthant"))
CASES = os.path.join(TOP, "bench", "published_cases.json")
FACTS = ("saved", "logits", "grads", "residual", "inputs", "gates", "casts")  # of memory, and what can be counted
FILE = os.path.join(TOP, "configs", "software.yaml")
HEAD = ("# How other training systems use a device: the constants of src/plan/software.def, fitted by\n"
        "# tools/fit_software.py --fit, and `saved` by --fit-memory, on one half of 140 published runs; torch and compiled, by\n"
        "# --all --sections torch,compiled, on bench/one_gpu_cases.json; residual, inputs, gates and casts are counted.\n")


def constants():
    """{(section, key): [value, least, most]} from software.def."""
    text = open(os.path.join(TOP, "src", "plan", "software.def")).read()
    out = {}
    shares = re.search(r"#define DEVICE\((.*?)\) \\\n(.*?)\nDEVICE", text, re.S)
    names = [n.strip() for n in shares[1].split(",")][1:]
    for section, values in re.findall(r"^DEVICE\((\w+), (.*)\)$", text, re.M):
        values = dict(zip(names, values.split(", ")))
        for key, name, least, most in re.findall(r"SW\(section, (\w+), (\w+), ([\d.]+), ([\d.]+)", shares[2]):
            out[section, key] = [float(values[name]), float(least), float(most)]
    for section, key, value, least, most in re.findall(r"^SW\((\w+), (\w+), ([\d.]+), ([\d.]+), ([\d.e]+)", text, re.M):
        out[section, key] = [float(value), float(least), float(most)]
    for number, system in enumerate(re.findall(r"^SYSTEM\((\w+)\)$", text, re.M)):
        for key, least, most, values in re.findall(r"^KEY\((\w+), ([\d.]+), ([\d.]+), (.*?), \"", text, re.M):
            out[system, key] = [float(values.split(", ")[number]), float(least), float(most)]
    return out


def write(values, path, head=""):
    sections = {}
    for (section, key), value in values.items():
        sections.setdefault(section, []).append("%s: %.3g" % (key, value))
    with open(path, "w") as f:
        f.write(head + "".join("%s: {%s}\n" % (s, ", ".join(k)) for s, k in sections.items()))


def read(path):
    out = {}
    for line in open(path):
        m = re.match(r"(\w+): \{(.*)\}", line)
        for item in m[2].split(", ") if m else []:
            key, value = item.split(": ")
            out[m[1], key] = float(value)
    return out


def predict(values, cases):
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as f:
        write(values, f.name)
        done = subprocess.run([ORTHANT, "plan", "--cases=" + cases, "--software=" + f.name, "--json"], stdout=subprocess.PIPE, check=True)
    return {c["id"]: c for c in json.loads(done.stdout)["cases"]}


def errors_of(predicted, measured):
    """Error of the step's time of each run that has a measured speed."""
    out = {}
    for c in measured:
        speed, p = c.get("derived", {}).get("tokens_per_s_per_gpu"), predicted[c["id"]]["tokens_per_s_per_gpu"]
        if speed and p and c["time_tier"] in ("core", "stress"):
            out[c["id"]] = speed / p - 1
    return out


def memory_errors(predicted, measured):
    """Error of the peak of memory of each run whose memory was measured."""
    out = {}
    for c in measured:
        GiB, p = c.get("measured", {}).get("peak_mem_GiB"), predicted[c["id"]]["peak_mem_GiB"]
        if GiB and p:
            out[c["id"]] = p / GiB - 1
    return out


def mfu_errors(predicted, measured):
    """In percent of the peak, over 100, of core runs."""
    out = {}
    for c in measured:
        points, p = c.get("derived", {}).get("mfu_vs_bf16_peak_pct"), predicted[c["id"]]["mfu"]
        if points and p and c["time_tier"] == "core":
            out[c["id"]] = p - points / 100
    return out


def order(predicted, measured, ids):
    """Pairs of a sweep that differ by more than 3 %, at least one of them among ids, and those in the right order."""
    pairs = right = 0
    timed = [c for c in measured if c.get("group") and c.get("derived", {}).get("tokens_per_s_per_gpu") and predicted[c["id"]]["tokens_per_s_per_gpu"]]
    for i, a in enumerate(timed):
        for b in timed[i + 1:]:
            x, y = (c["derived"]["tokens_per_s_per_gpu"] for c in (a, b))
            if a["group"] == b["group"] and (a["id"] in ids or b["id"] in ids) and max(x, y) > 1.03 * min(x, y):
                p, q = (predicted[c["id"]]["tokens_per_s_per_gpu"] for c in (a, b))
                pairs += 1
                right += (p > q) == (x > y)
    return "%d of %d" % (right, pairs)


def best_of_sweeps(predicted, measured):
    """Sweeps of at least three runs: how much slower than the best the run is that is predicted to be the fastest, in %, for each."""
    sweeps, out = {}, {}
    for c in measured:
        speed, p = c.get("derived", {}).get("tokens_per_s_per_gpu"), predicted[c["id"]]["tokens_per_s_per_gpu"]
        if c.get("group") and speed and p and not predicted[c["id"]]["claim"]:
            sweeps.setdefault(c["group"], []).append((p, speed))
    for group, runs in sweeps.items():
        if len(runs) >= 3:
            out[group] = 100 * (1 - max(runs)[1] / max(speed for _, speed in runs))
    return out


def choices(predicted, measured):
    """The sentences on chosen layouts and on runs that had no memory left."""
    lost = best_of_sweeps(predicted, measured)
    missed = ["%s (%.1f %%)" % (group, lost[group]) for group in sorted(lost) if lost[group] > 100 * (1 - 1 / 1.03)]
    out = [c["id"] for c in measured if c.get("measured", {}).get("oom") and not predicted[c["id"]]["impossible"]]
    return ("The run predicted to be the fastest of a sweep of three or more is within 3 %% of the fastest measured in %d of %d sweeps; slower in %s.\n\n"
            "Runs that ran out of memory: %d, of which %d are predicted to fit." % (
                len(lost) - len(missed), len(lost), ", ".join(missed) or "none", len(out), sum(predicted[i]["fits"] for i in out)))


def parts_errors(predicted, measured):
    """Of products, of attention and of what is between them, in runs whose kernels were timed and that make nothing again: by how much of
    the step each is off."""
    out = {}
    for c in measured:
        parts, p = c.get("derived", {}).get("parts_ms"), predicted[c["id"]]["components"]
        if parts and c["layout"]["recompute"] == "none":
            rows = sum(ms for kind, ms in parts.items() if kind not in ("products", "attention", "optimizer", "busy", "wall"))
            for name, ms in (("products", parts["products"]), ("attention", parts["attention"]), ("rows", rows)):
                out[c["id"], name] = (1e3 * p[name + "_s"] - ms) / parts["busy"]
    return out


def halves(measured, all_of_them):
    fit = {c["id"] for c in measured} if all_of_them else set()
    for family in {c["family"] for c in measured}:
        names = sorted(c["id"] for c in measured if c["family"] == family)
        fit |= set(names[::2])
    return fit


def figures(errors, ids):
    """Number of runs; mean, median and 90th percentile of their absolute errors, in %."""
    e = sorted(abs(errors[i]) for i in ids if i in errors)
    if not e:
        return None
    median = (e[(len(e) - 1) // 2] + e[len(e) // 2]) / 2
    return len(e), 100 * sum(e) / len(e), 100 * median, 100 * e[math.ceil(0.9 * len(e)) - 1]


def summary(errors, ids):
    found = figures(errors, ids)
    return "| %d | %.1f | %.1f | %.1f |" % found if found else "| 0 | - | - | - |"


def read_blind(path):
    """{id of a case: what was predicted before it was measured}."""
    out = {}
    for name, *numbers in re.findall(r"^\| (\S+) \| (\d+) \| (\d+) \| ([\d.]+) \|$", open(path).read(), re.M):
        for gpu, speed in zip(("H200", "H100"), numbers):
            out["%s-%s" % (gpu, name)] = {"tokens_per_s_per_gpu": float(speed), "peak_mem_GiB": float(numbers[2])}
    return out


def blind_table(files, predicted, measured):
    lines = ["| predicted | runs | time: mean error % | median | 90th percentile | memory: mean error % | worst | pairs in the right order |",
             "| --- | --- | --- | --- | --- | --- | --- | --- |"]
    for name, by in [(os.path.basename(f)[:10] + ", before they were measured", read_blind(f)) for f in files] + [("now, fitted on all of them", predicted)]:
        runs = [c for c in measured if c["id"] in by]
        time, memory = errors_of(by, runs), memory_errors(by, runs)
        lines.append("| %s | %d | %.1f | %.1f | %.1f | %.1f | %.1f | %s |" % (
            name, *figures(time, time), figures(memory, memory)[1], 100 * max(map(abs, memory.values())), order(by, runs, by)))
    return "\n".join(lines)


def main():
    args = argparse.ArgumentParser()
    args.add_argument("cases", nargs="?", default=CASES)
    args.add_argument("--fit", action="store_true")
    args.add_argument("--fit-memory", action="store_true")
    args.add_argument("--all", action="store_true", help="every run is of the fitted half: others show how good the constants are")
    args.add_argument("--sections", help="fit only these, separated by commas")
    args.add_argument("--blind", action="append", help="a file with a table of predictions (| run | tokens/s, H200 | tokens/s, H100 | GiB |): prints "
                      "their errors beside those of today's, and nothing else; several times: a row each")
    args.add_argument("--report")
    args = args.parse_args()
    measured = json.load(open(args.cases))
    tier = {c["id"]: c["time_tier"] for c in measured}
    rows, fit = constants(), halves(measured, args.all)
    values = {k: r[0] for k, r in rows.items()}
    values.update({k: v for k, v in read(FILE).items() if k in rows})

    def objective(v):
        predicted = predict(v, args.cases)
        e, parts = errors_of(predicted, measured), parts_errors(predicted, measured)
        weight = {i: 1.0 if tier[i] == "core" else 0.25 for i in e if i in fit}
        loss = sum(w * min(abs(math.log1p(e[i])), 0.7) for i, w in weight.items()) / sum(weight.values())
        loss += sum(abs(e) for e in parts.values()) / (len(parts) or 1)
        return loss + 2e-4 * sum(abs(math.log((v[k] + 1e-3) / (r[0] + 1e-3))) for k, r in rows.items() if k[0] != "errors")

    def memory_objective(v):
        e = memory_errors(predict(v, args.cases), measured)
        loss = [abs(math.log1p(x)) for i, x in e.items() if i in fit]
        return sum(loss) / len(loss) + 2e-3 * sum(abs(math.log(v[k] / r[0])) for k, r in rows.items() if k[1] in of_memory)

    # What published runs show of logits is too little to fit them for all systems at once.
    of_memory = ("saved", "logits") if args.sections else ("saved",)

    def descend(objective, keys, values):
        best, step = objective(values), 1.25
        while step > 1.02:
            before = best
            for k in keys:
                _, least, most = rows[k]
                for factor in (step, 1 / step):
                    changed = dict(values)
                    changed[k] = min(most, max(least, (values[k] or 0.002) * factor))
                    loss = objective(changed)
                    if loss < best:
                        best, values = loss, changed
                        break
            print("step %.3f: %.4f" % (step, best), flush=True)
            write(values, FILE, HEAD)
            if before - best < 0.001:
                step = math.sqrt(step)
        return read(FILE)

    def chosen(key):
        return not args.sections or key[0] in args.sections.split(",")

    if args.fit:
        values = descend(objective, [k for k in rows if chosen(k) and k[1] not in FACTS and k[0] != "errors"], values)
    if args.fit_memory:
        values = descend(memory_objective, [k for k in rows if chosen(k) and k[1] in of_memory], values)
    predicted = predict(values, args.cases)
    if args.blind:
        print(blind_table(args.blind, predicted, measured))
        return
    e = errors_of(predicted, measured)
    lines = ["| runs | number | mean % | median % | 90th percentile % |", "| --- | --- | --- | --- | --- |"]
    for name, ids in (("fitted", fit), ("held out", set(e) - fit)):
        for t in ("core", "stress"):
            lines.append("| %s, %s %s" % (t, name, summary(e, [i for i in ids if tier.get(i) == t])))
    for family in sorted({c["family"] for c in measured}):
        ids = [c["id"] for c in measured if c["family"] == family]
        if any(i in e for i in ids):
            lines.append("| family %s %s" % (family, summary(e, ids)))
    memory, mfu = memory_errors(predicted, measured), mfu_errors(predicted, measured)
    rest = {c["id"] for c in measured} - fit
    lines += ["", "| MFU, in points, and memory | number | mean | median | 90th percentile |", "| --- | --- | --- | --- | --- |"]
    for name, ids in (("fitted", fit), ("held out", rest)):
        lines.append("| MFU of core runs, %s %s" % (name, summary(mfu, ids)))
        lines.append("| memory, %s %s" % (name, summary(memory, ids)))
        for kind in sorted({c["memory_class"] for c in measured if c.get("memory_class")}):
            lines.append("| memory measured as %s, %s %s" % (kind, name, summary(memory, [c["id"] for c in measured if c.get("memory_class") == kind and c["id"] in ids])))
    lines += ["", "Pairs of a sweep that differ by more than 3 %% in the right order: %s; of those with a held-out run %s." % (
        order(predicted, measured, fit | rest), order(predicted, measured, rest)), "", choices(predicted, measured)]
    text = "\n".join(lines) + "\n"
    print(text)
    if args.report:
        if os.path.samefile(args.cases, CASES):  # `plan` says their errors beside its estimates
            number, _, median, p90 = figures(e, [i for i in e if tier[i] == "core" and i not in fit])
            values.update({("errors", "runs"): number, ("errors", "median"): median, ("errors", "p90"): p90})
            write(values, FILE, HEAD)
        notes = open(args.report).read().partition("\n## Notes\n")[1:] if os.path.exists(args.report) else ()
        with open(args.report, "w") as f:
            f.write("# Predicted and measured runs of other systems\n\nMade by `tools/fit_software.py %s--report FILE`, from %s.\nAbsolute errors of the "
                    "time of a step, of the MFU and of the peak of memory. The constants of\nconfigs/software.yaml%s were fitted on %s.\n\n" % (
                        "" if args.cases == CASES else args.cases + " " + "--all " * args.all, os.path.relpath(args.cases, TOP),
                        "" if not args.sections else " (%s)" % args.sections.replace(",", ", "),
                        "all of them" if args.all else "one half of the runs (every second one of each family, by name); the rows\n\"held out\" are the other half") + text + "".join(notes))


if __name__ == "__main__":
    main()
