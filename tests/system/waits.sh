#!/bin/bash
# wait/* and follow/* (§7.3): every name, at once and later, what can't come
# true any more, poll and select, O_NONBLOCK, Ctrl-C, the daemon's end.
cd "$(dirname "$0")/../.." && . tests/lib.sh || exit 2
start

# rd FILE: what a read gives, or the errno's name, or LATE after 1 s
cat >"$T/rd.py" <<'E2'
import errno, os, signal, sys
def late(*_):
    raise TimeoutError
def look(path):
    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, 1)
    try:
        fd = os.open(path, os.O_RDONLY)
        return os.read(fd, 4096).decode().strip() or "EOF"
    except TimeoutError:
        return "LATE"
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e.errno))
ends = []
for path in sys.argv[1:]:
    r, w = os.pipe()
    if os.fork() == 0:
        os.write(w, look(path).encode())
        os._exit(0)
    os.close(w)
    ends.append(r)
for r in ends:
    print(os.read(r, 4096).decode())
E2
W="running paused ended idle done ok pr learned change"
all() { # all NAME: each wait's answer at once
    local w f=()
    for w in $W; do f+=("$S/$1/wait/$w"); done
    timeout 60 python3 "$T/rd.py" "${f[@]}" | paste -d= <(tr ' ' '\n' <<<"$W") - | xargs
}

### the names
mkdir "$S/d"
is "ls wait" "$(ls "$S/d/wait" | sort | xargs)" "$(tr ' ' '\n' <<<"$W" | sort | xargs)"
is "ls follow" "$(ls "$S/d/follow" | sort | xargs)" "events log messages"
is "unlisted" "$(ls -a "$S/d" | grep -cxE 'wait|follow|\.files')" 0
is "wait/nothing" "$(eno stat "$S/d/wait/nothing")" ENOENT
is "they can't be written" "$(wr "$S/d/wait/done" x | sed s/EROFS/EACCES/)" EACCES
is "size 0" "$(stat -c %s "$S/d/wait/done")" 0

### each state
is "draft: all wait" "$(all d)" "$(for w in $W; do echo "$w=LATE"; done | xargs)"
mk r
is "running, nothing said" "$(all r)" \
    "running=running paused=LATE ended=LATE idle=idle done=completed ok=completed pr=LATE learned=LATE change=LATE"
ask r 'exit 1' >/dev/null
is "after a failure" "$(all r)" \
    "running=running paused=LATE ended=LATE idle=failed done=failed ok=ECANCELED pr=LATE learned=LATE change=LATE"
ask r true >/dev/null
wr "$S/r/ctl" $'message echo go; until [ -e stop ]; do sleep 0.1; done\n' >/dev/null
is "at work" "$(all r | sed s/change=.*//)" \
    "running=running paused=LATE ended=LATE idle=LATE done=LATE ok=LATE pr=LATE learned=LATE "
yes "it goes on" soon 20 grep -q '^go' "$S/r/messages"
wr "$S/r/ctl" $'pause\n' >/dev/null
is "pause" "$(wait_for r paused)" paused
is "paused" "$(all r)" \
    "running=LATE paused=paused ended=LATE idle=LATE done=LATE ok=LATE pr=LATE learned=LATE change=LATE"
wr "$S/r/ctl" $'resume\n' >/dev/null
wait_for r running >/dev/null
touch "$S/r/files/stop" 2>/dev/null || wr "$S/r/ctl" $'interrupt\n' >/dev/null
wait_for r done >/dev/null
wr "$S/r/ctl" $'kill now\n' >/dev/null
is "ended" "$(wait_for r ended)" killed
is "killed" "$(all r | sed 's/done=[a-z]*/done=x/; s/ok=[a-zA-Z]*/ok=x/; s/learned=[a-zA-Z]*/learned=x/; s/ change=.*//')" \
    "running=ECANCELED paused=ECANCELED ended=killed idle=ECANCELED done=x ok=x pr=ECANCELED learned=x"
