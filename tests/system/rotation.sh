#!/bin/bash
# The root's events (§4): numbered without a gap, and rotated at 64 MiB so
# that whoever follows them by name misses none, and who has them open goes on
# reading what was opened.
cd "$(dirname "$0")/../.." && . tests/lib.sh || exit 2
start
gone() { ! mountpoint -q "$M"; }
# stop, put events into the record until N bytes are left to 64 MiB, start
fill() {
    wr "$M/ctl" $'shutdown\n' >/dev/null
    yes "it ends" soon 20 gone
    python3 - "$D/courier.db" "$1" <<'E2'
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
chunk, want = 16384, (64 << 20) - int(sys.argv[2])
id, size = db.execute("SELECT rowid, size FROM stream WHERE kind=1 AND id=0 AND name=1").fetchone()
seq = int(db.execute("SELECT value FROM meta WHERE key='seq'").fetchone()[0])
off = size - size % chunk
last = db.execute("SELECT data FROM chunk WHERE stream=? AND off=?", (id, off)).fetchone()
text = bytearray(last[0] if last else b"")
def put(n):
    global off
    db.execute("INSERT OR REPLACE INTO chunk VALUES(?,?,?)", (id, off, bytes(text[:n])))
    off += n
    del text[:n]
while size < want:
    seq += 1
    line = b'{"seq":%d,"time":"2026-12-01T00:00:00Z","event":"config","pad":"%s"}\n' % (seq, b"x" * 900)
    text += line
    size += len(line)
    while len(text) >= chunk:
        put(chunk)
put(len(text))
db.execute("UPDATE stream SET size=? WHERE rowid=?", (size, id))
db.execute("UPDATE meta SET value=? WHERE key='seq'", (seq,))
db.commit()
E2
    yes "it starts" mount_
}
gaps() { grep -ohE '^\{"seq":[0-9]+' "$@" | cut -d: -f2 | awk 'NR > 1 && $1 != l + 1 { print l, $1 } { l = $1 }'; }
rotated() { [ "$(stat -c %s "$M/events")" -lt 1000000 ]; }

for round in 1 2; do
    fill 2000
    was=$(stat -c %i "$M/events")
    mtime=$(stat -c %Y "$M/events.1")
    [ $round = 1 ] && is "nothing was rotated" "$(stat -c %s "$M/events.1")" 0
    tail -n 1 -F "$M/events" >"$T/tail" 2>"$T/tail.err" &
    tail=$!
    yes "tail is there" soon 10 test -s "$T/tail"
    exec 7<"$M/events"
    head -c 1000 <&7 >"$T/begin"
    # some go into the old file after tail's last look, some into the new
    for i in $(seq 30); do mkdir "$S/r$round-$i"; done
    yes "rotated" soon 10 rotated
    is "no gap between the files" "$(gaps "$M/events.1" "$M/events")" ""
    is "the old file is the old file" "$(stat -c %i "$M/events.1")" "$was"
    yes "the new one is another" test "$(stat -c %i "$M/events")" != "$was"
    is "a listing says so" "$(ls -i "$M" | awk '$2 == "events.1" { print $1 }')" "$was"
    is "who has it open reads it to its end" "$(cat "$T/begin" - <&7 | cmp - "$M/events.1" 2>&1)" ""
    exec 7<&-
    last=$(tail -n 1 "$M/events" | jq .seq)
    yes "tail -F comes to the last" soon 10 grep -q "\"seq\":$last," "$T/tail"
    is "and has missed none" "$(gaps "$T/tail")" ""
    kill $tail
    wait $tail 2>/dev/null
    m1=$(stat -c %.9Y "$M/events.1")
    mkdir "$S/more$round"
    sleep 1.1
    is "the old ones' time stays" "$(stat -c %.9Y "$M/events.1")" "$m1"
    [ $round = 2 ] && yes "it was another before" test "${m1%.*}" -ge "$mtime"
done
is "the project's are all there" "$(jq -r 'select(.event == "created") | .sandbox // empty' "$P/events" | grep -c .)" 62
