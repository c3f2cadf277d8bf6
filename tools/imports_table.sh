#!/bin/bash
# imports_table.sh -- the rows of src/config/imports.def as a table, for docs/from-other-tools.md.
set -euo pipefail
echo '| of | there | here |'
echo '| --- | --- | --- |'
awk -F'"' '
  /^TOOL\(/ { split($1, a, /[(,]/); name[a[2]] = $2; next }
  !/^(SAME|READ|GIVES|ELEMS|PART|PART_AT|NOT|NOT_AT|REFUSED|ABSENT)\(/ { next }
  {
    split($0, a, /[(,]/)
    there = "`" $2 "`"
    if (a[1] == "GIVES") { there = "`" $2 ": " $4 "`"; here = $6 "=" $8 }
    else if (a[1] == "READ") { there = "`" $2 ($4 != "" ? ": " $4 : "") "`"; here = $6 ($8 != "" ? "=" $8 : "") ", read only" }
    else if (a[1] == "PART_AT") { there = "`" $2 ": " $4 "`"; here = $6 }
    else if (a[1] == "NOT_AT") { there = "`" $2 ": " $4 "`"; here = "not used: " $6 }
    else if (a[1] == "NOT") here = "not used: " $4
    else if (a[1] == "REFUSED") { there = "`" $2 ($4 != "" ? ": " $4 : "") "`" ($4 != "" ? "" : ", other values"); here = "refused: " $6 }
    else if (a[1] == "ABSENT") { there = "without `" $2 "`" ($6 != "" ? ", with `" $6 "`" : ""); here = "as `" $2 ": " $4 "`" }
    else if (a[1] == "ELEMS") here = $4 ", from elements of 4 bytes"
    else here = $4
    print "| " name[a[2]] " | " there " | " here " |"
  }' src/config/imports.def
