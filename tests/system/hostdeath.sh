#!/bin/bash
# kill -9 of courier-sandboxd: its sandboxes end as error in words, history
# intact, new ones at once; sandboxes killed while they are still made leave
# nothing; the host ends by itself when it is asked to.
cd "$(dirname "$0")/../.." && . tests/lib.sh || exit 2
start
host() { pgrep -f "courier-sandboxd .*$T/" | head -n 1; }
boxes() { pgrep -f "bwrap .*$T/" | wc -l; }
none() { [ "$(boxes)" = 0 ]; }
mk a
mk b
is "a turn" "$(ask a 'echo said-$((1+1))')" completed
wr "$S/b/ctl" $'pause\n' >/dev/null
is "b is paused" "$(wait_for b paused)" paused
wr "$S/a/message" 'echo going-$((1+1)); sleep 600' >/dev/null
yes "a works" soon 20 grep -q '^going-2' "$S/a/messages"
wr "$S/a/message" 'echo waiting' >/dev/null
(timeout 60 cat "$S/a/follow/messages" >"$T/follow") &
kill -9 "$(host)"
is "a ends" "$(wait_for a ended 90)" error
like "in words" "$(cat "$S/a/reason")" '[a-z]+ .*(host|gone|sandboxd)'
is "b ends, too" "$(wait_for b ended 90)" error
like "history is intact" "$(cat "$S/a/messages")" '^said-2'
like "what it did is told" "$(cat "$S/a/messages")" '^going-2'
like "the turn ends in words" "$(cat "$S/a/messages")" '^── .* #[0-9]+ error  '
like "the queued one, too" "$(tail -n 2 "$S/a/messages")" 'not delivered: sandbox ended'
is "active" "$(val "$P/status" active)" 0
wait
yes "a follower has all of it" cmp "$T/follow" "$S/a/messages"
yes "nothing of them runs" soon 20 none
t=$SECONDS
mk c
is "a new one at once" "$(cat "$S/c/status")" running
yes "in seconds ($((SECONDS - t)))" test $((SECONDS - t)) -lt 20
is "works" "$(ask c 'echo new-$((1+1))')" completed
yes "local.env is right" grep -q E2B_API_URL "$M/local.env"
is "delete" "$(wr "$S/a/ctl" $'delete\n')" OK

### killed while they are being made
L=9999$RANDOM
for i in $(seq 20); do
    wr "$S/ctl" "create name=k$i tool=shell prompt='sleep $L'"$'\n' >/dev/null
    sleep "0.0$((i % 10))"
    wr "$S/k$i/ctl" $'kill now\n' >/dev/null
done
for i in $(seq 20); do wait_for k$i ended >/dev/null; done
is "all are killed" "$(cat "$S"/k*/status | sort | uniq -c | xargs)" "20 killed"
one_left() { [ "$(boxes)" -le 2 ]; }
yes "no process is left" soon 20 one_left
no "nor what they ran" pgrep -f "sleep $L"
is "nor a mount" "$(grep -c "$D" /proc/mounts)" "$(grep -c "$D" /proc/mounts | sed 's/[3-9]/2/')"

### the host killed while sandboxes are made
for i in 1 2 3; do
    wr "$S/ctl" "create name=j$i tool=shell"$'\n' >/dev/null
    sleep 0.0$i
    h=$(host)
    [ -n "$h" ] && kill -9 "$h"
done
settled() { ! cat "$S"/j*/status | grep -q creating; }
yes "each is decided" soon 90 settled
truth() {
    local n s
    for n in j1 j2 j3; do
        s=$(cat "$S/$n/status")
        case $s in running) ask $n true >/dev/null || return 1 ;; error) ;; *) return 1 ;; esac
    done
}
yes "each record tells the truth" soon 90 truth
yes "c is told as gone" soon 90 grep -q error "$S/c/status"

### it ends with what it has when told to; the daemon's end leaves it
mk z
wr "$M/ctl" $'shutdown\n' >/dev/null
unmounted() { ! mountpoint -q "$M"; }
yes "the daemon ends" soon 20 unmounted
yes "the host stays" test -n "$(host)"
h=$(host)
yes "starts" mount_
is "z goes on" "$(ask z 'echo still-$((1+1))')" completed
is "the same host" "$(host)" "$h"
is "shutdown all" "$(wr "$M/ctl" $'shutdown all\n')" OK
yes "the daemon ends" soon 60 unmounted
yes "no sandbox is left" soon 20 none
yes "starts" mount_
is "z is killed" "$(cat "$S/z/status")" killed
is "by shutdown" "$(cut -d' ' -f1 "$S/z/reason" | tr -d ';')" shutdown
