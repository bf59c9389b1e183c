#!/bin/bash
# Starting and stopping (§0): what each failure to start says, that nothing
# is left of it, stale mounts, two daemons, who holds what, how it ends.
cd "$(dirname "$0")/../.." && . tests/lib.sh || exit 2

no_mount() { ! mountpoint -q "$M"; }
none_left() { ! pgrep -f "courierfs .*$T/" >/dev/null; }
# fails WHAT PATTERN ARGS...: one sentence, a status, nothing mounted
fails() {
    local rc out
    out=$(timeout 60 "$BIN/courierfs" "${@:3}" 2>&1)
    rc=$?
    yes "$1: a status ($rc)" test "$rc" -ne 0 -a "$rc" -lt 124
    is "$1: one line" "$(wc -l <<<"$out")" 1
    like "$1: says so" "$out" "$2"
    yes "$1: nothing is mounted" no_mount
    yes "$1: nobody is left" soon 10 none_left
}

### the mount point
fails "missing" "make it with: mkdir -p $T/nothing/x$" --data "$D" "$T/nothing/x"
echo x >"$T/file"
fails "a file" "directory" --data "$D" "$T/file"
mkdir "$T/full" && echo x >"$T/full/somebody-wrote-this"
fails "not empty" "somebody-wrote-this" --data "$D" "$T/full"
is "it is as it was" "$(ls "$T/full")" somebody-wrote-this
fails "no mount point" "mount point" --data "$D"
fails "two mount points" "one mount point" --data "$D" "$M" "$M"
fails "an unknown option" "--frobnicate" --frobnicate "$M"
fails "an unknown letter" "-q" -q "$M"
fails "an option without its value" "--data" --data
fails "an empty value" "--data" --data "" "$M"
mkdir "$T/odd" && echo x >"$T/odd/"$'new\nline\e[31m'
fails "odd names are shown safely" 'new\\nline\^\[' --data "$D" "$T/odd"
mkdir "$T/in"
for d in "$T/in" "$T/in/x" "$T/in/x/y" "$T/odd/../in/x"; do
    fails "data below the mount point: ${d#"$T"}" "below the mount point" --data "$d" "$T/in"
    is "and leaves nothing: ${d#"$T"}" "$(ls -A "$T/in")" ""
done
fails "a bad backend" "backend|moon" --backend moon --data "$D" "$M"
fails "a bad mount option" "frobnicate" -o frobnicate --data "$D" "$M"
[ -n "$root" ] || fails "/courier as a user" "sudo install -d -o" --data "$D" /courier-not-there/../courier

### the data directory
fails "data is a file" "file|directory" --data "$T/file" "$M"
if [ -z "$root" ]; then
    mkdir "$T/closed" && chmod 0 "$T/closed"
    fails "unreadable data" "closed" --data "$T/closed" "$M"
    mkdir "$T/below" && chmod 555 "$T/below"
    fails "no place for data" "below" --data "$T/below/x" "$M"
    chmod 755 "$T/closed" "$T/below"
fi
out=$(timeout 60 "$BIN/courierfs" --data "$D" "$M" 2>&1)
is "it starts" $? 0
is "one line" "$(wc -l <<<"$out")" 1
like "with where and what" "$out" "^courier: mounted on $M, data in $D, backend local \(no E2B key\)$"
yes "mounted" mountpoint -q "$M"
mkdir "$T/m2"
out=$(timeout 60 "$BIN/courierfs" --data "$D" "$T/m2" 2>&1)
yes "data in use: a status" test $? -ne 0
is "data in use: one line" "$(wc -l <<<"$out")" 1
like "data in use: says so" "$out" "$D.*in use|in use.*$D"
no "data in use: nothing is mounted" mountpoint -q "$T/m2"
out=$(timeout 60 "$BIN/courierfs" --data "$T/data2" "$M" 2>&1)
yes "busy: a status" test $? -ne 0
like "busy: says so" "$out" "$M.*(mounted|busy|in use)|(mounted|busy).*$M"
yes "the first goes on" test "$(cat "$M/status" | wc -l)" -gt 5
like "options of the mount" "$(grep " $M " /proc/mounts)" 'nosuid,nodev,noexec.*default_permissions|default_permissions'
like "nosuid, nodev, noexec" "$(findmnt -no OPTIONS "$M" 2>/dev/null || grep " $M " /proc/mounts)" 'nosuid.*nodev.*noexec'
like "modes" "$(stat -c %a "$M" "$M/status" "$M/config" "$M/ctl" | xargs)" '^700 400 600 600$'
is "what is in data is closed" "$(find "$D" -maxdepth 1 -type f ! -perm 600)" ""

