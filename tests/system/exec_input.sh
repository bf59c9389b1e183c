#!/bin/bash
# exec/N/stdin: what is written to a command, on the local host and over the
# wire, each with a daemon of its own.
#   tests/system/exec_input.sh [local|e2b]
. "$(dirname "$0")/../lib.sh"

if [ $# = 0 ]; then
    export BIN
    "$0" local >"$T/local" 2>&1 &
    "$0" e2b >"$T/e2b" 2>&1 &
    wait
    for b in local e2b; do
        sed '$d' "$T/$b" | sed "s/^/$b: /"
        read -r p _ f _ < <(tail -n 1 "$T/$b")
        passed=$((passed + ${p:-0})) failed=$((failed + ${f:-1}))
    done
    exit
fi
if [ "$1" = e2b ]; then
    "$BIN/courier-sandboxd" --data "$T/host" --idle 600 >/dev/null || exit 1
    export E2B_API_KEY E2B_API_URL E2B_SANDBOX_URL
    E2B_API_KEY=$(jq -r .key "$T/host/host.json")
    E2B_API_URL=$(jq -r .url "$T/host/host.json") E2B_SANDBOX_URL=$E2B_API_URL
fi
start --backend "$1"
mk one
mk two
X=$S/one/exec Y=$S/two/exec
tell() { wr "$S/$1/ctl" "exec $2
"; }
# new SANDBOX COMMAND: its number in $N
new() {
    is "'${2:0:40}' is taken" "$(tell "$1" "$2")" OK
    N=$(readlink "$S/$1/exec/last")
}
# over WHAT: it has exited
over() {
    is "$1" "$(timeout 30 cat "$S/one/exec/$N/wait/exited" 2>&1)" exited
}
# opened FLAGS: the errno of opening it so
opened() {
    python3 -c '
import errno, os, sys
try:
    os.close(os.open(sys.argv[1], eval("os." + sys.argv[2].replace("|", "|os."))))
    print("OK")
except OSError as e:
    print(errno.errorcode[e.errno])' "$X/$N/stdin" "$1"
}

# nobody writes, in a sandbox of its own: meanwhile the rest is tried
new two 'cat; echo over'
alone=$SECONDS

# ---- one writer ----

new one 'cat'
is 'at once, before it has begun' "$(wr "$X/$N/stdin" 'one line
')" OK
over 'the close is the end'
is 'it came' "$(cat "$X/$N/stdout")" 'one line'
is 'then no more' "$(wr "$X/$N/stdin" x)" EBUSY
like 'in words' "$(cat "$P/errors")" "exec/$N/stdin.*the command has exited"
is 'reads as empty' "$(stat -c '%s %a' "$X/$N/stdin")$(cat "$X/$N/stdin")" '0 600'

new one 'wc -c'
: >"$T/empty"
yes 'an empty file' cp "$T/empty" "$X/$N/stdin"
over 'is an input, too'
is 'of nothing' "$(cat "$X/$N/stdout")" 0

new one 'sort; echo sorted'
{
    printf 'c\nb\n'
    (printf 'a\n')
    /bin/echo d
} >"$X/$N/stdin"
over 'a group is one input'
is 'all of it' "$(tr '\n' ' ' <"$X/$N/stdout")" 'a b c d sorted '

head -c 3000000 /dev/urandom >"$T/bytes"
new one 'sleep 0.5; md5sum; sleep 0.2'
yes 'bytes, more than it has room for' sh -c "cat '$T/bytes' >'$X/$N/stdin'"
over 'they end'
is 'as they were' "$(cut -c1-32 "$X/$N/stdout")" "$(md5sum <"$T/bytes" | cut -c1-32)"

# ---- many ----

new one 'while read -r l; do echo "got $l"; done; echo over'
exec 3>"$X/$N/stdin"
echo a >&3
yes 'it answers while the file is open' soon 10 grep -q 'got a' "$X/$N/stdout"
echo b >"$X/$N/stdin" # not the end: 3 is open still
echo c >&3
yes 'one closes, another goes on' soon 10 grep -q 'got c' "$X/$N/stdout"
is 'it runs' "$(cat "$X/$N/status")" running
exec 3>&-
over 'the last close is the end'
is 'in order' "$(tr '\n' ' ' <"$X/$N/stdout")" 'got a got b got c over '

new one 'while read -r l; do echo "got $l"; done; echo over'
for i in 1 2 3; do echo "$i" >>"$X/$N/stdin" || bad "append $i"; done
yes '>> goes on' soon 10 grep -q 'got 3' "$X/$N/stdout"
is 'opened to read' "$(opened O_RDONLY)" OK
touch -c "$X/$N/stdin"
is 'opened for nothing' "$(opened O_WRONLY)" OK
sleep 0.3
is 'is no end' "$(cat "$X/$N/status")" running
: >"$X/$N/stdin"
over 'an empty > is'
is 'all came' "$(tr '\n' ' ' <"$X/$N/stdout")" 'got 1 got 2 got 3 over '

# ---- what it can't take ----

new one 'exec <&-; sleep 1'
printf x >"$X/$N/stdin"
over 'one that reads nothing'
new one 'sleep 300'
head -c 40000000 /dev/zero >>"$X/$N/stdin" 2>"$T/full" &
writer=$!
full=$(python3 - "$X/$N/stdin" <<'END'
import errno, os, select, sys, time
f = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK)
p = select.poll()
p.register(f, select.POLLOUT)
n = 0
for i in range(200):
    n = 0 if p.poll(0) else n + 1
    if n == 10:
        break
    time.sleep(0.05)
print(n)
END
)
is 'what is full polls so' "$full" 10
yes 'the writer waits' kill -0 $writer
kill $writer
wait $writer
is 'and can be killed' $? 143
is 'O_NONBLOCK' "$(python3 - "$X/$N/stdin" <<'END'
import errno, os, sys
f = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK)
try:
    for i in range(100):
        os.write(f, b'x' * 1000000)
    print('all')
