#!/bin/bash
# .files/: the agent's home inside the running VM, with ordinary tools.
. "$(dirname "$0")/../lib.sh"

start
mk one
F=$S/one/files
vm() { ask one "$1" >/dev/null; } # in the VM, in its home

# ---- there, and in no listing ----

is "the symlink" "$(readlink "$F")" .files
unlike "not listed" "$(ls -A "$S/one")" '^\.files$'
yes "open by name" test -d "$S/one/.files/."
vm 'mkdir -p project/sub && echo needle-in-vm >project/a && echo b >project/sub/b'
is "grep -r does not enter" "$(grep -rl needle-in-vm "$S/one" "$P/by-status" | grep -v -e /log -e /messages -e /events)" ""
is "find does not enter" "$(find "$M" -name a)" ""
is "rg does not enter" "$(rg -uu --files "$S/one" | grep -c '/\.files/')" 0
yes "tar" tar -C "$S" -cf "$T/one.tar" one
unlike "tar does not enter" "$(tar -tf "$T/one.tar")" 'sub/b|files/.'
yes "rsync" rsync -a "$S/one/" "$T/rs/"
is "rsync copies the link" "$(readlink "$T/rs/files")" .files
no "rm -r of a sandbox fails" rm -rf "$S/one"
is "and loses nothing in the VM" "$(cat "$F/project/sub/b")" b

# ---- reading ----

like "ls" "$(ls "$F/")" '^project$'
is "cat" "$(cat "$F/project/a")" needle-in-vm
is "size" "$(stat -c %s "$F/project/a")" 13
unlike "the home has a time" "$(stat -c %y "$F/.")" '^1970'
is "cp -r out" "$(cp -r "$F/project" "$T/copy" && cat "$T/copy/sub/b")" b
is "tail" "$(tail -c 4 "$F/project/a")" "-vm"
is "a range" "$(dd if="$F/project/a" bs=1 skip=7 count=2 status=none)" in
is "grep -r inside" "$(grep -rl needle "$F/project/")" "$F/project/a"
vm 'echo more >>project/a'
yes "what the VM changes is seen" soon 3 grep -q more "$F/project/a"
vm 'touch project/new; rm project/sub/b'
yes "what it makes, too" soon 3 test -e "$F/project/new"
yes "and what it removes" soon 3 test ! -e "$F/project/sub/b"
# a reader that stays open sees what is appended
: >"$T/tail"
timeout 20 tail -n +1 -f "$F/project/a" >"$T/tail" &
tail_pid=$!
yes "tail -f begins" soon 5 grep -q more "$T/tail"
vm 'echo appended >>project/a'
yes "tail -f goes on" soon 5 grep -q appended "$T/tail"
kill $tail_pid

# ---- writing ----

is "write" "$(echo one >"$F/w" && cat "$F/w")" one
is "append" "$(echo two >>"$F/w" && cat "$F/w")" $'one\ntwo'
is "overwrite" "$(echo three >"$F/w" && cat "$F/w")" three
yes "truncate" truncate -s 2 "$F/w"
is "truncated" "$(cat "$F/w")" th
is "an empty one" "$(: >"$F/empty" && stat -c %s "$F/empty")" 0
is "in the middle" "$(printf X | dd of="$F/w" bs=1 seek=1 conv=notrunc status=none && cat "$F/w")" tX
yes "sed -i" sed -i s/tX/ok/ "$F/w"
is "sed -i did" "$(cat "$F/w")" ok
yes "mkdir -p" mkdir -p "$F/x/y/z"
yes "cp -r in" cp -r "$T/copy" "$F/x/"
is "cp -r did" "$(cat "$F/x/copy/a" | head -n 1)" needle-in-vm
yes "mv" mv "$F/w" "$F/x/y/w2"
is "mv did" "$(cat "$F/x/y/w2")" ok
echo old >"$F/x/y/old"
yes "mv over" mv -f "$F/x/y/w2" "$F/x/y/old"
is "mv over did" "$(cat "$F/x/y/old")" ok
yes "mv of a directory" mv "$F/x/y" "$F/x/Y"
is "is whole" "$(cat "$F/x/Y/old")" ok
vm 'cat x/Y/old; find x | sort >x/list'
yes "the VM sees the same" soon 3 grep -q x/copy/a "$F/x/list"
is "rmdir of a full one" "$(eno rmdir "$F/x")" ENOTEMPTY
yes "rm -r" rm -r "$F/x"
no "is gone" test -e "$F/x"
is "what is not there" "$(eno stat "$F/none/x")" ENOENT
is "a file as a directory" "$(eno stat "$F/empty/x")" ENOTDIR
is "mkdir over" "$(eno mkdir "$F/project")" EEXIST
is "out of it by mv" "$(eno rename "$F/empty" "$P/home/empty")" EPERM
yes "out of it by cp" cp "$F/empty" "$P/home/empty"
is "a hard link" "$(eno link "$F/project/a" "$F/hard")" EPERM
is "a symlink" "$(eno symlink a "$F/soft")" EPERM
yes "an editor's way" sh -c "cp '$F/project/a' '$F/project/a~' && echo v2 >'$F/project/a' && rm '$F/project/a~'"
is "saved" "$(cat "$F/project/a")" v2
is "an error is told at the close" "$(vm 'mkdir ro; chmod 555 ro'; sh -c "echo x >'$F/ro/f'" 2>&1 | grep -c .)" 1

