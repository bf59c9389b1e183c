#!/bin/bash
# The official E2B SDK and CLI, unchanged, against courier-sandboxd.
# BIN is the build directory. The last line is "N passed, N failed".
set -u
here=$(cd "$(dirname "$0")" && pwd)
bin=${BIN:-$here/../../build}
cache=${COURIER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/courier-tests}/peers

skip() {
    echo "skipped: $1"
    echo "0 passed, 0 failed"
    exit 0
}

command -v node >/dev/null || skip "node is not installed"
command -v npm >/dev/null || skip "npm is not installed"
[ -x "$bin/courier-sandboxd" ] || skip "$bin/courier-sandboxd is not built"

mkdir -p "$cache" || skip "no directory for the packages"
if ! cmp -s "$here/package.json" "$cache/.installed"; then
    cp "$here/package.json" "$cache/package.json"
    (cd "$cache" && timeout 150 npm install --no-fund --no-audit \
        --loglevel=error) || skip "the packages can't be installed"
    cp "$here/package.json" "$cache/.installed"
fi

dir=$(mktemp -d)
cleanup() {
    [ -f "$dir/host/host.json" ] &&
        kill "$(sed -n 's/.*"pid": *\([0-9]*\).*/\1/p' "$dir/host/host.json" |
            head -1)" 2>/dev/null
    for _ in $(seq 50); do
        [ -e "$dir/host/host.json" ] || break
        sleep 0.1
    done
    rm -rf "$dir"
}
trap cleanup EXIT

"$bin/courier-sandboxd" --data "$dir/host" >"$dir/log" 2>&1 || {
    cat "$dir/log"
    echo "bad: courier-sandboxd does not start"
    echo "0 passed, 1 failed"
    exit 1
}
# the packages are found by the place of the program that wants them
cp "$here/peers.mjs" "$dir/peers.mjs"
ln -s "$cache/node_modules" "$dir/node_modules"
HOME=$dir timeout 170 node "$dir/peers.mjs" "$dir/host/host.json" "$@"