except OSError as e:
    print(errno.errorcode[e.errno])
END
)" EAGAIN
new one 'cat'
is 'one that has not begun takes it' "$(wr "$X/$N/stdin" early)" OK
(head -c 40000000 /dev/zero >>"$X/$((N - 1))/stdin") >"$T/later" 2>&1 &
later=$!

# ---- paused, resumed, ended ----

sleep 0.5
kill -0 $later || bad "it does not wait: $(cat "$T/later")"
echo pause >"$S/one/ctl"
wait_for one paused >/dev/null
wait $later
like 'a pause refuses who waits' "$(cat "$T/later")" 'Host is down'
is 'and who comes' "$(wr "$X/$((N - 1))/stdin" x)" EHOSTDOWN
echo resume >"$S/one/ctl"
wait_for one running >/dev/null
(head -c 40000000 /dev/zero >>"$X/$((N - 1))/stdin") >"$T/later" 2>&1 &
later=$!
sleep 0.3
timeout 30 cat "$X/$N/wait/exited" >"$T/exited" 2>&1 &
waiter=$!
echo 'kill now' >"$S/one/ctl"
is 'killed' "$(wait_for one ended)" killed
wait $later
like 'the end refuses who waits' "$(cat "$T/later")" 'resource busy'
wait $waiter
is 'one that never began is over' "$(cat "$T/exited" "$X/$N/exit" | tr '\n' ' ')" 'exited killed '

# ---- nobody writes ----

like 'it ends by itself' "$(timeout 30 cat "$Y/1/wait/exited")" exited
is 'as if its input were empty' "$(cat "$Y/1/stdout" "$Y/1/exit" | tr '\n' ' ')" 'over 0 '
[ $((SECONDS - alone)) -ge 10 ] && ok || bad "after $((SECONDS - alone)) s already"

# ---- the daemon dies ----

X=$Y
new two 'cat; echo over'
exec 3>"$Y/$N/stdin"
echo before >&3
kill -9 "$(pid)"
exec 3>&-
sleep 0.3
mount_ --backend "$1" || bad "no restart: $(cat "$T/start")"
is 'who had it open has lost it: that is the end' \
    "$(timeout 30 cat "$Y/$N/wait/exited")" exited
is 'what was written is there' "$(tr '\n' ' ' <"$Y/$N/stdout")" 'before over '
new two 'cat; echo over'
echo before >>"$Y/$N/stdin"
kill -9 "$(pid)"
sleep 0.3
mount_ --backend "$1" || bad "no restart: $(cat "$T/start")"
echo after >>"$Y/$N/stdin"
echo end >"$Y/$N/stdin"
is 'what is kept goes on' "$(timeout 30 cat "$Y/$N/wait/exited")" exited
is 'each once' "$(tr '\n' ' ' <"$Y/$N/stdout")" 'before after end over '
