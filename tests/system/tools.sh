#!/bin/bash
# Tools as documents, and turns of agents that behave in every way a CLI may.
set -u
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"
start --backend local
printf 'learn = off\n' >"$P/config"

# last NAME FIELD: of the last answer
last() {
    jq -rs "[.[] | select(.role == \"assistant\")] | last | $2" \
        "$S/$1/messages.jsonl"
}
makes() {
    local n=$1
    shift
    wr "$S/ctl" "create name=$n $*
" | grep -vx OK
    wait_for "$n" running >/dev/null || bad "$n: $(cat "$S/$n/reason")"
}

# ---- what is there ----
is 'the built-in ones' "$(ls "$M/tools")" \
    "$(printf '%s\n' claude codex opencode pi shell)"
for t in claude codex opencode pi; do
    like "$t shows its command" "$(cat "$M/tools/$t")" '^command = '
    like "$t names its format" "$(cat "$M/tools/$t")" "^format = $t"
    yes "$t can be saved as it is" sh -c "cat $M/tools/$t >$T/t && cp $T/t $M/tools/$t"
done

# ---- what is no tool ----
refused() { # WHAT TEXT PATTERN
    is "$1 is refused" "$(wr "$M/tools/bad" "$2")" EINVAL
    like "$1: why" "$(cat "$M/tools/bad.rejected" 2>/dev/null
        tail -n 1 "$M/errors")" "$3"
    no "$1: there is no such tool" test -e "$M/tools/bad"
}
refused 'no command' 'format = text
' 'command.* is missing'
refused 'an unknown key' 'command = cat
colour = blue
' "line 2: unknown key 'colour'"
refused 'an unknown format' 'command = cat

format = xml
' "line 3: format: 'xml'"
refused 'no pair' '# hm
command = cat
what is this
' 'line 3: not'
refused 'a wrong env' 'command = cat
env = 1A=2
' "line 2: env: '1A=2'"
refused 'an unknown key of a provider' 'command = cat \
    -u
keys = antropic
' "line 3: keys: 'antropic'"
refused 'a way out' 'command = cat
memory_file = ../../etc/passwd
' 'line 2'
rm "$M/tools/bad.rejected"
is 'no such tool for a project' "$(wr "$P/config" 'tool = nix
')" EINVAL
is 'nor for a sandbox' "$(wr "$S/ctl" 'create name=x tool=nix
')" EINVAL
like 'in words' "$(cat "$S/ctl")" "nix"

# ---- a new one: placeholders ----
cat >"$M/tools/say" <<'END'
# prints how it was called
command = echo "in $PWD"; echo first {model} {thinking} \
    [-s {session}]; cat
continue = echo again {model} [--effort {thinking}] {session}; cat
format = text
env = A=1 B='b c'
END
makes a tool=say
is 'it runs' "$(ask a 'the prompt')" completed
is 'what it printed' "$(last a .content)" "in /home/user
first  
the prompt"
makes b tool=say "model=\"it's \$HOME\"" thinking=high
is 'quoted words' "$(ask b "p'q\"r \$x")" completed
is 'as they are' "$(last b .content)" "in /home/user
first it's \$HOME high
p'q\"r \$x"
like 'the model is shown' "$(cat "$S/b/messages")" "  say it's "
makes c tool=say model=m2 'thinking="m1:low m2:max"'
ask c x >/dev/null
like 'the effort of this model' "$(last c .content)" 'first m2 max'
# an edit holds from the next turn
sed -i 's/echo again/echo anew/' "$M/tools/say"
ask c x >/dev/null
like 'an edit holds at once' "$(last c .content)" '^anew m2 --effort max'

# ---- one of ours, changed in one field ----
# a CLI that speaks claude's grammar: its prompt is what it does
mkdir -p "$P/home/bin"
cat >"$P/home/bin/fake" <<'END'
#!/usr/bin/env python3
import json, os, sys
session = sys.argv[1] if len(sys.argv) > 1 and sys.argv[1] else "s-1"
def p(**o):
    print(json.dumps(o), flush=True)
def text(t, id="m1", **usage):
    p(type="assistant", session_id=session, message={"id": id, "model": "m-9",
      "role": "assistant", "content": [{"type": "text", "text": t}],
      "usage": usage})
def end(t="", error=False, **more):
    p(type="result", subtype="success", is_error=error, result=t,
      session_id=session, **more)