wr "$S/ctl" $'create name=e tool=shell repo=/nowhere/at/all\n' >/dev/null
is "error" "$(wait_for e ended)" error
is "all of it" "$(all e | sed 's/ pr=.*//')" \
    "running=ECANCELED paused=ECANCELED ended=error idle=ECANCELED done=failed ok=ECANCELED"

### woken, not polled: each of them by what it waits for
mkdir "$S/w"
for w in running paused ended idle done ok; do
    timeout 60 cat "$S/w/wait/$w" >"$T/w-$w" 2>&1 &
done
(exec timeout 60 cat "$S/w/follow/events") >"$T/w-events" 2>&1 &
echo 'echo first-$((1+1))' >"$S/w/prompt"
wr "$S/w/ctl" $'start\n' >/dev/null
got() { [ "$(cat "$T/w-$1")" = "$2" ]; }
yes "running" soon 30 got running running
yes "done" soon 30 got done completed
yes "idle" soon 30 got idle idle
yes "ok" soon 30 got ok completed
like "its message was done by then" "$(cat "$S/w/messages")" '^first-2'
wr "$S/w/ctl" $'pause\n' >/dev/null
yes "paused" soon 30 got paused paused
is "status is so" "$(cat "$S/w/status")" paused
wr "$S/w/ctl" $'kill\n' >/dev/null
yes "ended" soon 60 got ended killed
same() { cmp -s "$T/w-events" "$S/w/events"; }
yes "follow/events ends with all of it" soon 10 same
wait
# a stat after a wait is never old
mk s
for i in 1 2 3 4 5; do
    wr "$S/s/message" "echo round-$i" >/dev/null
    stat -c %s "$S/s/messages" >/dev/null
    wait_for s done >/dev/null
    is "stat after the wait, $i" "$(head -c "$(stat -c %s "$S/s/messages")" "$S/s/messages" | grep -c "^round-$i\$")" 1
done

### change: none missed on one open file
exec 3<"$S/s/wait/change"
wr "$S/s/expires" $'40m\n' >/dev/null
wr "$S/s/message" 'echo changed' >/dev/null
wait_for s done >/dev/null
rest() { timeout 1 cat <&3; }
changes=$(rest | sort -u | xargs)
for w in expires messages agent; do
    like "change tells $w" "$changes" "(^| )$w( |\$)"
done
exec 3<&-
timeout 30 head -c 3 "$S/s/wait/change" >"$T/ch" &
reader=$!
sleep 0.2
wr "$S/s/expires" $'50m\n' >/dev/null
yes "a parked one is woken" wait $reader
yes "with a name" grep -qE '^[a-z.]+$' "$T/ch"
is "rmdir wakes with ECANCELED" "$(
    mkdir "$S/gone"
    timeout 30 cat "$S/gone/wait/running" 2>&1 &
    p=$!
    sleep 0.2
    rmdir "$S/gone" && rmdir "$P/trash/gone"
    wait $p
)" "cat: $S/gone/wait/running: Operation canceled"

### follow
mk f
timeout 60 cat "$S/f/follow/messages" >"$T/fm" &
timeout 60 cat "$S/f/follow/log" >"$T/fl" &
ask f 'for i in $(seq 500); do echo "line $i"; done' >/dev/null
yes "follow/messages has it" soon 10 cmp -s "$T/fm" "$S/f/messages"
yes "follow/log has it" soon 10 cmp -s "$T/fl" "$S/f/log"
is "tail -f of messages" "$(timeout 20 tail -n 1 "$S/f/messages" | sed -E 's/.*  #/#/')" "#2 completed"
is "from the middle" "$(timeout 0.7 tail -c +10 "$S/f/follow/log" 2>/dev/null | head -c 5)" "$(tail -c +10 "$S/f/log" | head -c 5)"

### poll, select, epoll, O_NONBLOCK, Ctrl-C
cat >"$T/poll.py" <<'E2'
import errno, os, select, signal, sys, threading, time
S, M = sys.argv[1:3]
def write(path, text):
    with open(path, "w") as f:
        f.write(text)