### stopping
is "shutdown, and its close" "$(wr "$M/ctl" $'shutdown\n')" OK
yes "shutdown" soon 20 no_mount
yes "and its process ends" soon 20 none_left
yes "starts again" mount_
kill -TERM "$(pid)"
yes "SIGTERM" soon 20 no_mount
yes "and its process ends" soon 20 none_left
yes "starts again" mount_
yes "fusermount3 -u" fusermount3 -u "$M"
yes "ends its process" soon 20 none_left
(exec timeout 60 "$BIN/courierfs" -f --data "$D" "$M") >"$T/fg" 2>&1 &
fg=$!
yes "-f stays" soon 20 mountpoint -q "$M"
like "and prints its line" "$(cat "$T/fg")" "^courier: mounted on"
kill -TERM "$(pid)"
wait $fg
is "and ends with 0" $? 0
yes "unmounted" no_mount

### a stale mount, and who holds what
yes "starts" mount_
mkdir "$P"
mk a
p=$(pid)
children=$(pgrep -f "courier-sandboxd .*$T/"; pgrep -f "bwrap.*$T/")
is "no descriptor of the daemon in others" "$(
    for c in $children; do ls -l "/proc/$c/fd" 2>/dev/null; done | grep -cE "/dev/fuse|$D/(courier\.)?db|$D/.*\.db|$D/lock")" 0
kill -9 "$p"
yes "kill -9: others see the dead mount" soon 10 eval "! stat '$M/status'"
yes "starts over a stale mount" mount_
is "the sandbox goes on" "$(cat "$S/a/status")" running
kill -9 "$(pid)"
yes "at once after kill -9" mount_
is "one mount" "$(grep -c " $M " /proc/mounts)" 1

### a mount point that hangs: a sentence in a bounded time, and whose it is
# a file system that nobody serves: the first touch waits for ever
cat >"$T/hung.py" <<'END'
import os, socket, subprocess, sys, time
ours, theirs = socket.socketpair()
subprocess.run(["fusermount3", "-o", "fsname=hung,subtype=hung", "--",
                sys.argv[1]], check=True, pass_fds=[theirs.fileno()],
               env={**os.environ, "_FUSE_COMMFD": str(theirs.fileno())})
kept = ours.recvmsg(1, socket.CMSG_SPACE(4))
open(sys.argv[1] + ".ready", "w").close()
time.sleep(1000)
END
mkdir "$T/hung"
python3 "$T/hung.py" "$T/hung" &
hung=$!
p=$(pid)
ln -s "$M" "$T/link"
kill -STOP "$p"
mute="does not answer"
# hangs WHAT PATTERN ARGS...: refused; prints one line if it is as it must be
hangs() {
    local rc out t=$SECONDS
    out=$(timeout -k 1 30 "$BIN/courierfs" "${@:3}" 2>&1)
    rc=$?
    [ $rc = 1 ] && [ $((SECONDS - t)) -le 20 ] && [ "$(wc -l <<<"$out")" = 1 ] &&
        grep -qE "$2" <<<"$out" && return
    echo "$1: $rc after $((SECONDS - t)) s: $out"
}
yes "somebody else hangs, too" soon 10 test -e "$T/hung.ready"
# each waits as long as the others, so all at once
{
    hangs "stopped" "^courierfs: the mount point $M $mute: courierfs \(pid $p\) .*stopped; kill -CONT $p" --data "$D" "$M" &
    hangs "with other data" "$M $mute: courierfs \(pid $p\)" --data "$T/data4" "$M" &
    hangs "by a link" "$T/link $mute" --data "$T/data4" "$T/link" &
    hangs "a directory in it" "$M/projects $mute" --data "$T/data4" "$M/projects" &
    hangs "a file system of others" "$T/hung $mute: .* hangs" --data "$T/data4" "$T/hung" &
    hangs "below it" "$T/hung/a/b $mute" --data "$T/data4" "$T/hung/a/b" &
    (cd "$T" && hangs "a relative name" "mnt/../mnt $mute: courierfs \(pid $p\)" --data "$T/data4" mnt/../mnt) &
    hangs "its data, elsewhere" "$D is in use by another courierfs \(pid $p\)" --data "$D" "$T/m2" &
} >"$T/hangs"
for job in $(jobs -p); do [ "$job" = $hung ] || wait "$job"; done
is "what hangs is told in time" "$(cat "$T/hangs")" ""
kill -CONT "$p"
yes "it goes on" timeout 10 test -s "$M/status"
yes "and is told to be there" eval '"$BIN/courierfs" --data "$T/data4" "$M" 2>&1 | grep -q "mounted there already"'
fusermount3 -uz "$T/hung"
kill "$hung"
yes "nobody is left" soon 10 eval '[ "$(pgrep -fc "courierfs .*$T/")" = "$(pgrep -fc "courierfs --data $D $M")" ]'

# started through a pipe: end of file comes
mkdir -p "$T/m3"
is "through a pipe" "$(timeout 60 "$BIN/courierfs" --data "$T/data3" "$T/m3" 2>&1 | wc -l)" 1
is "a data directory that it made" "$(stat -c %a "$T/data3")" 700
kill "$(val "$T/m3/status" pid)"
yes "is ended" soon 20 eval "! mountpoint -q '$T/m3'"
# started without any of stdin, stdout, stderr
for closed in '<&-' '>&-' '2>&-' '<&- >&-' '<&- 2>&-' '>&- 2>&-' '<&- >&- 2>&-'; do
    yes "started with $closed" eval "timeout -k 1 20 '$BIN/courierfs' --data '$T/data3' '$T/m3' $closed"
    yes "it serves: $closed" grep -q ^version "$T/m3/status"
    kill "$(val "$T/m3/status" pid)"
    yes "is ended: $closed" soon 20 eval "! mountpoint -q '$T/m3'"
