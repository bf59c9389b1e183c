#!/bin/bash
# The crash suite at length: 1,000 kills (ROUNDS), in series of 50 with a seed
# each, so that one that fails can be run again by itself:
#   ROUNDS=50 SEED=n FIGURES=1 tests/system/crash.sh
# Then 10,000 rounds of drafts made, read and removed, with an eye on the
# daemon's descriptors, threads and memory. Prints figures for docs.
set -u
cd "$(dirname "$0")/../.." || exit 2
BIN=$(cd "${BIN:-build}" && pwd) || exit 2
export BIN
ROUNDS=${ROUNDS:-1000} first=${SEED:-1} each=50 passed=0 failed=0
began=$SECONDS
log=$(mktemp) || exit 2
trap 'rm -f "$log"' EXIT

for ((k = 0; k * each < ROUNDS; k++)); do
    n=$((ROUNDS - k * each < each ? ROUNDS - k * each : each))
    SEED=$((first + k)) ROUNDS=$n FIGURES=1 timeout 1800 tests/system/crash.sh >"$log" 2>&1
    rc=$?
    read -r p _ f _ < <(tail -n 1 "$log")
    passed=$((passed + ${p:-0}))
    failed=$((failed + ${f:-1}))
    if [ $rc != 0 ]; then
        echo "--- seed $((first + k)):"
        cat "$log"
    fi
    grep '^figure' "$log" | sed "s/^figure/seed $((first + k)):/"
done
echo "crashes: $((SECONDS - began)) s"

timeout 3000 tests/soak/drafts.sh "${DRAFTS:-10000}" >"$log" 2>&1
rc=$?
cat "$log"
read -r p _ f _ < <(tail -n 1 "$log")
passed=$((passed + ${p:-0}))
failed=$((failed + ${f:-1}))
[ $rc = 0 ] || [ "${f:-1}" != 0 ] || failed=$((failed + 1))
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