fd = os.open(S + "/f/wait/paused", os.O_RDONLY | os.O_NONBLOCK)
try:
    os.read(fd, 100)
    print("no EAGAIN")
except OSError as e:
    print("nonblock", errno.errorcode[e.errno])
st = os.open(S + "/f/status", os.O_RDONLY)
ev = os.open(M + "/events", os.O_RDONLY)
os.lseek(ev, 0, os.SEEK_END)
while os.read(ev, 65536):
    pass
fo = os.open(S + "/f/follow/messages", os.O_RDONLY | os.O_NONBLOCK)
try:
    while os.read(fo, 65536):
        pass
    print("EOF")
except OSError as e:
    print("follow", errno.errorcode[e.errno])
print("early", select.select([fd, fo], [], [], 0.2)[0])
ep = select.epoll()
ep.register(fd, select.EPOLLIN)
ep.register(fo, select.EPOLLIN)
p = select.poll()
p.register(fd, select.POLLIN)
t = threading.Timer(0.3, write, (S + "/f/ctl", "message echo polled\n"))
t.start()
print("epoll", {fo: "follow", fd: "wait"}.get(ep.poll(20)[0][0]))
print("read", b"echo polled" in os.read(fo, 65536))
time.sleep(0.1)
threading.Timer(0.5, write, (S + "/f/ctl", "pause\n")).start()
print("poll", p.poll(20000)[0][1] & select.POLLIN != 0)
print("select", fd in select.select([fd], [], [], 20)[0])
print("read", os.read(fd, 100))
# a signal
w = os.open(S + "/f/wait/ended", os.O_RDONLY)
def on(*_):
    raise InterruptedError
signal.signal(signal.SIGALRM, on)
signal.alarm(1)
a = time.time()
try:
    os.read(w, 100)
    print("no")
except InterruptedError:
    print("interrupted", time.time() - a < 5)
E2
is "poll and friends" "$(timeout 90 python3 "$T/poll.py" "$S" "$M" 2>&1)" "nonblock EAGAIN
follow EAGAIN
early []
epoll follow
read True
poll True
select True
read b'paused\n'
interrupted True"
# inotify-free waiting for a status: poll tells
cat >"$T/pollst.py" <<'E2'
import os, select, sys, threading
S = sys.argv[1]
fd = os.open(S + "/f/status", os.O_RDONLY)
print(os.read(fd, 100))
p = select.poll()
p.register(fd, select.POLLPRI | select.POLLERR)
threading.Timer(0.3, lambda: os.write(os.open(S + "/f/ctl", os.O_WRONLY), b"resume\n")).start()
print("told", bool(p.poll(20000)))
os.close(fd)
E2
like "poll of status" "$(timeout 60 python3 "$T/pollst.py" "$S" 2>&1 | tail -n 1)" 'told'
wait_for f running >/dev/null
timeout 20 cat "$S/f/wait/ended" &
p=$!
sleep 0.2
kill -INT $p
kill -TERM $p
t=$SECONDS
wait $p
yes "a signal ends a parked cat" test $((SECONDS - t)) -lt 10

### the daemon's end answers all of them
mkdir "$S/x"
for w in running change; do
    timeout 60 cat "$S/x/wait/$w" >"$T/end-$w" 2>&1 &
done
timeout 60 cat "$S/f/follow/log" >"$T/end-log" 2>"$T/end-log-err" &
timeout 60 cat "$S/f/wait/ended" >"$T/end-ended" 2>&1 &
sleep 0.3
wr "$M/ctl" $'shutdown\n' >/dev/null
wait
for w in running change ended log-err; do
    like "$w is told" "$(cat "$T/end-$w")" 'shutdown'
done
unmounted() { ! mountpoint -q "$M"; }
yes "it is unmounted" soon 20 unmounted
yes "and starts again" mount_
is "f goes on" "$(cat "$S/f/status")" running