# ---- symlinks never lead out ----

vm 'cd; ln -s a project/rel; ln -s /etc/passwd abs; ln -s /home/user/project/a absin
mkdir d d/e; ln -s . dot; ln -s ../dot/../../../../../../../etc/passwd d/trap
ln -s ../../../../../../../../etc/passwd up; ln -s dot/../../../../../../etc/passwd t2
ln -s /proc/self/root root; ln -s ../.. d/e/upup; ln -s nothing dead; ln -s loop loop
ln -s /home/user/../../etc/passwd t3; ln -s /home/user/dot/../../../../etc/passwd t4'
sleep 1.1
is "a relative one" "$(readlink "$F/project/rel") $(cat "$F/project/rel")" "a v2"
is "an absolute one inside" "$(cat "$F/absin")" v2
is "to the directory itself" "$(cat "$F/dot/dot/project/a")" v2
for l in abs d/trap up t2 t3 t4; do
    is "$l can't lead out" "$(readlink "$F/$l")" "(outside)"
    is "$l is dead" "$(eno stat "$F/$l")" ENOENT
done
for l in root dead loop; do
    no "$l leads nowhere" test -e "$F/$l/etc/passwd"
done
find "$S/one/.files/" -type l -printf '%l\n' >"$T/links"
unlike "no target is absolute" "$(cat "$T/links")" '^/'
unlike "no dots behind a name" "$(cat "$T/links")" '[^./]/\.\.'
follow=$(find -L "$S/one/.files/" -xtype f 2>/dev/null)
unlike "find -L stays inside" "$follow" passwd

# ---- odd names ----

vm 'touch "sp ace" "$(printf "new\nline")" "$(printf "t\tb")" "quo\"te" -- -dash "Ünï" .hidden "star*"
touch "$(printf "bad\377")"; mkfifo fifo; echo x >"back\\slash"'
sleep 1.1
for n in 'sp ace' $'new\nline' $'t\tb' 'quo"te' -dash Ünï .hidden 'star*' 'back\slash'; do
    yes "'$n' is there" test -e "$F/$n"
    is "'$n' is written" "$(echo "w $n" >"$F/$n" && cat "$F/$n")" "w $n"
done
like "one that is not UTF-8 is shown escaped" "$(ls "$F/")" '^bad\\xff$'
no "and refused" cat "$F/bad\\xff"
like "in words" "$(tail -n 1 "$M/errors")" 'bad.*UTF-8'
is "nor made" "$(wr "$F/$(printf 'x\377')" x)" EINVAL
long=$(printf '%0255d' 1)
yes "255 bytes" touch "$F/$long"
is "256 bytes" "$(eno open "$F/${long}x" 65)" ENAMETOOLONG
unlike "a fifo is not shown" "$(ls "$F/")" fifo

# ---- a large file ----

