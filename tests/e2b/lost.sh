#!/bin/bash
# Connections to the provider whose packets vanish without a word, while new
# ones work: known within ten seconds. An answer that takes its time isn't cut.
# In a network of its own, which root alone can have with a mount in it.
if [ "$(id -u)" != 0 ] || ! unshare -n ip rule add ipproto tcp sport 1 \
    blackhole 2>/dev/null; then
    echo 'skipped: no network of its own, or no ip rule by port'
    echo '0 passed, 0 failed'
    exit 0
fi
[ -n "${LOST_NET:-}" ] || LOST_NET=1 exec unshare -n "$0"
. "$(dirname "$0")/../lib.sh"
ip link set lo up
# the kernel's own table comes behind ours
ip rule add pref 100 lookup local
ip rule del pref 0
"$BIN/courier-sandboxd" --data "$T/host" --idle 600 >/dev/null || exit 1
export E2B_API_KEY E2B_API_URL E2B_SANDBOX_URL
E2B_API_KEY=$(jq -r .key "$T/host/host.json")
E2B_API_URL=$(jq -r .url "$T/host/host.json") E2B_SANDBOX_URL=$E2B_API_URL
start --backend e2b
mk one network=off
mk two network=off
echo hello >"$S/one/files/x"

# from now on, nothing comes through on the connections that there are
lose() {
    local p
    for p in $(ss -Htn state established "dport = :${E2B_API_URL##*:}" |
        awk '{ sub(/.*:/, "", $3); print $3 }' | sort -u); do
        ip rule add pref 1 ipproto tcp sport "$p" blackhole 2>/dev/null
    done
}
within() { # WHAT SECONDS SINCE
    local n=$((EPOCHSECONDS - $3))
    echo "# $1: $n s"
    yes "$1 within $2 s ($n)" test "$n" -le "$2"
}
sleep 1.5
lose
t=$EPOCHSECONDS
is 'a file' "$(timeout 60 cat "$S/one/files/x")" hello
within 'a file' 12 "$t"
lose
t=$EPOCHSECONDS
echo pause >"$S/two/ctl"
is 'a pause' "$(timeout 90 cat "$S/two/wait/paused")" paused
within 'a pause' 12 "$t"

# a host that is there, but takes longer than that
host=$(jq -r .pid "$T/host/host.json")
t=$EPOCHSECONDS
kill -STOP "$host"
(sleep 12 && kill -CONT "$host") &
echo pause >"$S/one/ctl"
is 'a slow answer' "$(timeout 60 cat "$S/one/wait/paused")" paused
yes 'was waited for' test $((EPOCHSECONDS - t)) -ge 11
is 'no job failed' "$(cat "$M/errors")" ''
