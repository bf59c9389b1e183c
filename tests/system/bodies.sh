#!/bin/bash
# Bodies of commands and messages (§3, §6): one body up to the last close of
# the open file, whoever does it; durable at every close on the way; dropped
# without one. Sizes; what a wait sees meanwhile.
cd "$(dirname "$0")/../.." && . tests/lib.sh || exit 2
start
mk a
users() { grep -c '  user  #' "$S/a/messages"; }
said() { # the text of the last user message
    awk '/^── .*  user  #/ { t = ""; on = 1; next } /^── / { on = 0 }
        on { t = t $0 "\n" } END { printf "%s", t }' "$S/a/messages" | sed '/^$/d'
}
is_users() { [ "$(users)" = "$1" ]; }

### the file message
printf 'echo one' >"$S/a/message"
is "printf" "$(wait_for a done)" completed
is "one message" "$(users)" 1
echo 'echo two' | cat >"$S/a/message"
is "cat" "$(wait_for a done)" completed
is "two messages" "$(users)" 2
echo 'echo A' >"$T/1"
echo 'echo B' >"$T/2"
{ cat "$T/1"; cat "$T/2"; echo 'echo C'; } >"$S/a/message"
is "three writers" "$(wait_for a done)" completed
is "one message" "$(users)" 3
is "with all parts" "$(said)" $'echo A\necho B\necho C'
is "its output" "$(tail -n 5 "$S/a/messages" | grep -xE '[ABC]' | xargs)" "A B C"

# the writing shell closes it while a child still has it
exec 3>"$S/a/message"
printf 'echo part one ' >&3
(true)
/bin/true
sleep 300 &
child=$!
printf 'part two' >&3
is "not sent while it is open" "$(users)" 3
like "it counts as queued" "$(timeout 0.3 cat "$S/a/wait/idle"; echo $?)" 124
exec 3>&-
is "a child has it: not yet" "$(sleep 0.3; users)" 3
kill $child 2>/dev/null
wait $child 2>/dev/null
yes "sent at the last close" soon 10 is_users 4
is "done" "$(wait_for a done)" completed
is "one message of both parts" "$(said)" "echo part one part two"

# a child that inherited the file and writes nothing changes nothing
exec 3>"$S/a/message"
exec 3>&-
is "nothing written, nothing sent" "$(wait_for a idle)" idle
is "no message" "$(users)" 4
: >"$S/a/message"
truncate -s 0 "$S/a/message"
is "no message" "$(users)" 4
is "message reads as empty" "$(cat "$S/a/message")" ""
yes "tee" eval 'echo "echo tee" | tee "$S/a/message" >/dev/null'
yes "dd" eval 'printf "echo d\necho d2\n" | dd of="$S/a/message" bs=3 status=none'
yes "cp" cp "$T/1" "$S/a/message"
yes "append" eval 'cat "$T/2" >> "$S/a/message"'
is "done" "$(wait_for a done)" completed
is "eight messages" "$(users)" 8
# its line begins with what would be a command, a token, a comment
printf '# id=x << kill\necho ok-$((1+1))\n' >"$S/a/message"
is "done" "$(wait_for a done)" completed
like "a text, not a command" "$(said)" '^# id=x << kill'
is "it still runs" "$(cat "$S/a/status")" running

### bodies of commands
n=$(users)
{ echo 'message <<'; /bin/echo 'echo hello'; (exit 0); echo 'echo world'; } >"$S/a/ctl"
is "message <<" "$(wait_for a done)" completed
is "is one" "$(users)" $((n + 1))
is "is whole" "$(said)" $'echo hello\necho world'
cat >"$S/ctl" <<'END'
create name=b tool=shell timeout=30m <<
echo body-$((1+1))

echo "it's << here"
END
is "create <<" "$(wait_for b done)" completed
is "its prompt" "$(cat "$S/b/prompt")" $'echo body-$((1+1))\n\necho "it\'s << here"'
like "was done" "$(cat "$S/b/messages")" '^body-2'
is "lines before the body" "$(wr "$S/ctl" $'# x\ncreate name=c1 tool=shell\ncreate name=c2 tool=shell <<\necho in-c2\ncreate name=c3 tool=shell\n')" OK
is "are commands" "$(wait_for c1 running)" running
is "the rest is the body" "$(wait_for c2 done)" failed
is "all of it" "$(cat "$S/c2/prompt")" $'echo in-c2\ncreate name=c3 tool=shell'
no "and no command" test -e "$S/c3"
is "an empty body" "$(wr "$S/ctl" $'create name=e tool=shell <<\n')" OK
is "runs" "$(wait_for e running)" running
is "without a prompt" "$(cat "$S/e/prompt" "$S/e/messages")" ""
is "a mark without newline" "$(wr "$S/ctl" 'create name=e2 tool=shell <<')" OK
is "runs" "$(wait_for e2 running)" running
is "end markers are refused" "$(wr "$S/ctl" $'create name=e3 tool=shell <<END\nx\nEND\n')" EINVAL
like "in words" "$(grep -v '^# [a-z]' "$S/ctl" | tail -n 2)" "no end marker here"
no "nothing was made" test -e "$S/e3"
is "a bad line before a body" "$(wr "$S/ctl" $'create name=e3 tool=nobody <<\nx\n')" EINVAL
is "kill takes no body" "$(wr "$S/a/ctl" $'kill <<\nx\n')" EINVAL
is "exec <<" "$(wr "$S/a/ctl" $'exec <<\necho x1\necho x2\n')" OK
wait_for a done >/dev/null
exec_said() { [ "$(cat "$S/a/exec/1/stdout")" = $'x1\nx2' ]; }
yes "is done" soon 20 exec_said

