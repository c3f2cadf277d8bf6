#!/usr/bin/env python3
"""Times several programs in turns, in one run, and prints medians and ratios.

    versus.py --rounds 9 --probe 'build/orthant bench peak' \\
        'orthant=build/orthant bench step --serve ...' 'torch=python torch_step.py --serve ...'

Each NAME=COMMAND follows the go protocol of peer.py. Programs are started one after the other; one that
waits is stopped (SIGSTOP), so it costs no time. Round r starts with program r mod n. The first program
is the one in question: ratio = the other's seconds / its seconds, median over rounds, so above 1 the
first is faster. The probe runs before and after. --json FILE appends everything as one line.
"""
import argparse
import json
import os
import shlex
import signal
import statistics
import subprocess
import sys
import time


class Program:
    def __init__(self, spec, log):
        self.name, _, command = spec.partition("=")
        if not command:
            sys.exit(f"versus: '{spec}': wanted NAME=COMMAND")
        self.command, self.seconds, self.about = command, [], {}
        start = time.perf_counter()
        self.process = subprocess.Popen(shlex.split(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=log, text=True, start_new_session=True)
        while (line := self.line()) != "ready":
            print(f"  {self.name}: {line}", file=sys.stderr)
        self.ready_s = time.perf_counter() - start
        self.signal(signal.SIGSTOP)

    def line(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"versus: {self.name} ended with {self.process.wait()}: {self.command}")
        return line.strip()

    def signal(self, number):
        os.killpg(self.process.pid, number)

    def go(self):
        self.signal(signal.SIGCONT)
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        self.seconds.append(float(self.line()))
        self.signal(signal.SIGSTOP)

    def end(self):
        """Its own last line, if it has one."""
        self.signal(signal.SIGCONT)
        rest = self.process.communicate(timeout=60)[0].strip()
        if rest:
            self.about = json.loads(rest.splitlines()[-1])

    def kill(self):
        if self.process.poll() is None:
            self.signal(signal.SIGKILL)


def probe(command):
    return subprocess.run(shlex.split(command), capture_output=True, text=True).stdout.strip() if command else None


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("programs", nargs="+", metavar="NAME=COMMAND")
    p.add_argument("--rounds", type=int, default=9)
    p.add_argument("--probe", help="command that prints the machine's peak; run before and after")
    p.add_argument("--json", help="file to append the result to")
    p.add_argument("--title", default="")
    p.add_argument("--log", default=os.devnull, help="file for what the programs write to standard error")
    args = p.parse_args()
    before, programs = probe(args.probe), []
    try:
        with open(args.log, "a") as log:
            for spec in args.programs:
                programs.append(Program(spec, log))
        for r in range(args.rounds):
            for i in range(len(programs)):
                programs[(r + i) % len(programs)].go()
        for program in programs:
            program.end()
    finally:
        for program in programs:
            program.kill()
    after = probe(args.probe)

    rows, first = [], programs[0].seconds
    for program in programs:
        s = sorted(program.seconds)
        ratios = [b / a for a, b in zip(first, program.seconds)]
        rows.append(dict(name=program.name, command=program.command, median_s=statistics.median(s),
                         min_s=s[0], low_s=s[len(s) // 4], high_s=s[-1 - len(s) // 4], ratio=statistics.median(ratios),
                         ready_s=program.ready_s, seconds=program.seconds, about=program.about))
    if args.title:
        print(f"## {args.title}\n")
    print("| program | median s | least | quartiles | ratio | GFLOP/s | tokens/s | peak RSS MB | ready after s |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for r in rows:
        a = r["about"]
        rate = f"{a['flops'] / r['median_s'] / 1e9:.1f}" if "flops" in a else ""
        tokens = f"{a['tokens'] / r['median_s']:.0f}" if "tokens" in a else ""
        print(f"| {r['name']} | {r['median_s']:.4f} | {r['min_s']:.4f} | {r['low_s']:.4f}-{r['high_s']:.4f} | "
              f"{r['ratio']:.3f} | {rate} | {tokens} | {a.get('peak_rss_mb', '')} | {r['ready_s']:.1f} |")
    if args.probe:
        print(f"\nprobe before: {before}\nprobe after:  {after}")
    if args.json:
        with open(args.json, "a") as f:
            f.write(json.dumps(dict(title=args.title, rounds=args.rounds, probe_before=before, probe_after=after,
                                    programs=rows)) + "\n")


if __name__ == "__main__":
    main()
