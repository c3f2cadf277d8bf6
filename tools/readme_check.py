#!/usr/bin/env python3
"""readme_check.py [--update] FILE.md... -- runs what the documentation shows and compares.

Each file is checked in a scratch folder of its own that has `build/orthant`, `orthant` in the PATH, `configs/`, `tools/` and
`book.txt` (the first 300,000 bytes of Webster's dictionary of 1913, from the package dict-gcide). In a file, from top to bottom:

  ```console            Lines that begin with `$ ` are commands; a line that ends in `\\` goes on. What follows is the expected
                        output (both streams). A line `...` stands for any lines, ` ... ` within a line for any text.
  <!-- numbers vary in: A | B --> before a console block: numbers of lines with A or B are compared as `N` (times and rates of this machine).
  <!-- exit 2 -->       before a console block: its last command ends with that code.
  <!-- run -->          before an sh block: each command must succeed; output is not compared. <<'END' ... END is one command.
  <!-- made by: CMD --> ... <!-- end -->: the lines between are what CMD prints.
  <!-- figures of: F... --> before a table: every number of the table that has a decimal point stands in one of the files.

--update writes what the commands print into console blocks that differ and between made-by marks.
As many files are checked at once as there are CPUs, the longest first.
"""
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.abspath(os.environ.get("BUILD", os.path.join(TOP, "build")))
DICTIONARY = "/usr/share/dictd/gcide.dict.dz"
BOOK_BYTES = 300_000
VARY = "numbers vary in: "


def scratch_folder():
    folder = tempfile.mkdtemp(prefix="orthant-docs-")
    for name in ("configs", "tools", "src", "bench"):
        os.symlink(os.path.join(TOP, name), os.path.join(folder, name))
    os.symlink(BUILD, os.path.join(folder, "build"))
    book = subprocess.run(["zcat", DICTIONARY], stdout=subprocess.PIPE, check=True).stdout[:BOOK_BYTES]
    with open(os.path.join(folder, "book.txt"), "wb") as f:
        f.write(book)
    return folder


