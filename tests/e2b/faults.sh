#!/usr/bin/env bash
# The client's promises under faults: courier-sandboxd, the proxy that breaks
# things in front of it, and tests/e2b/faults.c.
#   BIN=build tests/e2b/faults.sh [SEED [ROUNDS]]
set -u
cd "$(dirname "$0")/../.." || exit 1
BIN=${BIN:-build}
SEED=${1:-1}
ROUNDS=${2:-20}
for need in python3 bwrap "$BIN/courier-sandboxd"; do
    if ! command -v "$need" >/dev/null; then
        echo "skipped: no $need"
        echo "0 passed, 0 failed"
        exit 0
    fi
done
dir=$(mktemp -d /var/tmp/courier-faults-XXXXXX)
proxy=
finish() {
    [ -n "$proxy" ] && kill "$proxy" 2>/dev/null
    pid=$(sed -n 's/.*"pid": *\([0-9]*\).*/\1/p' "$dir/data/host.json" \
        2>/dev/null)
    if [ -n "$pid" ]; then
        kill "$pid"
        for _ in $(seq 50); do
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.1
        done
    fi
    rm -rf "$dir"
}
trap finish EXIT
trap 'exit 1' INT TERM

${CC:-gcc} -std=gnu17 -O1 -g -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 \
    '-DCOURIER_VERSION="test"' -Ibackend -pthread ${SAN:-} \
    -o "$dir/faults" tests/e2b/faults.c backend/e2b/*.c backend/base/*.c \
    -lcurl -ljansson -lm || exit 1
"$BIN/courier-sandboxd" --data "$dir/data" --idle 60 || exit 1
port=$(sed -n 's/.*"port": *\([0-9]*\).*/\1/p' "$dir/data/host.json")
python3 tests/e2b/proxy.py --to "127.0.0.1:$port" --log "$dir/log" \
    >"$dir/port" &
proxy=$!
for _ in $(seq 50); do
    [ -s "$dir/port" ] && break
    sleep 0.1
done
read -r _ pport <"$dir/port"
timeout 600 "$dir/faults" "$dir/data" "http://127.0.0.1:$pport" "$SEED" \
    "$ROUNDS"
