#!/bin/bash
# kill -9 of courierfs at seeded random moments while three sandboxes work
# and others come and go. What was accepted is done, once; every byte of
# output is there, once, in order; the counts are true; no VM is unowned.
# ROUNDS and SEED choose how long and which moments; FIGURES prints them.
cd "$(dirname "$0")/../.." && . tests/lib.sh || exit 2

start
for n in w1 w2 w3; do mk $n; done
python3 tests/system/crash.py "$BIN/courierfs" "$D" "$M" \
    "${ROUNDS:-20}" "${SEED:-7}" >"$T/crash" 2>&1
is "the rounds ran" $? 0
while read -r verdict what; do
    case $verdict in
    ok) ok ;;
    bad) bad "$what" ;;
    figure) if [ -n "${FIGURES:-}" ]; then echo "figure $what"; fi ;;
    *) echo "$verdict $what" ;;
    esac
done <"$T/crash"
