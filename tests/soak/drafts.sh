#!/bin/bash
# drafts.sh [ROUNDS]: drafts made, read, waited for and removed; the daemon's
# descriptors, threads, memory and record must not grow with their number.
cd "$(dirname "$0")/../.." && . tests/lib.sh || exit 2
rounds=${1:-500}
start
cat >"$T/drafts.py" <<'E2'
import os, sys
S, P, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
def write(path, text):
    fd = os.open(path, os.O_WRONLY | os.O_TRUNC)
    os.write(fd, text.encode())
    os.close(fd)
for i in range(n):
    d = "%s/n%d" % (S, i)
    os.mkdir(d)
    write(d + "/prompt", "echo %d\n" % i)
    write(d + "/config", "tool = shell\n")
    for f in ("status", "info.json", "messages", "ctl", "prompt"):
        open(d + "/" + f).read()
    os.listdir(d)
    fd = os.open(d + "/wait/running", os.O_RDONLY | os.O_NONBLOCK)
    try:
        os.read(fd, 10)
    except BlockingIOError:
        pass
    os.close(fd)
    try:
        write(d + "/ctl", "frobnicate\n")
    except OSError:
        pass
    os.rmdir(d)
    os.rmdir("%s/trash/n%d" % (P, i))
E2
look() {
    local p
    p=$(pid)
    if [ -r "/proc/$p/fd" ] && fds=$(ls "/proc/$p/fd" 2>/dev/null | wc -l); then :; fi
    threads=$(awk '/^Threads/ { print $2 }' "/proc/$p/status")
    rss=$(awk '/^VmRSS/ { print $2 }' "/proc/$p/status")
}
yes "some, to warm up" python3 "$T/drafts.py" "$S" "$P" 100
look
f=$fds t=$threads r=$rss
yes "$rounds rounds" python3 "$T/drafts.py" "$S" "$P" "$rounds"
sync -f "$M" 2>/dev/null
look
echo "figure rounds $rounds, descriptors $f then $fds, threads $t then $threads, memory $r then $rss KiB"
yes "descriptors ($f, $fds)" test "$fds" -le $((f + 2))
yes "threads ($t, $threads)" test "$threads" -le $((t + 2))
yes "memory ($r, $rss KiB)" test "$rss" -le $((r + 16384))
is "nobody is left" "$(ls "$S" "$P/trash" | grep -c '^n')" 0
is "no row is left" "$(python3 - "$D"/courier.db <<'E2'
import sqlite3, sys
d = sqlite3.connect("file:%s?mode=ro" % sys.argv[1], uri=True)
print(sum(d.execute("SELECT count(*) FROM " + t).fetchone()[0]
          for t in ("sandbox", "message", "job", "body")))
E2
)" 0
