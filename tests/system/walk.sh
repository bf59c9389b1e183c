#!/bin/bash
# Walks (§1): grep -r, find, tar, rsync, du and cp of the whole tree end, are
# whole, spend nothing and change nothing. Sizes and times are true; what a
# size announced is read; names that come and go under a walk don't hang it.
cd "$(dirname "$0")/../.." && . tests/lib.sh || exit 2
start
mk a
ask a 'for i in $(seq 2000); do echo "line $i"; done' >/dev/null
mk p
wr "$S/p/ctl" $'pause\n' >/dev/null
wait_for p paused >/dev/null
mkdir "$S/d"
echo hello >"$P/CLAUDE.md"
mkdir -p "$P/home/.config/x" "$P/skills/s"
echo 1 >"$P/home/.config/x/y"
echo 2 >"$P/skills/s/SKILL.md"
wr "$P/keys/openai" "sk-proj-0123456789abcdef" >/dev/null
wr "$P/secrets/S" "value-of-the-secret" >/dev/null
events() { wc -l <"$M/events"; }
state() { cat "$S"/*/{status,agent,messages,expires,config,prompt} "$M/board" "$P/config"; }
was=$(state)
n=$(events)

is "grep -r" "$(timeout 60 grep -rl zzz-nothing "$M" 2>"$T/e")" ""
is "without errors" "$(cat "$T/e")" ""
is "grep -r finds" "$(timeout 60 grep -rlx 'line 1999' "$P/sandboxes" | sed "s|$S/||" | sort | xargs)" "a/log a/messages"
yes "find" timeout 60 find "$M" -ls
is "find: no error" "$(timeout 60 find "$M" -type f -size -1000M -name 'no' 2>&1)" ""
yes "ls -lR" timeout 60 ls -lR "$M"
yes "du" timeout 60 du -a "$M"
yes "tar" timeout 60 tar -C "$M" -cf "$T/all.tar" .
is "no file changed under tar" "$(timeout 60 tar -C "$M" -cf - . 2>&1 >/dev/null | grep -v 'file changed')" ""
is "tar has the transcript" "$(tar -xOf "$T/all.tar" ./projects/web/sandboxes/a/messages | grep -c '^line ')" 2000
yes "cp -r" timeout 60 cp -r "$M" "$T/copy"
yes "diff -r" timeout 60 diff -r --no-dereference "$M/projects" "$T/copy/projects"
if command -v rsync >/dev/null; then
    yes "rsync -a" timeout 60 rsync -a "$M/" "$T/rsync/"
    is "rsync again moves nothing of it" "$(timeout 60 rsync -ain "$M/projects/" "$T/rsync/projects/" | grep -c '^>f')" 0
fi
command -v file >/dev/null && yes "file" eval "find '$M' -type f | timeout 60 xargs file >/dev/null"
yes "wc of everything" eval "find '$M' -type f -print0 | timeout 60 xargs -0 wc -c >/dev/null"
is "python's walk" "$(timeout 60 python3 - "$M" <<'E2'
import os, sys
bad = 0
for d, _, names in os.walk(sys.argv[1]):
    for n in names:
        p = os.path.join(d, n)
        if os.path.islink(p):
            continue
        size = os.stat(p).st_size
        data = open(p, "rb").read()
        if len(data) < size or (len(data) != size and n not in
                ("status", "usage", "board", "events", "errors", "info.json", "usage.csv", "usage.jsonl")):
            print(p, size, len(data))
            bad += 1
print("bad", bad)
E2
)" "bad 0"
# walkers that count links skip directories that a count of 2 denies
is "links of directories" "$(timeout 60 python3 - "$M" <<'E2'
import os, sys
for d, subs, _ in os.walk(sys.argv[1]):
    subs = [s for s in subs if not os.path.islink(os.path.join(d, s))]
    n = os.stat(d).st_nlink
    if n != 1 and n != 2 + len(subs):
        print(d, n, len(subs))
E2
)" ""
is "it stays in one device, inodes are unique" "$(find "$M" -type f -printf '%i\n' | sort | uniq -d | wc -l)" 0
is "nothing came of it" "$(events)" "$n"
is "nothing changed" "$(state)" "$was"
is "wait isn't walked into" "$(find "$M" | grep -cE '/(wait|follow|\.files)(/|$)')" 0
unlike "no key was read" "$(cat "$T/copy"/projects/web/keys/* "$T/copy"/projects/web/secrets/* 2>/dev/null)" '0123456789ab|value-of'
is "files is a link" "$(readlink "$S/a/files")" .files
cp -r "$T/copy/projects/web/sandboxes/a/ctl" "$S/a/ctl"
is "a copy over itself commands nothing" "$(events)" "$n"

### sizes and times
is "sizes of all" "$(for f in "$S"/a/*; do [ -f "$f" ] && [ "$(stat -c %s "$f")" != "$(wc -c <"$f")" ] && echo "$f"; done)" ""
m1=$(stat -c %.9Y "$S/a/messages")
ask a 'echo more' >/dev/null
m2=$(stat -c %.9Y "$S/a/messages")
yes "mtime grows ($m1 $m2)" awk "BEGIN { exit !($m2 > $m1) }"
is "mtime of what didn't change" "$(stat -c %.9Y "$S/a/config")" "$(sleep 1; stat -c %.9Y "$S/a/config")"
t=$(stat -c %Y "$S/a/status")
yes "mtime of status is when it changed" test "$t" -le "$(date +%s)" -a "$t" -ge $(($(date +%s) - 600))
head -c 5000 "$S/a/log" >"$T/l1"
ask a 'echo even more' >/dev/null
is "bytes once shown never change" "$(head -c 5000 "$S/a/log" | cmp - "$T/l1" 2>&1)" ""

### a read while it changes gives what a stat announced
wr "$S/a/message" 'for i in $(seq 3000); do echo "more $i"; [ $((i % 100)) != 0 ] || sleep 0.05; done' >/dev/null
is "no short and no empty read" "$(timeout 60 python3 - "$S/a" "$M" <<'E2'
import os, sys
a, m = sys.argv[1:3]
short = empty = 0
for i in range(1500):
    n = os.stat(a + "/messages").st_size
    with open(a + "/messages", "rb") as f:
        f.seek(max(0, n - 100))
        short += len(f.read(min(n, 100))) < min(n, 100)
    empty += not open(a + "/status").read() or not open(m + "/board").read()
print(short, empty)
E2
)" "0 0"
wait_for a done >/dev/null

### names that move under walks
for i in $(seq 8); do mkdir "$S/r$i"; done
for j in 1 2 3; do
    (while [ ! -e "$T/stop" ]; do ls -lR "$S"; stat "$S"/[re]*/status; done >/dev/null 2>&1) &
done
python3 - "$S" <<'E2'
import os, sys
S = sys.argv[1]
for r in range(40):
    for i in range(1, 9):
        os.rename("%s/r%d" % (S, i), "%s/e%d" % (S, i))
        os.rename("%s/e%d" % (S, i), "%s/r%d" % (S, i))
E2
is "renames" $? 0
touch "$T/stop"
wait
yes "it answers at once" timeout 5 cat "$M/status"
dev=$(stat -c %d "$M")
is "no request waits" "$(cat /sys/fs/fuse/connections/$dev/waiting 2>/dev/null || echo 0)" 0
is "all are there" "$(ls -d "$S"/r? | wc -l)" 8
