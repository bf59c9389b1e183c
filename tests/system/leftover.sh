#!/bin/bash
# What an earlier turn left running goes on, unless it stands in the way: then
# the next message, or exec, ends as much of it as it must, and errors says so.
# shellcheck disable=SC2016
. "$(dirname "$0")/../lib.sh"

start --backend local
mk one memory=256 cpu=1
mk other memory=256 cpu=1
# how many of a command run inside
count() { ask "$1" "pgrep -c -x '$2'" >/dev/null; tail -n 1 "$S/$1/log"; }
errors() { grep -c 'no room' "$M/errors"; }
# as much as a turn may have at once, each a process of its own that waits
hold='cat >hold.py <<"END"
import os, time
for i in range(300):
    try:
        if os.fork() == 0: os.setsid(); time.sleep(4242); os._exit(0)
    except OSError: break
END
'
fill=$hold'python3 hold.py >/dev/null 2>&1; echo filled'
threads='cat >many.py <<"END"
import threading, time
try:
    for i in range(300): threading.Thread(target=time.sleep, args=(4242,)).start()
except RuntimeError: pass
print("filled", flush=True)
time.sleep(4242)
END
setsid python3 many.py >many.out 2>&1 & until grep -q filled many.out; do :; done'
# it forks on and on after its turn has ended
bomb='cat >hop.py <<"END"
import os, time
os.setsid()
while True:
    try:
        if os.fork() == 0: os.setsid()
    except OSError: open("full", "w").close(); time.sleep(0.05)
END
rm -f full; env -i python3 hop.py >/dev/null 2>&1 &
until [ -e full ]; do :; done; echo filled'
orphans=$hold'env -i python3 hold.py >/dev/null 2>&1; echo filled'

is 'a server' "$(ask one 'setsid python3 -m http.server 8123 >/dev/null 2>&1 &
for i in $(seq 50); do curl -s -o /dev/null 127.0.0.1:8123 && break; sleep 0.1
done; echo "$COURIER_PROCESS" >server')" completed
is 'others that wait' "$(ask one 'sleep 777 & sleep 777 & env -i setsid sleep 777 & :')" completed
is 'they are left alone' "$(count one sleep)" 3
is 'without a word' "$(errors)" 0

n=0
for text in "$fill" "$threads" "$bomb" "$orphans"; do
    n=$((n + 1)) kind=$(cut -d' ' -f$n <<<'fill threads bomb orphans')
    is "$kind: a turn that leaves what it may" "$(ask one "$text")" completed
    a=${EPOCHREALTIME/./}
    is "$kind: the next one" "$(ask one 'for i in 1 2 3 4 5 6 7 8; do sleep 1 & done; wait; echo went')" completed
    a=$(((${EPOCHREALTIME/./} - a) / 1000))
    echo "# $kind: $a ms"
    if [ $a -le 12000 ]; then ok; else bad "$kind: $a ms"; fi
    is "$kind: it did" "$(tail -n 1 "$S/one/log")" went
    like "$kind: errors has it" "$(tail -n 1 "$M/errors")" \
        'web/sandboxes/one.*[0-9]+ processes .*ended.* no room'
    is "$kind: each once" "$(errors)" $n
    is "$kind: the server of an earlier turn" \
        "$(ask one 'curl -s -o /dev/null -w "%{http_code}\n" 127.0.0.1:8123/')" completed
    is "$kind: it answers" "$(tail -n 1 "$S/one/log")" 200
    is "$kind: what waited before" "$(count one sleep)" 3
done
like 'with the number of the message' "$(cat "$M/errors")" 'that message #[0-9]+ left'

# ---- an exec in its place, and what an exec left ----

ended() { timeout 60 cat "$S/one/exec/last/wait/exited" >/dev/null && cat "$S/one/exec/last/exit"; }

ask one "$hold:" >/dev/null
is 'an exec that leaves what it may' "$(wr "$S/one/ctl" 'exec python3 hold.py
')" OK
is 'it ends' "$(ended)" 0
is 'an exec after it' "$(wr "$S/one/ctl" 'exec sleep 0.1 & sleep 0.1 & wait; echo went
')" OK
is 'it ends, too' "$(ended)" 0
is 'it did' "$(cat "$S/one/exec/last/stdout")" went
like 'errors names the exec' "$(tail -n 1 "$M/errors")" 'that exec/[0-9]+ left'

# ---- memory ----

ask one 'setsid python3 -c "
import time
x = bytearray(b\"x\") * (190 << 20)
open(\"full\", \"w\").close()
time.sleep(4242)" >/dev/null 2>&1 & until [ -e full ]; do sleep 0.1; done' >/dev/null
is 'where memory is taken, the next one' \
    "$(ask one 'python3 -c "x = bytearray(b\"x\") * (100 << 20); print(\"went\")"')" completed
is 'it has it' "$(tail -n 1 "$S/one/log")" went
is 'the sandbox lives' "$(cat "$S/one/status")" running
is 'the others are as before' "$(ask other 'echo fine')" completed
