#!/bin/bash
# price_table.sh FILE... -- docs/numerics.md's table of the price of reproducible mode, from what bench/run.sh wrote of bench/modes.sh into each
# results file: a row for each file and type.
set -euo pipefail
awk '
  function flush_row() { # every row has the same axes, or a column would be of two
    if (head == "") return
    if (first == "") { first = head; print "| processor | type | rounds |" head; print "| --- | --- | --- |" rule }
    else if (head != first) { print "price_table: " name ": other axes:" head > "/dev/stderr"; exit failed = 1 }
    print "| " name " |" row
    head = rule = row = ""
  }
  FNR == 1 { flush_row(); processor = ""; axis = "" }
  /^\| processor \|/ { split($0, cell, " \\| "); processor = cell[2]; sub(/ \|$/, "", processor) }
  /^\$ bench\/modes\.sh/ { flush_row(); name = processor " | " $NF " | " $(NF - 1) }
  /^## parallel\./ { axis = substr($0, 4); gsub(/parallel\./, "", axis); gsub(/=/, " ", axis); gsub(/ zero/, ", ZeRO", axis)
                     if (axis == "dp 1") axis = "one rank, 2 threads" }
  /^\| reproducible \|/ && axis != "" { split($0, cell, "|"); head = head " " axis " |"; rule = rule " --- |"
                                        row = row sprintf(" %+.1f %% |", 100 * (cell[6] - 1)); axis = "" }
  END { if (!failed) flush_row()
        if (first == "") { print "price_table: no output of bench/modes.sh in the files" > "/dev/stderr"; failed = 1 }
        exit failed }' "$@"
