#!/bin/bash
# Is the stand-in for GitHub like GitHub, and are courier's requests such as
# GitHub takes? What the forge test and the stand-in say to each other is
# checked against GitHub's own OpenAPI description (npm @octokit/openapi).
# BIN: where the unit tests are built (default build).
set -u
here=$(cd "$(dirname "$0")" && pwd)
bin=${BIN:-build}
cache=${COURIER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/courier-tests}/openapi
description=node_modules/@octokit/openapi/generated/api.github.com.json
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

skip() {
    echo "skipped: $*"
    echo "0 passed, 0 failed"
    exit 0
}

[ -x "$bin/unit/forge_test" ] || skip "$bin/unit/forge_test is not built"
if [ ! -s "$cache/api.json" ]; then
    command -v npm >/dev/null || skip "there is no npm"
    mkdir -p "$cache"
    (cd "$tmp" && timeout 120 npm install --silent --no-audit --no-fund --prefix . \
        --fetch-retries=0 @octokit/openapi@23 >/dev/null 2>&1) || skip "npm can't install"
    mv "$tmp/$description" "$cache/api.json" || skip "no description"
fi
cd "$here/../.." || exit 1
GITHUB_RECORD=$tmp/record "$bin/unit/forge_test" >"$tmp/log" 2>&1 || {
    cat "$tmp/log"
    echo "0 passed, 1 failed"
    exit 1
}
python3 "$here/openapi.py" "$cache/api.json" "$tmp/record"
