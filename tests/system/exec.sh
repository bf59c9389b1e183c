#!/bin/bash
# exec: commands run in the VM, and exec/N.
. "$(dirname "$0")/../lib.sh"

start
mk one
X=$S/one/exec
tell() { wr "$S/one/ctl" "$1
"; }
# run COMMAND-LINE: its number in $N, once it has exited
run() {
    is "'${1:0:40}' is taken" "$(tell "$1")" OK
    N=$(readlink "$X/last")
    timeout 60 cat "$X/$N/wait/exited" >"$T/exited" 2>&1
}

is "none at first" "$(ls "$X" 2>&1)" ""
is "and no last" "$(eno lstat "$X/last")" ENOENT

run 'exec echo hello; echo oops >&2; exit 3'
is "the number" "$N" 1
is "listed" "$(ls "$X/1" | tr '\n' ' ')" "cmd exit status stderr stdin stdout "
is "wait/exited" "$(cat "$T/exited")" exited
is "cmd" "$(cat "$X/1/cmd")" 'echo hello; echo oops >&2; exit 3'
is "status" "$(cat "$X/1/status")" exited
is "stdout" "$(cat "$X/1/stdout")" hello
is "stderr" "$(cat "$X/1/stderr")" oops
is "exit" "$(cat "$X/1/exit")" 3
is "last" "$(readlink "$X/last") $(cat "$X/last/exit")" "1 3"
is "sizes are true" "$(stat -c %s "$X/1/stdout" "$X/1/stderr" "$X/1/cmd" | tr '\n' ' ')" \
    "6 5 $(wc -c <"$X/1/cmd") "
like "the outcome names it" "$(cat "$S/one/ctl")" 'ok exec.*1$'

# ---- the rest of the line as it stands ----

run "exec echo it's \"a  b\" \$HOME \$((1+2)) | tr a-z A-Z"
run 'exec echo "a  b" $((1+2)) $HOME # not this'
is "quotes and blanks" "$(cat "$X/$N/stdout")" "a  b 3 /home/user"
run 'exec pwd; id -un'
is "where and who" "$(cat "$X/$N/stdout")" $'/home/user\nuser'
run 'exec true'
is "no output" "$(stat -c %s "$X/$N/stdout") $(cat "$X/$N/exit")" "0 0"
run 'exec kill -9 $$'
like "a signal" "$(cat "$X/$N/exit")" '^(137|-1|9)$'
run 'exec printf "\033[31mred\377\000x"'
is "bytes as they are" "$(od -An -c "$X/$N/stdout" | tr -d ' \n')" '033[31mred377\0x'

# ---- a body ----

cat >"$S/one/ctl" <<'END'
exec <<
cd /tmp
for i in 1 2 3; do
    echo "line $i"
done
cat <<EOF
here
EOF
exit 7
END
N=$(readlink "$X/last")
timeout 30 cat "$X/$N/wait/exited" >/dev/null
is "a script" "$(cat "$X/$N/stdout")" $'line 1\nline 2\nline 3\nhere'
is "its code" "$(cat "$X/$N/exit")" 7
like "its text" "$(cat "$X/$N/cmd")" 'for i in 1 2 3; do'
# it is there from its line on: what looks for it can't come too early
n=$(readlink "$X/last")
exec 4>"$S/one/ctl"
printf 'exec <<\n' >&4
N=$(readlink "$X/last")
is "from its line on" "$N" $((n + 1))
is "not over" "$(cat "$X/$N/status")" running
is "without its command" "$(cat "$X/$N/cmd")" ''
printf 'echo at last\n' >&4
timeout 30 cat "$X/$N/wait/exited" >"$T/exited" 4>&- & waiter=$!
exec 4>&-
wait "$waiter"
is "ends as others" "$(cat "$X/$N/stdout")" 'at last'
exec 4>"$S/one/ctl"
printf 'exec <<\nfalse\0' >&4
N=$(readlink "$X/last")
exec 4>&-
gone() { [ ! -e "$X/$N" ]; }
yes "one that is refused at its end is gone" soon 5 gone
is "an empty command" "$(tell 'exec')" EINVAL
is "an end mark" "$(tell 'exec <<EOF')" OK # a command as it stands
timeout 30 cat "$X/last/wait/exited" >/dev/null

# ---- while it runs ----

is "a slow one" "$(tell 'exec echo begin; while [ ! -e go ]; do sleep 0.1; done; echo end; sleep 0.3; exit 4')" OK
N=$(readlink "$X/last")
yes "its output grows" soon 10 grep -q begin "$X/$N/stdout"
is "it is running" "$(cat "$X/$N/status")" running
is "no exit code yet" "$(cat "$X/$N/exit")" ""
is "O_NONBLOCK" "$(python3 -c '
import errno, os, sys
f = os.open(sys.argv[1], os.O_RDONLY | os.O_NONBLOCK)
try:
    print(os.read(f, 99))
except OSError as e:
    print(errno.errorcode[e.errno])' "$X/$N/wait/exited")" EAGAIN
timeout 20 tail -n +1 -f "$X/$N/stdout" >"$T/tail" 2>/dev/null &
tail_pid=$!
for i in 1 2 3; do timeout 30 cat "$X/$N/wait/exited" >"$T/w$i" & done
echo go >"$S/one/files/go"
yes "every waiter is told" soon 20 grep -q exited "$T/w1"
soon 5 grep -q exited "$T/w2" && soon 5 grep -q exited "$T/w3" && ok || bad "not all"
is "its code then" "$(cat "$X/$N/exit")" 4
yes "tail -f shows the end" soon 5 grep -q end "$T/tail"
kill $tail_pid
is "no work waits behind a message" "$(wr "$S/one/message" 'echo turn')" OK
is "the turn" "$(wait_for one "done")" completed

# ---- much ----

run 'exec seq 300000; head -c 3000000 /dev/zero | tr "\0" e >&2'
is "much output" "$(md5sum <"$X/$N/stdout")" "$(seq 300000 | md5sum)"
is "much error output" "$(stat -c %s "$X/$N/stderr")" 3000000
for i in $(seq 20); do tell "exec echo $i" >/dev/null; done
for i in $(seq 20); do
    timeout 60 cat "$X/$((N + i))/wait/exited" >/dev/null
    echo "$(cat "$X/$((N + i))/stdout")"
done >"$T/all"
is "in the order written" "$(cat "$T/all")" "$(seq 20)"
is "last is the newest" "$(readlink "$X/last")" $((N + 20))

# ---- the tools of the tree ----

is "not writable" "$(wr "$X/1/stdout" x)" "$([ $root ] && echo EROFS || echo EACCES)"
is "not removed" "$(eno unlink "$X/1/stdout")" EPERM
is "nor as a whole" "$(eno rmdir "$X/1")" EPERM
is "nor made" "$(eno mkdir "$X/99")" EPERM
yes "cp -r" cp -r "$X" "$T/copy"
is "cp -r copies" "$(cat "$T/copy/1/stdout")" hello

# ---- states ----

tell 'exec sleep 300' >/dev/null
N=$(readlink "$X/last")
yes "a long one begins" soon 10 grep -q running "$X/$N/status"
timeout 60 cat "$X/$N/wait/exited" >"$T/w" 2>&1 &
waiter=$!
echo 'kill now' >"$S/one/ctl"
wait_for one ended >/dev/null
wait $waiter
[ $? != 124 ] && ok || bad "wait/exited hangs after the end"
is "it is over" "$(cat "$X/$N/status")" exited
is "not in an ended one" "$(tell 'exec true')" EBUSY
is "the record stays" "$(cat "$X/1/stdout")" hello
mkdir "$S/draft"
is "not in a draft" "$(wr "$S/draft/ctl" 'exec true
')" EBUSY

# ---- a restart ----

mk two
wr "$S/two/ctl" 'exec echo a; while [ ! -e go ]; do sleep 0.1; done; echo b; exit 5
' >/dev/null
soon 10 grep -q a "$S/two/exec/1/stdout"
kill -9 "$(pid)"
sleep 0.3
mount_ || bad "no restart: $(cat "$T/start")"
is "still running" "$(cat "$S/two/exec/1/status")" running
soon 20 sh -c "echo go >'$S/two/files/go'"
is "waited for" "$(timeout 30 cat "$S/two/exec/1/wait/exited")" exited
is "nothing lost" "$(cat "$S/two/exec/1/stdout" "$S/two/exec/1/exit" | tr '\n' ' ')" "a b 5 "
is "the first one's record" "$(cat "$X/1/stdout")" hello
