#!/bin/bash
# Turns that fork as fast as they can, or hide from who ends them: `interrupt`
# and `turn_timeout` end all that the turn started, within seconds, and nothing
# else. BOMBS: which kinds (shell, hidden, spin, wide).
# shellcheck disable=SC2016
. "$(dirname "$0")/../lib.sh"
BOMBS=${BOMBS:-shell hidden}

# each prints "armed" and does not end by itself
bomb_shell='echo armed; bash -c ":(){ :|:& };:" 2>/dev/null; sleep 77'
# as fast as a machine can, deaf to everything
bomb_spin='exec python3 -c "
import os, signal
for s in range(1, 32):
    if s not in (9, 17, 19): signal.signal(s, signal.SIG_IGN)
print(\"armed\", flush=True)
while True:
    try: os.fork()
    except OSError: pass
"'
# each one a session of its own, without a parent, without an environment, and
# gone before it can be looked at
bomb_hidden='cat >hop.py <<"END"
import os, signal, sys, time
for s in range(1, 32):
    if s not in (9, 19): signal.signal(s, signal.SIG_IGN)
def hop():
    while True:
        try:
            if os.fork(): os._exit(0)
            os.setsid()
        except OSError:
            time.sleep(0.01)
for i in range(8):
    if os.fork() == 0: hop()
print("armed", flush=True)
time.sleep(77)
END
exec env -i python3 hop.py'
# many live at once, each a new session
bomb_wide='cat >wide.py <<"END"
import os, time
print("armed", flush=True)
while True:
    try:
        if os.fork() == 0: os.setsid()
    except OSError: time.sleep(0.05)
END
env -i python3 wide.py & wait; sleep 77'

start --backend local
# what of a box runs on the host, by its directory in the mount table
procs() {
    local id p
    id=$(jq -r .provider_id "$S/$1/info.json")
    for p in /proc/[0-9]*; do
        grep -qs "boxes/$id" "$p/mountinfo" && echo "${p#/proc/}"
    done
}
ms() { echo $((${EPOCHREALTIME/./} / 1000)); }
# without a control group the host's own threads stand in line with all of it
[ "$root" ] && fast=5000 || fast=25000
within() { # WHAT MS SINCE
    local n=$(($(ms) - $3))
    echo "# $1: $n ms"
    if [ "$n" -le "$2" ]; then ok; else bad "$1 took $n ms"; fi
}

# their limit is one process for each MiB: the machine may have others on it
mk calm memory=256
mk boom memory=256 cpu=1 turn_timeout=15s
is 'a server' "$(ask boom 'setsid python3 -m http.server 8123 >/dev/null 2>&1 &
sleep 4242 & env -i setsid sleep 4243 &
for i in $(seq 50); do
    curl -s -o /dev/null 127.0.0.1:8123 && break; sleep 0.1
done')" completed
quiet=$(procs boom | wc -l)

# it is sent, and has begun
send() { # KIND
    local text=bomb_$1 n
    n=$(wc -c <"$S/boom/log")
    is "$1: sent" "$(wr "$S/boom/message" "${!text}")" OK
    armed() { tail -c +$((n + 1)) "$S/boom/log" | grep -q armed; }
    yes "$1: armed" soon 5 armed
}
# what must be so after each: the turn gone with all of it, the rest as before
after() { # WHAT SINCE WORDS
    is "$1: the turn has ended" "$(wait_for boom done 40)" failed
    within "$1: it" "$fast" "$2"
    is "$1: agent" "$(cat "$S/boom/agent")" idle
    like "$1: in words" "$(grep '#[0-9]* error' "$S/boom/messages" | tail -n 1)" "$3"
    is "$1: nothing of it runs" "$(procs boom | wc -l)" "$quiet"
    is "$1: the next turn, and the server of an earlier one" \
        "$(ask boom 'curl -s -o /dev/null -w "%{http_code}\n" 127.0.0.1:8123/
pgrep -c -x sleep')" completed
    is "$1: what they say" "$(tail -n 2 "$S/boom/log" | paste -sd' ')" '200 2'
}
for kind in $BOMBS; do
    send "$kind"
    sleep 1
    echo "# $kind: $(procs boom | wc -l) processes"
    a=$(ms)
    is "$kind: another sandbox works meanwhile" "$(ask calm 'echo fine')" completed
    within "$kind: that" $((fast * 3 / 5)) "$a"
    a=$(ms)
    is "$kind: interrupt" "$(wr "$S/boom/ctl" 'interrupt
')" OK
    after "$kind" "$a" 'interrupted by user$'
done
a=$(($(ms) + 15000))
send shell
after 'at its time limit' "$a" 'turn_timeout 15s reached$'
echo 'kill now' >"$S/boom/ctl"
is 'it is killed' "$(wait_for boom ended 20)" killed
no 'no process is left' test -n "$(procs boom)"
