#!/bin/bash
# No request waits behind another: 2,000 readers parked in wait/ and follow/,
# a sandbox that streams, a create that hangs; status stays as quick as
# before; all are woken, at once.
cd "$(dirname "$0")/../.." && . tests/lib.sh || exit 2
start
mk a
mkdir "$S/d"
cat >"$T/many.py" <<'E2'
import os, resource, sys, threading, time
S, n = sys.argv[1], int(sys.argv[2])
threading.stack_size(64 * 1024)
resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192)) if \
    resource.getrlimit(resource.RLIMIT_NOFILE)[1] >= 8192 else None
names = ["a/wait/ended", "a/wait/paused", "a/follow/log", "d/wait/running",
         "a/wait/change", "d/wait/done", "a/follow/events"]
woken = [None] * n
ready = threading.Semaphore(0)
def one(k):
    try:
        fd = os.open(S + "/" + names[k % len(names)], os.O_RDONLY)
        ready.release()
        if names[k % len(names)].startswith("a/follow"):
            while os.read(fd, 65536):
                pass
            woken[k] = "EOF"
        else:
            woken[k] = os.read(fd, 100).decode().strip()
        os.close(fd)
    except OSError as e:
        woken[k] = e.errno
ts = [threading.Thread(target=one, args=(k,), daemon=True) for k in range(n)]
for t in ts:
    t.start()
for t in ts:
    ready.acquire()
print("parked", flush=True)
for t in ts:
    t.join(90)
for k, name in enumerate(names):
    got = {str(w) for w in woken[k::len(names)]}
    print(name, *sorted(got))
E2
# quick: the median of 100 reads of status, in microseconds
cat >"$T/quick.py" <<'E2'
import sys, time
t = []
for _ in range(100):
    a = time.perf_counter()
    with open(sys.argv[1]) as f:
        f.read()
    t.append(time.perf_counter() - a)
print(int(sorted(t)[50] * 1e6))
E2
quick() { timeout 60 python3 "$T/quick.py" "$S/a/status"; }
alone=$(quick)
wr "$S/a/message" 'for i in $(seq 100); do seq 50; sleep 0.05; done; until [ -e stop ]; do sleep 0.1; done' >/dev/null
timeout 120 python3 "$T/many.py" "$S" 2000 >"$T/many" 2>&1 &
many=$!
yes "2,000 are parked" soon 60 grep -q parked "$T/many"
crowded=$(quick)
echo "status: $alone us alone, $crowded us beside 2,000 readers"
yes "status is as quick as before ($alone, $crowded us)" test "$crowded" -lt $((alone * 10 + 5000))
yes "a walk is, too" timeout 20 ls -lR "$P"
is "commands are, too" "$(timeout 10 true; wr "$S/a/expires" $'1h\n')" OK
dev=$(stat -c %d "$M")
threads=$(ls "/proc/$(pid)/task" | wc -l)
yes "no thread a reader ($threads)" test "$threads" -lt 100
is "start the draft" "$(wr "$S/d/ctl" $'start\n')" OK
is "it runs" "$(wait_for d running)" running
wr "$S/a/ctl" $'pause\n' >/dev/null
is "paused" "$(wait_for a paused)" paused
wr "$S/a/ctl" $'kill now\n' >/dev/null
is "killed" "$(wait_for a ended)" killed
wait $many
is "it ends" $? 0
is "ended" "$(grep '^a/wait/ended' "$T/many")" "a/wait/ended killed"
is "paused" "$(grep '^a/wait/paused' "$T/many")" "a/wait/paused paused"
is "running" "$(grep '^d/wait/running' "$T/many")" "d/wait/running running"
is "done" "$(grep '^d/wait/done' "$T/many")" "d/wait/done completed"
is "follow ends" "$(grep '^a/follow/log' "$T/many")" "a/follow/log EOF"
is "follow ends" "$(grep '^a/follow/events' "$T/many")" "a/follow/events EOF"
unlike "change names something" "$(grep '^a/wait/change' "$T/many")" 'None|[0-9]'
is "nothing waits any more" "$(cat "/sys/fs/fuse/connections/$dev/waiting" 2>/dev/null || echo 0)" 0
# readers that go away leave nothing
fds() { ls "/proc/$(pid)/fd" 2>/dev/null | wc -l; }
before=$(fds)
for i in $(seq 50); do timeout 0.2 cat "$S/d/wait/ended" & done
wait
yes "no descriptor is left" soon 10 eval '[ "$(fds)" -le $((before + 1)) ]'
is "nothing waits" "$(cat "/sys/fs/fuse/connections/$dev/waiting" 2>/dev/null || echo 0)" 0

### slow readers never pin the write-ahead log; it shrinks by itself
mk g
is "much output" "$(ask g 'seq 200000')" completed
exec 5<"$S/g/log" 6<"$S/g/follow/events"
head -c 10 <&5 >/dev/null
python3 - "$S/g/ctl" <<'E2'
import os, sys
for i in range(500):
    fd = os.open(sys.argv[1], os.O_WRONLY)
    os.write(fd, b"timeout %dm\n" % (i % 200 + 1))
    os.close(fd)
E2
is "500 commands" $? 0
python3 - "$D/courier.db" >"$T/reader" <<'E2' &
import sqlite3, sys, time
d = sqlite3.connect("file:%s?mode=ro" % sys.argv[1], uri=True, isolation_level=None)
d.execute("BEGIN")
d.execute("SELECT count(*) FROM sqlite_master").fetchone()
print("reading", flush=True)
time.sleep(4)
E2
yes "an outside reader" soon 20 grep -q reading "$T/reader"
is "much more output" "$(ask g 'seq 300000')" completed
wal() { stat -c %s "$D/courier.db-wal"; }
yes "the log is small ($(wal))" test "$(wal)" -lt 67108864
wait
shrunk() { [ "$(wal)" -le 8388608 ]; }
yes "and shrinks" soon 60 shrunk
exec 5<&- 6<&-