def run(command, folder):
    env = dict(os.environ, PATH=BUILD + ":" + os.environ["PATH"], COLUMNS="130", LC_ALL="C.UTF-8")
    done = subprocess.run(["bash", "-c", command], cwd=folder, env=env, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    return done.returncode, done.stdout.rstrip("\n").split("\n") if done.stdout.strip() else []


def without_numbers(line):
    return re.sub(r"\s+", " ", re.sub(r"[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?", "N", line))


def matches(expected, got, vary):
    """Whether the printed lines are the expected ones, where `...` stands for anything, and numbers for others in lines with one of the words `vary`."""
    def normal(line):
        return without_numbers(line) if any(word in line for word in vary) else line.rstrip()
    pattern = []
    for line in expected:
        if line.strip() == "...":
            pattern.append("(?:.*\n)*?")
        else:
            pattern.append(".*".join(re.escape(part) for part in normal(line).split("...")) + "\n")
    text = "".join(normal(line) + "\n" for line in got)
    return re.fullmatch("".join(pattern), text) is not None


class Checker:
    def __init__(self, path, update):
        self.path, self.update, self.failures, self.num_commands = path, update, 0, 0
        self.said = []
        with open(path) as f:
            self.lines = f.read().split("\n")
        self.folder = scratch_folder()
        self.marks, self.out = {}, []

    def fail(self, at, text):
        self.failures += 1
        self.said.append(f"{self.path}:{at + 1}: {text}")

    def command(self, at, command, code=0):
        self.num_commands += 1
        got_code, got = run(command, self.folder)
        if got_code != code:
            self.fail(at, f"`{command}` ends with {got_code}, not {code}; it printed:\n  " + "\n  ".join(got[-20:]))
        return got

    def block_end(self, at):
        while self.lines[at] != "```":
            at += 1
        return at

    def console(self, begin, end):
        """Commands and their output; returns the lines that the block should have."""
        groups = []  # [line, command lines, output lines]
        for at in range(begin, end):
            line = self.lines[at]
            if line.startswith("$ "):
                groups.append([at, [line], []])
            elif groups[-1][1][-1].endswith("\\") and not groups[-1][2]:
                groups[-1][1].append(line)
            else:
                groups[-1][2].append(line)
        vary, wanted = [], []
        for mark in self.marks:
            if mark.startswith(VARY):
                vary = mark[len(VARY):].split(" | ")
        for at, command, expected in groups:
            last = at == groups[-1][0]
            code = next((int(m.split()[1]) for m in self.marks if m.startswith("exit ")), 0) if last else 0
            got = self.command(at, "\n".join(command)[2:], code)
            while expected and not expected[-1].strip():
                expected.pop()
            if matches(expected, got, vary):
                wanted += command + expected
            elif self.update and "..." not in "".join(expected):
                wanted += command + got
            else:
                self.fail(at, "the output differs; it is:\n  " + "\n  ".join(got) + "\nthe file has:\n  " + "\n  ".join(expected))
                wanted += command + expected
        return wanted

    def shell(self, begin, end):
        at = begin
        while at < end:
            first, command = at, self.lines[at]
            while command.endswith("\\"):
                at += 1
                command += "\n" + self.lines[at]
            here = re.search(r"<<'(\w+)'$", command)
            while here and not command.endswith("\n" + here.group(1)):
                at += 1
                command += "\n" + self.lines[at]
            if command.strip() and not command.lstrip().startswith("#"):
                self.command(first, command)
            at += 1

    def made_by(self, at, command):
        end = next(i for i in range(at, len(self.lines)) if self.lines[i] == "<!-- end -->")
        got = self.command(at, command)
        if got != self.lines[at + 1:end] and not self.update:
            self.fail(at, f"the lines differ from what `{command}` prints:\n  " + "\n  ".join(got))
        self.out += [self.lines[at]] + (got if self.update else self.lines[at + 1:end]) + ["<!-- end -->"]
        return end + 1

    def figures(self, at, names):
        there = set()
        for name in names.split():
            with open(os.path.join(TOP, name)) as f:
                there |= set(re.findall(r"[0-9]+\.[0-9]+", f.read()))
        i = at + 1
        while i < len(self.lines) and not self.lines[i].startswith("|"):
            i += 1
        while i < len(self.lines) and self.lines[i].startswith("|"):
            for figure in re.findall(r"(?<![\w.])[0-9]+\.[0-9]+(?![\w.])", self.lines[i]):
                if figure not in there:
                    self.fail(i, f"{figure} does not stand in {names}")
            i += 1

    def check(self):
        at = 0
        while at < len(self.lines):
            line = self.lines[at]
            mark = re.fullmatch(r"<!-- (.*) -->", line)
            if mark and mark.group(1).startswith("made by: "):
                at = self.made_by(at, mark.group(1)[len("made by: "):])
                continue
            if mark and mark.group(1).startswith("figures of: "):
                self.figures(at, mark.group(1)[len("figures of: "):])
            elif mark:
                self.marks[mark.group(1)] = at
            self.out.append(line)
            at += 1
            if line.startswith("```") and line != "```":
                end = self.block_end(at)
                body = self.lines[at:end]
                if line == "```console":
                    body = self.console(at, end)
                elif line == "```sh" and "run" in self.marks:
                    self.shell(at, end)
                self.out += body + ["```"]
                at, self.marks = end + 1, {}
            elif line == "```":  # an unnamed block: passed over whole
                end = self.block_end(at)
                self.out += self.lines[at:end + 1]
                at = end + 1
        if self.update and self.out != self.lines:
            with open(self.path, "w") as f:
                f.write("\n".join(self.out))
        shutil.rmtree(self.folder)
        written = ", written anew" if self.update and self.out != self.lines else ""
        self.said.append(f"{self.path}: {self.num_commands} commands, {self.failures} differences{written}")
        print("\n".join(self.said), flush=True)
        return self.failures


def num_commands(path):
    with open(path) as f:
        return len(re.findall(r"^\$ |^<!-- made by: ", f.read(), re.MULTILINE))


def main():
    files = sorted((a for a in sys.argv[1:] if a != "--update"), key=num_commands, reverse=True)
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        failures = sum(pool.map(lambda f: Checker(f, "--update" in sys.argv).check(), files))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