done
# the environment is wiped of keys
wr "$M/ctl" $'shutdown\n' >/dev/null
yes "ends" soon 20 no_mount
yes "nobody" soon 20 none_left
E2B_API_KEY=e2b_0123456789abcdef ANTHROPIC_API_KEY=sk-ant-Wq7secretQw7 GITHUB_TOKEN=ghp_Wq7secretQw7 \
    timeout 60 "$BIN/courierfs" --data "$D" --backend local "$M" >"$T/start" 2>&1
is "with keys in the environment" $? 0
is "they are wiped" "$(cat "/proc/$(pid)/environ" 2>/dev/null | tr '\0' '\n' | grep -cE 'e2b_0123|Wq7secretQw7')" 0
is "nor in its arguments" "$(tr '\0' '\n' <"/proc/$(pid)/cmdline" | grep -cE 'e2b_0123|Wq7secretQw7')" 0
is "nor stored" "$(ls "$M/keys" | wc -l)" 0
is "nor in its data" "$(grep -rlE 'e2b_0123|Wq7secretQw7' "$D" --include='*' 2>/dev/null | grep -vc '/boxes/')" 0

### a record from another time, damaged, read-only, full
wr "$M/ctl" $'shutdown all\n' >/dev/null
yes "shutdown all" soon 60 no_mount
yes "nobody" soon 30 none_left
yes "nor a sandbox" soon 30 eval "! pgrep -f 'bwrap.*$T/'"
db=$(find "$D" -maxdepth 1 -name '*.db' | head -n 1)
yes "there is a database ($db)" test -s "$db"
cp "$db" "$T/good.db"
v=$(python3 -c 'import sqlite3, sys
d = sqlite3.connect(sys.argv[1])
print(d.execute("PRAGMA user_version").fetchone()[0])
d.execute("PRAGMA user_version=999"); d.commit()' "$db")
fails "from a newer version" "newer" --data "$D" "$M"
is "it is untouched" "$(python3 -c 'import sqlite3, sys
print(sqlite3.connect(sys.argv[1]).execute("PRAGMA user_version").fetchone()[0])' "$db")" 999
rm -f "$db-wal" "$db-shm"
head -c 100000 /dev/urandom >"$db"
fails "no database" "damaged|not a database|malformed" --data "$D" "$M"
cp "$T/good.db" "$db"
yes "the good one again" mount_
is "all there" "$(cat "$S/a/status")" killed
python3 -c 'import sqlite3, sys, time
d = sqlite3.connect(sys.argv[1], isolation_level=None)
d.execute("BEGIN IMMEDIATE"); print("locked", flush=True); time.sleep(1.5)' "$db" >"$T/locked" &
locker=$!
yes "somebody locks it" soon 10 grep -q locked "$T/locked"
is "a write waits or says so" "$(wr "$P/ctl" $'killall\n' | sed 's/EBUSY/OK/')" OK
yes "reads go on" grep -q version "$M/status"
wait $locker
is "then it works" "$(wr "$P/ctl" $'killall\n')" OK
wr "$M/ctl" $'shutdown\n' >/dev/null
yes "ends" soon 20 no_mount
yes "nobody" soon 20 none_left
if [ -n "$root" ] && mkdir -p "$T/small" && mount -t tmpfs -o size=6m tmpfs "$T/small" 2>/dev/null; then
    yes "on a small disk" timeout 60 "$BIN/courierfs" --data "$T/small/d" "$M"
    mkdir "$P"
    mkdir "$S/s"
    head -c 20000000 /dev/zero >"$T/small/fill" 2>/dev/null
    head -c 900000 /dev/zero | tr '\0' x >"$T/x"
    n=0
    while cp "$T/x" "$P/home/f$n" 2>"$T/e" && [ $n -lt 40 ]; do n=$((n + 1)); done
    like "a full disk" "$(cat "$T/e")" 'No space'
    no "the refused one isn't there" test -s "$P/home/f$n"
    yes "reads go on" test "$(cat "$S/s/status")" = draft
    is "a command on a full disk" "$(wr "$S/ctl" "create name=xx tool=shell prompt=$(head -c 60000 "$T/x")"$'\n')" ENOSPC
    no "left nothing" test -e "$S/xx"
    rm "$T/small/fill"
    is "with room again" "$(wr "$P/home/again" hello)" OK
    is "is there" "$(cat "$P/home/again")" hello
    wr "$M/ctl" $'shutdown\n' >/dev/null
    yes "ends" soon 20 no_mount
    soon 20 none_left
    mount -o remount,ro "$T/small"
    fails "read-only" "[Rr]ead-only" --data "$T/small/d" "$M"
    umount -l "$T/small"
fi
yes "nothing of it all is left" soon 20 none_left