p(type="system", subtype="init", session_id=session, model="m-9")
prompt = sys.stdin.read()
exec(prompt)
END
chmod 700 "$P/home/bin/fake"
cp "$M/tools/claude" "$T/claude"
printf 'command = bin/fake {session}\nkeys =\n' >"$M/tools/claude"
makes d tool=claude
is 'the other fields are as before' "$(jq -r .model "$S/d/info.json")" \
    claude-sonnet-4-6
is 'a turn' "$(ask d 'text("hello " + session); end()')" completed
is 'its text' "$(last d .content)" 'hello s-1'
is 'the session is known' "$(jq -r .session "$S/d/info.json")" s-1
is 'and given back' "$(ask d 'text(" ".join(sys.argv[1:])); end()')" completed
is 'as told' "$(last d .content)" s-1
is 'another one is followed' "$(ask d 'session = "s-2"
p(type="system", subtype="init", session_id=session, model="m")
text("moved"); end()'; ask d 'text(sys.argv[1]); end()')" 'completed
completed'
is 'that is the one now' "$(last d .content)" s-2

# ---- exit code and stream ----
is 'success is what the stream says' \
    "$(ask d 'text("done"); end(); sys.exit(3)')" completed
is 'so is failure' "$(ask d 'end("Credit balance is too low", error=True,
api_error_status=402)')" failed
like 'in words' "$(cat "$S/d/error")" 'no credit at Anthropic'
is 'no end and exit 0' "$(ask d 'text("half")')" failed
like 'is said' "$(tail -n 1 "$S/d/messages")" '#[0-9]+ error  .*'
is 'no end and exit 7' "$(ask d 'sys.exit(7)')" failed
like 'names the code' "$(cat "$S/d/reason")" 'agent exited 7'
is 'a signal' "$(ask d 'os.kill(os.getpid(), 9)')" failed
like 'names the signal' "$(cat "$S/d/reason")" 'killed by signal 9|SIGKILL'
is 'the VM is still there' "$(cat "$S/d/status") $(cat "$S/d/agent")" \
    'running failed'
is 'words on stderr' "$(ask d 'print("Boom: no such flag", file=sys.stderr)
sys.exit(2)')" failed
like 'are told' "$(cat "$S/d/error")" 'Boom: no such flag'
like 'and in the log' "$(cat "$S/d/log")" '^Boom: no such flag'
is 'no JSON at all' "$(ask d 'print("garbage"); print("{\"a\":"); end("ok")')" \
    completed
is 'rmdir of its session' "$(ask d 'end("No conversation found with session ID: s-2", error=True)')" failed

# ---- sizes ----
is 'a line of 20 MB' "$(ask d 'p(type="user", message={"content": [
{"type": "tool_result", "tool_use_id": "t", "content": "x" * 20000000}]})
text("the answer"); end()')" completed
is 'what follows it' "$(last d .content)" 'the answer'
rss=$(awk '/^VmRSS/ { print $2 }' "/proc/$(pid)/status")
if [ "$rss" -lt 200000 ]; then ok; else bad "the daemon has $rss KiB after that"; fi
python3 -c 'print("text(str(len(prompt))); end()" + "#" * (1048576 - 31),
end="")' >"$T/prompt"
cat "$T/prompt" >"$S/d/message"
is 'a prompt of 1 MiB' "$(wait_for d 'done')" completed
is 'comes whole' "$(last d .content)" "$(stat -c %s "$T/prompt")"
is 'one byte more' "$({ cat "$T/prompt"; printf '%*s' 4096 x; } | python3 -c '
import errno, os, sys
fd = os.open(sys.argv[1], os.O_WRONLY)
try:
    for _ in range(300):
        d = sys.stdin.buffer.read(65536)
        while d:
            d = d[os.write(fd, d):]
    os.close(fd)
    print("OK")
except OSError as e:
    print(errno.errorcode[e.errno])
' "$S/d/message")" EMSGSIZE
is 'text in pieces' "$(ask d 'import time
p(type="stream_event", event={"type": "message_start", "message": {"id": "m"}})
for t in "one ", "tw", "o é", "\n", "three":
    p(type="stream_event", event={"type": "content_block_delta",
      "delta": {"type": "text_delta", "text": t}})
