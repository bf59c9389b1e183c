#!/bin/bash
# inotify for changes that come from below; and that nothing hangs for it: an
# unmount or a kill of the daemon under load leaves no process behind.
. "$(dirname "$0")/../lib.sh"

is_told() { grep -qE "$1" "$T/in" "$T/in2" 2>/dev/null; }

start
mk one
S1=$S/one
like "told in status" "$(val "$M/status" inotify)" '^yes'

# ---- watchers ----

cat "$S1/status" "$S1/agent" "$S1/messages" "$S1/log" "$M/board" "$S1/events" >/dev/null
inotifywait -mq -e modify --format '%w' "$S1/status" "$S1/agent" "$S1/messages" "$S1/log" \
    "$M/board" "$S1/events" >"$T/in" 2>/dev/null &
iw=$!
inotifywait -mq -e modify --format 'dir %f' "$S1" >"$T/in2" 2>/dev/null &
iw2=$!
for f in agent messages; do
    ls "$S1/$f" | entr -np sh -c "echo fired >>'$T/entr.$f'" >/dev/null 2>&1 &
    echo $! >>"$T/entrs"
done
ls "$M/board" | entr -np sh -c "echo fired >>'$T/entr.board'" >/dev/null 2>&1 &
echo $! >>"$T/entrs"
sleep 1
is "nothing yet" "$(cat "$T/in")" ""
ask one 'echo hello' >/dev/null
for f in agent messages log events; do
    yes "inotifywait sees $f" soon 5 is_told "one/$f"
    yes "a watch of the directory, too" soon 5 is_told "dir $f"
done
for f in agent messages; do yes "entr sees $f" soon 5 test -s "$T/entr.$f"; done
unlike "status has not changed" "$(cat "$T/in")" one/status
echo pause >"$S1/ctl"
wait_for one paused >/dev/null
yes "inotifywait sees status" soon 5 is_told one/status
yes "inotifywait sees board" soon 5 is_told mnt/board
yes "entr sees board" soon 5 test -s "$T/entr.board"
echo resume >"$S1/ctl"
wait_for one running >/dev/null

# from a line printed in the VM to the watcher
: >"$T/in"
printf 'until [ -e go ]; do sleep 0.02; done; echo now; sleep 2' >"$S1/message"
soon 10 grep -q working "$S1/agent"
sleep 1
: >"$T/in"
t=${EPOCHREALTIME/./}
echo >"$S1/files/go"
soon 10 is_told one/log
t=$(((${EPOCHREALTIME/./} - t) / 1000))
if [ $t -lt 1500 ]; then ok; else bad "a line took $t ms to the watcher"; fi
wait_for one idle >/dev/null

# a stream that grows fast is told of at a measured pace
: >"$T/in"
t=${EPOCHREALTIME/./}
ask one 'for i in $(seq 300); do echo $i; sleep 0.01; done' >/dev/null
sleep 0.3
t=$(((${EPOCHREALTIME/./} - t) / 1000))
n=$(grep -c one/log "$T/in")
if [ "$n" -ge 3 ] && [ $((n * 1000)) -le $((40 * t)) ]; then
    ok
else
    bad "$n events in $t ms"
fi
# what a touch is not: a change of the file
a=$(stat -c '%s %y' "$S1/reason")
sleep 0.3
is "a touch changes no time" "$(stat -c '%s %y' "$S1/reason")" "$a"
kill $iw $iw2
xargs -r kill <"$T/entrs"

# ---- an unmount under load is quick ----

load() { # until the mount goes
    local i
    for i in 1 2; do
        (while [ -e "$T/load" ]; do
            cat "$M"/status "$M"/board "$S"/*/messages "$S"/*/status
            ls -lR "$M" | head -n 400
        done >/dev/null 2>&1) &
        (while [ -e "$T/load" ]; do
            mkdir "$S/d$i.$RANDOM"
            echo "A=$RANDOM" >"$P/env"
            echo "echo $RANDOM" >"$S1/message"
        done >/dev/null 2>&1) &
    done
    (while [ -e "$T/load" ]; do
        timeout 5 cat "$S1/wait/change" "$S1/follow/log" >/dev/null 2>&1
    done) &
    # watchers keep every file one that was looked at
    timeout 60 inotifywait -mqr "$P" >/dev/null 2>&1 &
    timeout 60 tail -f "$S1/messages" "$S1/events" >/dev/null 2>&1 &
}
unload() {
    local p
    rm -f "$T/load"
    for p in $(jobs -p); do kill "$p" 2>/dev/null; done
    wait
}
alive() { # which of $children
    local c
    for c in $children; do
        grep -qs courier-touch "/proc/$c/comm" && echo "$c"
    done
}
# processes of this test that wait in the kernel for a mount that is gone
hung() {
    local p s n=0
    for p in $(pgrep -f "$T/"; pgrep -x courier-touch); do
        s=$(awk '{ print $3 }' "/proc/$p/stat" 2>/dev/null)
        [ "$s" = D ] && n=$((n + 1))
    done
    echo $n
}
calm() { [ "$(hung)" = 0 ]; }
: >"$T/load"
load
sleep 2
p=$(pid)
children=$(pgrep -P "$p")
yes "there is a helper" pgrep -P "$p" -x courier-touch
t=${EPOCHREALTIME/./}
kill "$p"
soon 15 sh -c "! kill -0 $p"
t=$(((${EPOCHREALTIME/./} - t) / 1000))
unload
if [ $t -lt 5000 ]; then ok; else bad "the end under load took $t ms"; fi
no "unmounted" mountpoint -q "$M"
is "its helper is gone" "$(alive)" ""

# ---- kill -9 under load, again and again ----

rounds=${ROUNDS:-8} slow=0
for i in $(seq "$rounds"); do
    if ! mount_; then
        bad "round $i: does not start again: $(cat "$T/start")"
        break
    fi
    p=$(pid)
    : >"$T/load"
    load
    sleep 0.$((RANDOM % 9 + 1))
    children=$(pgrep -P "$p" -x courier-touch)
    t=${EPOCHREALTIME/./}
    kill -9 "$p"
    soon 10 sh -c "! kill -0 $p" || bad "round $i: the daemon can't be killed"
    t=$(((${EPOCHREALTIME/./} - t) / 1000))
    [ $t -gt 3000 ] && slow=$((slow + 1))
    unload
    soon 5 calm || bad "round $i: $(hung) processes hang"
    soon 3 eval '[ -z "$(alive)" ]' || bad "round $i: the daemon's helper lives"
done
is "$rounds times killed; slow ones" $slow 0

# ---- off ----

mount_ -o noinotify || bad "no start without inotify: $(cat "$T/start")"
like "told in status, too" "$(val "$M/status" inotify)" '^no'
mk two
cat "$S/two/agent" "$S/two/log" >/dev/null
timeout 20 inotifywait -mq -e modify --format '%w' "$S/two/agent" "$S/two/log" >"$T/in" 2>/dev/null &
iw=$!
sleep 1
ask two 'echo again' >/dev/null
sleep 0.5
is "nothing is told" "$(cat "$T/in")" ""
kill $iw 2>/dev/null || :
