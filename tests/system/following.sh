#!/bin/bash
# Following what grows and waiting for what changes: follow/*, wait/*, poll,
# select, epoll, O_NONBLOCK, many readers, readers that stop, tail, less.
. "$(dirname "$0")/../lib.sh"

start
mk one
ask one 'echo first words' >/dev/null
S1=$S/one
# the turn runs until the gate opens
gate() { echo >"$S1/files/$1"; }

# ---- follow/* ----

is "unlisted" "$(ls "$S1" | grep -c -e '^follow$' -e '^wait$')" 0
is "what there is to follow" "$(ls "$S1/follow" | sort | tr '\n' ' ')" "events log messages "
for f in messages log events; do
    timeout 60 cat "$S1/follow/$f" >"$T/f.$f" &
    yes "follow/$f begins with what is there" soon 5 cmp "$S1/$f" "$T/f.$f"
done
timeout 60 tail -c +1 -f "$S1/messages" >"$T/tail-f" 2>/dev/null &
tf=$!
timeout 60 tail -n +1 -F "$S1/log" >"$T/tail-F" 2>/dev/null &
tF=$!
timeout 60 tail -n 1 -s 0.1 -f "$S1/log" >"$T/tail-n" 2>/dev/null &
tn=$!
sed -u 's/words/WORDS/' "$S1/follow/log" >"$T/sed" &
grep --line-buffered -m 1 'needle' "$S1/follow/log" >"$T/grep" &
g=$!
printf 'echo one; until [ -e g1 ]; do sleep 0.05; done; echo two needle; until [ -e g2 ]; do sleep 0.05; done; echo three' >"$S1/message"
yes "follow/log goes on at once" soon 5 grep -q '^one$' "$T/f.log"
no "and not before" grep -q two "$T/f.log"
gate g1
t=${EPOCHREALTIME/./}
yes "with each line" soon 5 grep -q '^two' "$T/f.log"
yes "grep -m 1 ends with its line" soon 5 sh -c "! kill -0 $g"
gate g2
is "the turn" "$(wait_for one "done")" completed
for f in messages log events; do
    yes "follow/$f has it all" soon 5 cmp "$S1/$f" "$T/f.$f"
done
yes "tail -f" soon 5 cmp "$S1/messages" "$T/tail-f"
yes "tail -F" soon 5 cmp "$S1/log" "$T/tail-F"
is "tail -n 1 -f" "$(soon 5 grep -q three "$T/tail-n" && tr '\n' ' ' <"$T/tail-n")" "first words one two needle three "
yes "through a pipe" soon 5 grep -q three "$T/sed"
kill $tf $tF $tn

# ---- less +F, in a terminal ----

mkdir "$T/tmux"
tm() { tmux -L less -f /dev/null "$@"; }
export TMUX_TMPDIR=$T/tmux
unset TMUX
tm new-session -d -x 100 -y 30 "LESS= less +F '$S1/log'"
screen() { tm capture-pane -p; }
yes "less +F shows the end" soon 10 sh -c "tmux -L less capture-pane -p | grep -q '^three'"
ask one 'echo four' >/dev/null
yes "and what comes" soon 10 sh -c "tmux -L less capture-pane -p | grep -q '^four'"
tm kill-server

# ---- one program that uses every way to wait ----

cat >"$T/waits.py" <<'END'
import errno, fcntl, os, select, signal, subprocess, sys, threading, time
S, M = sys.argv[1], sys.argv[2]
passed = 0
def check(what, got, want=True):
    global passed
    if got == want:
        passed += 1
    else:
        print("FAILED: %s: got %r, want %r" % (what, got, want))
def drain(fd):
    out = b""
    while True:
        try:
            b = os.read(fd, 65536)
        except BlockingIOError:
            return out
        if not b:
            return out
        out += b
def tell(text, path=S + "/message"):
    with open(path, "w") as f:
        f.write(text)
def eno(fn, *a):
    try:
        return fn(*a)
    except OSError as e:
        return errno.errorcode[e.errno]