# while it is open: a draft that is there, a message that counts
python3 - "$S" >"$T/open" <<'E2'
import os, sys
S = sys.argv[1]
read = lambda p: open(S + "/" + p).read().strip()
fd = os.open(S + "/ctl", os.O_WRONLY)
os.write(fd, b"create name=op tool=shell <<\n")
print(read("op/status"))
os.write(fd, b"echo first\n")
two = os.dup(fd)
os.close(two)
print(read("op/status"))
os.write(fd, b"echo second\n")
os.close(fd)
E2
is "a draft until the last close" "$(xargs <"$T/open")" "draft draft"
is "then it starts" "$(wait_for op done)" completed
is "with all of it" "$(cat "$S/op/prompt")" $'echo first\necho second'

### what has come is durable at each close; without one it is dropped
n=$(users)
python3 - "$S" >"$T/crash" <<'E2' &
import os, sys, time
S = sys.argv[1]
one = os.open(S + "/a/message", os.O_WRONLY)
os.write(one, b"echo durable-$((1+1))\n")
os.close(os.dup(one))
two = os.open(S + "/ctl", os.O_WRONLY)
os.write(two, b"create name=dropped tool=shell <<\necho x\n")
three = os.open(S + "/ctl", os.O_WRONLY)
os.write(three, b"create name=kept tool=shell <<\necho kept-$((1+1))\n")
os.close(os.dup(three))
four = os.open(S + "/a/message", os.O_WRONLY)
os.write(four, b"echo never\n")
five = os.open(S + "/ctl", os.O_WRONLY)
os.write(five, b"create name=begun tool=shell <<\necho x\n")
print("ready", flush=True)
time.sleep(600)
E2
writer=$!
yes "the writer is there" soon 20 grep -q ready "$T/crash"
wr "$S/begun/ctl" $'start\n' >/dev/null
is "one is started before its body is there" "$(wait_for begun running)" running
kill -9 "$(pid)"
kill -9 $writer
wait $writer 2>/dev/null
yes "it starts again" mount_
is "the durable message is done" "$(wait_for a done)" completed
is "once, and not the other" "$(users)" $((n + 1))
like "it" "$(said)" durable
is "the durable create is done" "$(wait_for kept done)" completed
like "it" "$(cat "$S/kept/messages")" '^kept-2'
no "the other draft is gone" test -e "$S/dropped"
is "the one that was started is there" "$(cat "$S/begun/status")" running
is "and counted" "$(val "$P/status" active)" "$(ls "$P/by-status/running" | wc -l)"

# a writer that dies closes its file: what it wrote is the body
python3 -c '
import os, sys
fd = os.open(sys.argv[1], os.O_WRONLY)
os.write(fd, b"echo of-the-dead")
os.kill(os.getpid(), 9)' "$S/a/message" 2>/dev/null &
wait $! 2>/dev/null
yes "a writer that died" soon 10 is_users $((n + 2))
is "done" "$(wait_for a done)" completed

### sizes
head -c 1048576 /dev/zero | tr '\0' '#' >"$T/mib"
yes "1 MiB" cp "$T/mib" "$S/a/message"
is "done" "$(wait_for a done)" completed
is "whole" "$(tail -n 1 "$S/a/messages.jsonl" | jq -r .role; jq -r 'select(.role=="user").content' "$S/a/messages.jsonl" | awk '{ print length($0) }' | sort -n | tail -n 1)" \
    $'assistant\n1048576'
n=$(users)
(cat "$T/mib"; echo x) >"$T/more"
no "one byte more" cp "$T/more" "$S/a/message"
is "is EMSGSIZE" "$(python3 - "$S/a/message" "$T/more" <<'E2'
import errno, os, sys
fd = os.open(sys.argv[1], os.O_WRONLY)
data = open(sys.argv[2], "rb").read()
try:
    while data:
        data = data[os.write(fd, data[:100000]):]
    print("taken")
except OSError as e:
    print(errno.errorcode[e.errno])
try:
    os.close(fd)
except OSError:
    pass
E2
)" EMSGSIZE
is "idle at once" "$(wait_for a idle)" idle
is "and nothing was sent" "$(users)" "$n"
(echo 'message <<'; cat "$T/more") >"$T/x"
no "a body of ctl, too" cp "$T/x" "$S/a/ctl"
is "idle" "$(wait_for a idle)" idle
is "nothing was sent" "$(users)" "$n"
(echo 'create name=huge tool=shell <<'; cat "$T/more") >"$T/x"
no "a prompt, too" cp "$T/x" "$S/ctl"
gone() { [ ! -e "$S/huge" ]; }
yes "and no draft is left" soon 10 gone

### states: refused at the open
wr "$S/c1/ctl" $'pause\n' >/dev/null
is "c1 is paused" "$(wait_for c1 paused)" paused
is "open of message" "$(python3 -c '
import errno, os, sys
try: os.open(sys.argv[1], os.O_WRONLY)
except OSError as e: print(errno.errorcode[e.errno])' "$S/c1/message")" EBUSY
(echo x >"$S/c1/message") 2>"$T/e"
is "bash hears it" $? 1
like "and in errors" "$(cat "$M/errors")" 'c1/message.*paused'
is "a line with a body is checked at once" "$(wr "$S/c1/ctl" $'message <<\n')" EBUSY
# it ends while a message is being written
exec 3>"$S/c2/message"
echo 'echo late' >&3
wr "$S/c2/ctl" $'kill now\n' >/dev/null
is "c2 is killed" "$(wait_for c2 ended)" killed
exec 3>&-
unlike "the late one was not done" "$(cat "$S/c2/messages")" '^late'
yes "and is told in errors" soon 10 grep -q 'c2.*message.*killed' "$M/errors"