p(type="stream_event", event={"type": "content_block_stop"})
text("one two é\nthree", "m"); end()')" completed
is 'once' "$(grep -c '^one two é$' "$S/d/messages")" 1
is 'a taken back reply' "$(ask d '
p(type="stream_event", event={"type": "message_start", "message": {"id": "k"}})
p(type="stream_event", event={"type": "content_block_delta",
  "delta": {"type": "text_delta", "text": "abandoned"}})
text("whole", "l"); end()')" completed
like 'is marked' "$(cat "$S/d/messages")" '^  ↻ reply cut off, tried again'
is 'and has only the whole' "$(last d .content)" whole
is 'nothing can forge a line' "$(ask d 'text("── 2026  user  #9\n\x1b[2Jx")
p(type="assistant", message={"id": "z", "content": [{"type": "tool_use",
 "id": "t", "name": "Ba\nsh", "input": {"command": "a\n── b"}}]}); end()')" \
    completed
is 'text is set off' "$(grep -c '^ ── 2026  user  #9$' "$S/d/messages")" 1
unlike 'controls are shown' "$(tr -d '\n' <"$S/d/messages")" $'[\x01-\x1f]'

# ---- what stays behind ----
t=$EPOCHSECONDS
is 'a child that holds the output' "$(ask d 'text("up"); end()
os.system("sleep 300 & setsid sleep 301 &")')" completed
if [ $((EPOCHSECONDS - t)) -lt 10 ]; then ok; else bad 'it held the turn'; fi
is 'it is left alone' "$(wr "$S/d/ctl" 'exec pgrep -c -f "^sleep 30[01]"
'; timeout 20 cat "$S/d/exec/last/wait/exited" >/dev/null
    cat "$S/d/exec/last/stdout")" 'OK
2'
printf 'import time; os.system("setsid sleep 302 & sleep 303 &"); time.sleep(300)' \
    >"$S/d/message"
soon 10 grep -q working "$S/d/agent"
sleep 1
echo interrupt >"$S/d/ctl"
is 'interrupt ends the turn' "$(wait_for d 'done' 20)" failed
echo 'exec pgrep -c -f "^sleep 30[23]"' >"$S/d/ctl"
timeout 20 cat "$S/d/exec/last/wait/exited" >/dev/null
is 'and all it started' "$(cat "$S/d/exec/last/stdout")" 0
makes e tool=claude turn_timeout=2s
t=$EPOCHSECONDS
is 'turn_timeout' "$(ask e 'import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
text("begun"); time.sleep(300)')" failed
if [ $((EPOCHSECONDS - t)) -lt 12 ]; then ok; else bad 'it took too long'; fi
like 'says so' "$(tail -n 1 "$S/e/messages")" 'turn_timeout|time limit'
is 'the text so far is kept' "$(last e .content)" begun

# ---- keys ----
is 'a document of nothing is the built-in tool' "$(wr "$M/tools/claude" '#
')" OK
like 'it is complete' "$(wr "$S/ctl" 'create name=k tool=claude
'; cat "$S/ctl")" 'needs a key: anthropic or'
cp "$T/claude" "$M/tools/claude"
is 'claude without a key' "$(wr "$S/ctl" 'create name=k tool=claude
')" EACCES
like 'which, and where to put it' "$(cat "$S/ctl")" \
    "claude.* needs a key: anthropic or anthropic_token .*keys/anthropic"
mkdir "$S/k" && echo 'tool = claude' >"$S/k/config"
is 'a draft says it at the start' "$(wr "$S/k/ctl" 'start
')" EACCES
echo sk-ant-0000000000001234 >"$M/keys/anthropic"
is 'with it' "$(wr "$S/k/ctl" 'start
')" OK

# ---- gone while it is used ----
rm "$M/tools/say"
is 'the tool of a sandbox is removed' "$(ask a x)" failed
like 'in words' "$(cat "$S/a/error")" "say"
is 'the others go on' "$(ls "$M/tools")" \
    "$(printf '%s\n' claude codex opencode pi shell)"
rm "$M/tools/codex"
no 'one of ours can be removed' test -e "$M/tools/codex"
mk s
is 'shell: the exit code' "$(ask s 'echo out; echo err >&2; exit 4')" failed
like 'is told' "$(tail -n 1 "$S/s/messages")" '#2 error  exited 4'
is 'both outputs' "$(cat "$S/s/log")" 'out
err'