def ready(fd, how, ms):
    if how == "poll":
        p = select.poll()
        p.register(fd, select.POLLIN)
        return bool(p.poll(ms))
    if how == "select":
        return bool(select.select([fd], [], [], ms / 1000)[0])
    p = select.epoll()
    p.register(fd, select.EPOLLIN | (select.EPOLLET if how == "et" else 0))
    try:
        return bool(p.poll(ms / 1000))
    finally:
        p.close()

N = os.O_RDONLY | os.O_NONBLOCK
hows = ("poll", "select", "epoll", "et")
# at the end of what there is
for name in ("follow/messages", "follow/log", "follow/events"):
    fd = os.open(S + "/" + name, N)
    drain(fd)
    check(name + " EAGAIN at its end", eno(os.read, fd, 10), "EAGAIN")
    for how in hows:
        check("%s: %s not ready at its end" % (name, how), ready(fd, how, 30), False)
    os.close(fd)
fd = os.open(S + "/follow/log", os.O_RDONLY)
while ready(fd, "poll", 100):
    os.read(fd, 65536)
fcntl.fcntl(fd, fcntl.F_SETFL, os.O_NONBLOCK)
check("O_NONBLOCK set later", eno(os.read, fd, 10), "EAGAIN")
os.close(fd)
for name in ("idle", "done"):
    fd = os.open(S + "/wait/" + name, N)
    check("wait/%s ready, it holds" % name, ready(fd, "poll", 0))
    check("wait/%s" % name, os.read(fd, 99) in (b"idle\n", b"completed\n"))
    check("wait/%s then ends" % name, os.read(fd, 99), b"")
    os.close(fd)
fd = os.open(S + "/wait/ended", N)
check("wait/ended EAGAIN", eno(os.read, fd, 10), "EAGAIN")
check("wait/ended not ready", ready(fd, "poll", 30), False)
ended = fd

# all ways at once wait for one turn
watched = {}
names = ["follow/messages", "follow/log", "follow/events", "events", "agent",
         "wait/change", "messages", "log"]
for how in hows:
    for name in names:
        fd = os.open(S + "/" + name, N)
        if name != "wait/change":
            drain(fd)
        watched[how, name] = fd
results = {}
def wait_one(key):
    fd = watched[key]
    t = time.time()
    ok = ready(fd, key[0], 10000)
    results[key] = (ok, time.time() - t)
threads = [threading.Thread(target=wait_one, args=(k,)) for k in watched]
time.sleep(0.3)
for t in threads:
    t.start()
time.sleep(0.5)
check("nothing is ready before something happens", len(results), 0)
tell("echo woken; sleep 0.3; echo again")
for t in threads:
    t.join()
for k, (ok, took) in sorted(results.items()):
    check("%s: %s is told" % (k[1], k[0]), ok)
for (how, name), fd in watched.items():
    got = eno(os.read, fd, 65536) if name != "agent" else os.pread(fd, 99, 0)
    check("%s: %s then reads" % (name, how), isinstance(got, bytes) and got != b"")
    os.close(fd)
subprocess.run(["cat", S + "/wait/done"], stdout=subprocess.DEVNULL)

# status: poll, read from the start, again and again
fd = os.open(M + "/status", N)
a = drain(fd)
p = select.poll()
p.register(fd, select.POLLIN | select.POLLPRI)
check("status is quiet", p.poll(30), [])
os.mkdir(os.path.dirname(S) + "/draft-of-poll")
check("status is told", bool(p.poll(5000)))
os.lseek(fd, 0, 0)
b = drain(fd)
check("and is another", a != b and b"draft 1" in b)
check("quiet again", p.poll(30), [])
os.close(fd)

# wait/change misses nothing between two reads
fd = os.open(S + "/wait/change", os.O_RDONLY)
with open(S + "/config", "a") as f:
    f.write("turn_timeout = 5m\n")
got = set()
while select.select([fd], [], [], 1)[0]:
    got.add(os.read(fd, 99).decode().strip())
check("wait/change names the document", "config" in got or "docs" in got or got)
tell("true")
subprocess.run(["cat", S + "/wait/done"], stdout=subprocess.DEVNULL)
got = set()
while select.select([fd], [], [], 1)[0]:
    got.add(os.read(fd, 99).decode().strip())
check("and messages, agent, events", {"messages", "agent", "events"} <= got)
os.close(fd)

