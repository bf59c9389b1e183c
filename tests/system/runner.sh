#!/bin/bash
# tests/run itself: however it is ended, nothing of what it began is left: no
# process, no mount, no directory; also of a suite that doesn't end by itself,
# and of the pass as another user. And what it says of suites that fail.
# shellcheck disable=SC2016
. "$(dirname "$0")/../lib.sh"

# a tree of its own, with suites that say where they are
mkdir -p "$T/tree/tests/system" "$T/tree/build/unit"
chmod 755 "$T" "$T/tree"
cp "$HERE/run" "$HERE/lib.sh" "$HERE/sweep.bash" "$T/tree/tests/"
cp "$BIN/courierfs" "$BIN/courier-sandboxd" "$T/tree/build/"
mkdir -m 1777 "$T/where"
suite() { # NAME: its text on stdin
    printf '#!/bin/bash\n. "$(dirname "$0")/../lib.sh"\n%s\n' "$(cat)" \
        >"$T/tree/tests/system/$1.sh"
    chmod +x "$T/tree/tests/system/$1.sh"
}
# it has a daemon, a sandbox, a helper, and waits in the mount
suite stands <<END
echo "\$T" >"$T/where/\$PPID"
start
mk one
python3 -c 'import time; time.sleep(600)' "\$T/" &
python3 -c 'import time; time.sleep(600)' unnamed &
touch "$T/where/\$PPID.up"
wait_for one ended 600
END
# hears no signal, and has stopped its daemon
suite deaf <<END
trap '' TERM INT HUP
echo "\$T" >"$T/where/\$PPID"
start
kill -STOP "\$(pid)"
touch "$T/where/\$PPID.up"
while :; do sleep 1; done
END
suite good <<<'ok; ok'
suite poor <<<'ok; is it no yes'
suite early <<<'ok; exit 3'

out=$(COURIER_RUN='' BIN=$T/tree/build "$T/tree/tests/run" --as "$([ "$root" ] && echo root || echo user)" \
    good poor early 2>&1)
is 'a suite that fails: a status' $? 1
is 'the sum' "$(tail -n 1 <<<"$out")" '4 passed, 2 failed'
like 'why' "$out" "FAILED: it: got 'no'"
like 'one that ends early' "$out" 'ended early .exit 3'
unlike 'nothing of the shell itself' "$out" 'line [0-9]+:.*(Killed|Terminated)'

up() { [ "$(ls "$T/where" | grep -c 'up$')" = "$1" ]; }
# begin N COMMAND...: in the background, its pid in $p, until N suites stand
begin() {
    local n=$1
    shift
    rm -f "$T/where"/*
    # with the signals of a shell's own command
    COURIER_RUN='' BIN=$T/tree/build python3 -c '
import os, signal, sys
for s in signal.SIGINT, signal.SIGQUIT: signal.signal(s, signal.SIG_DFL)
os.setpgrp()
os.execvp(sys.argv[1], sys.argv[1:])' "$@" >"$T/said" 2>&1 &
    p=$!
    yes "$n stand" soon 60 up "$n"
    ran=$(cat "$T/where"/*[0-9])
}
gone() { ! kill -0 "$p"; }
clean() {
    local t
    ! pgrep -f 'sleep.600. unnamed' >/dev/null || return 1
    for t in $ran "$T/tree" ${copy:-}; do
        ! pgrep -f "$t/" >/dev/null && ! grep -q " $t" /proc/mounts || return 1
        [ "$t" = "$T/tree" ] || [ ! -e "$t" ] || return 1
    done
}
ended() { # WHAT SECONDS
    yes "$1: it ends" soon "$2" gone
    yes "$1: nothing is left" soon "${3:-1}" clean
}
as=$([ "$root" ] && echo root || echo user)
run=("$T/tree/tests/run" --as "$as")

# each pass takes some of the ways, as they take long and wait most of it
if [ "$root" ]; then
    begin 2 "${run[@]}" stands deaf
    kill -TERM "$p"
    ended 'TERM, with one that is deaf' 60
    begin 1 "${run[@]}" stands
    kill -9 "$p"
    ended 'kill -9' 5 60
else
    begin 1 "${run[@]}" stands
    kill -INT "$p"
    ended INT 30
    begin 1 "${run[@]}" stands
    kill -HUP "-$p"
    ended 'HUP to all of the group' 30
    begin 1 timeout -k 1 20 "${run[@]}" stands
    ended "its parent's timeout" 60 60
fi

# the other user's
if [ "$root" ]; then
    modes=$(stat -c %a /dev/fuse /dev/net/tun 2>&1)
    for how in TERM KILL; do
        begin 1 "$T/tree/tests/run" --as user stands
        copy=$(ls -td /var/tmp/courier-copy.* | head -n 1)
        kill -$how "$p"
        ended "as a user, $how" 60 60
        is "as a user, $how: the devices" \
            "$(stat -c %a /dev/fuse /dev/net/tun 2>&1)" "$modes"
    done
fi