head -c 300000000 /dev/urandom >"$T/big"
hwm() { awk '/VmHWM/ { print $2 }' "/proc/$(pid)/status"; }
before=$(hwm)
yes "300 MB up" cp "$T/big" "$F/big"
yes "and down" cmp "$T/big" "$F/big"
grown=$(($(hwm) - before))
if [ $grown -lt 150000 ]; then ok; else bad "the daemon grew by $grown kB"; fi
rm "$T/big" "$F/big"

# ---- git on a repository of 1000 files ----

vm 'mkdir -p project && cd project && rm -rf * && git init -q . && for i in $(seq 20); do
mkdir d$i; for j in $(seq 50); do echo $i.$j >d$i/f$j; done; done
git add -A; git -c user.name=a -c user.email=a@b commit -qm all'
sleep 1.1
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
t=${EPOCHREALTIME/./}
is "git status is clean" "$(timeout 60 git -C "$F/project" status --short 2>&1)" ""
t=$(((${EPOCHREALTIME/./} - t) / 1000))
if [ $t -lt 15000 ]; then ok; else bad "git status took $t ms"; fi
echo changed >"$F/project/d3/f4"
is "git status sees a change" "$(timeout 60 git -C "$F/project" status --short)" " M d3/f4"
is "git log" "$(git -C "$F/project" log --format=%s)" all

# ---- a VM that is not there ----

echo open >"$F/held"
exec 7<"$F/held" 8<"$F/project/d1/f1"
echo pause >"$S/one/ctl"
wait_for one paused >/dev/null
is "paused: the directory" "$(ls "$F/" 2>&1 | grep -c 'Host is down')" 1
is "paused: a file" "$(eno open "$F/held" 0)" EHOSTDOWN
is "paused: writing" "$(wr "$F/new" x)" EHOSTDOWN
is "the symlink is still there" "$(readlink "$F")" .files
is "ls of the sandbox works" "$(ls "$S/one" | grep -c '^files$')" 1
t=$SECONDS
timeout 30 cat <&8 >/dev/null 2>&1
[ $? != 124 ] && [ $((SECONDS - t)) -lt 25 ] && ok || bad "a read of an open file hangs while paused"
echo resume >"$S/one/ctl"
wait_for one running >/dev/null
yes "resumed: there again" soon 10 grep -q open "$F/held"
exec 9<>"$F/held"
echo "kill now" >"$S/one/ctl"
wait_for one ended >/dev/null
is "killed: a file" "$(eno open "$F/held" 0)" EHOSTDOWN
timeout 30 cat <&7 >"$T/out" 2>&1
rc=$?
[ $rc != 124 ] && ok || bad "a read of an open file hangs after the end"
timeout 30 sh -c 'echo late >&9' 2>/dev/null
timeout 30 python3 -c 'import os, sys
try:
    os.fsync(9)
except OSError as e:
    print(e.errno)' >"$T/out"
is "what was not sent is told at the close" "$(cat "$T/out")" 112
exec 7<&- 8<&- 9<&-
is "the daemon lives" "$(cat "$S/one/status")" killed

# ---- a VM that is killed under an open file ----

mk two
G=$S/two/files
ask two 'head -c 50000000 /dev/zero >big' >/dev/null
(timeout 60 cat "$G/big" >"$T/got" 2>"$T/goterr"; echo $? >"$T/gotrc") &
timeout 60 python3 - "$G/slow" "$T/slow" <<'END' &
import os, sys, time
f = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
os.write(f, b"x")
open(sys.argv[2], "w").write("open")
while not os.path.exists(sys.argv[2] + ".go"):
    time.sleep(0.05)
try:
    os.close(f)
    r = "no error"
except OSError as e:
    r = str(e.errno)
open(sys.argv[2], "w").write(r)
END
slow=$!
soon 20 grep -q open "$T/slow"
echo 'kill now' >"$S/two/ctl"
wait_for two ended >/dev/null
touch "$T/slow.go"
yes "the reader comes back" soon 40 test -s "$T/gotrc"
wait $slow
like "the writer gets an error" "$(cat "$T/slow")" '^(112|113|110)$'
