#!/bin/bash
# price_table.sh FILE -- docs/numerics.md's table of the price of reproducible mode, from what bench/modes.sh printed into FILE.
set -euo pipefail
awk '
  /^## parallel\./ { axis = substr($0, 4); gsub(/parallel\./, "", axis); gsub(/=/, " ", axis); gsub(/ zero/, ", ZeRO", axis)
                     if (axis == "dp 1") axis = "one rank, 2 threads" }
  /^\| reproducible \|/ && axis != "" { split($0, cell, "|"); head = head " " axis " |"; rule = rule " --- |"
                                        row = row sprintf(" %+.1f %% |", 100 * (cell[6] - 1)); axis = "" }
  END { print "|" head; print "|" rule; print "|" row }' "$1"