# signals end a blocked read
class Alarm(Exception):
    pass
def alarm(*a):
    raise Alarm
signal.signal(signal.SIGALRM, alarm)
for name in ("wait/ended", "wait/change", "follow/log"):
    fd = os.open(S + "/" + name, os.O_RDONLY)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    t = time.time()
    try:
        while True:
            os.read(fd, 65536)
    except Alarm:
        check(name + " is interrupted at once", time.time() - t < 2)
    os.close(fd)
for sig in (signal.SIGTERM, signal.SIGKILL, signal.SIGINT):
    p = subprocess.Popen(["cat", S + "/wait/ended"])
    time.sleep(0.2)
    t = time.time()
    p.send_signal(sig)
    p.wait()
    check("cat ends with %s" % sig.name, (p.returncode, time.time() - t < 2), (-sig, True))

# many readers; some never read on
slow = [os.open(S + "/follow/log", os.O_RDONLY) for i in range(200)]
for fd in slow:
    os.read(fd, 1)
many = [subprocess.Popen("exec cat %s/follow/log | tail -c 100" % S, shell=True,
        stdout=subprocess.PIPE) for i in range(20)]
stopped = subprocess.Popen(["cat", S + "/follow/log"], stdout=subprocess.PIPE)
waiting = [os.open(S + "/wait/ended", os.O_RDONLY) for i in range(300)]
got = []
def blocked(fd):
    got.append(os.read(fd, 99))
threads = [threading.Thread(target=blocked, args=(fd,)) for fd in waiting]
threading.stack_size(65536)
for t in threads:
    t.start()
t = time.time()
tell("seq 200000; echo the end of it")
out = subprocess.run(["cat", S + "/wait/done"], stdout=subprocess.PIPE).stdout
check("a turn with much output, nobody holds it up", out, b"completed\n")
took = time.time() - t
check("in bearable time (%.1f s)" % took, took < 30)
t = time.time()
os.stat(M + "/status")
with open(M + "/board") as f:
    f.read()
check("others are served meanwhile", time.time() - t < 1)
check("300 still wait", len(got), 0)
tell("kill now\n", S + "/ctl")
t = time.time()
for x in threads:
    x.join(20)
check("all are told of the end", got.count(b"killed\n"), 300)
check("wait/ended by poll", ready(ended, "poll", 5000) and os.read(ended, 99), b"killed\n")
for p in many:
    out = p.communicate(timeout=30)[0]
    check("a follower has all and ends", b"the end of it" in out)
left = subprocess.run("wc -c", shell=True, stdin=stopped.stdout, stdout=subprocess.PIPE, timeout=30).stdout
check("one that had stopped has all", int(left), os.stat(S + "/log").st_size)
for fd in slow[:5]:
    n = 1
    while True:
        b = os.read(fd, 1 << 20)
        if not b:
            break
        n += len(b)
    check("a slow one has all", n, os.stat(S + "/log").st_size)
for name in ("idle", "running", "paused"):
    with open(S + "/wait/" + name) as f:
        check("wait/%s after the end" % name, eno(f.read), "ECANCELED")
with open(S + "/wait/done") as f:
    check("wait/done after the end", f.read(), "completed\n")
print("%d passed" % passed)
END
timeout 110 python3 "$T/waits.py" "$S1" "$M" >"$T/py" 2>&1
while read -r l; do
    case $l in
    FAILED:*) bad "${l#FAILED: }" ;;
    *' passed') passed=$((passed + ${l% *})) && done_=1 ;;
    *) echo "  $l" ;;
    esac
done <"$T/py"
[ "${done_:-}" ] || bad "the program ended early"

# what followed from the begin has ended, with all of it
for f in messages log events; do
    yes "follow/$f ended" soon 5 cmp "$S1/$f" "$T/f.$f"
done

# ---- the daemon ends under them ----

mk two
for f in wait/ended follow/log wait/change; do
    timeout 30 cat "$S/two/$f" >"$T/e.${f##*/}" 2>&1 &
done
sleep 0.3
kill "$(pid)"
yes "readers are answered" soon 10 sh -c "! pgrep -f '[c]at $S/two'"
like "with ESHUTDOWN" "$(cat "$T/e.ended")" 'shutdown'
