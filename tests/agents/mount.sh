#!/bin/bash
# mount.sh [CLI...]: the real agent CLIs against a fake model server, through
# the mount, in local sandboxes. Needs node and npm.
cd "$(dirname "$0")/../.." || exit 2
# shellcheck source=tests/agents/clis.sh
. tests/agents/clis.sh
clis=${*:-claude codex opencode pi}
# shellcheck disable=SC2086
install_clis $clis || exit 0
# shellcheck source=tests/lib.sh
. tests/lib.sh

# Where the fixtures write a file, and the reply of 264 KiB
mkdir "$T/fixtures"
for f in tests/agents/fixtures/*.json; do
    sed 's|/home/user/project/|/home/user/|' "$f" >"$T/fixtures/${f##*/}"
done
python3 - >"$T/fixtures/60-long.json" <<'END'
import json
line = "%05d the quick brown fox jumps over the lazy dog, \u00e9\u00e8 ok\n"
text = ""
while len(text.encode()) < 264 * 1024:
    text += line % text.count("\n")
print(json.dumps({"fixtures": [{"match": {"userMessage": "[[long]]"},
    "response": {"content": text + "the end", "usage": {
        "prompt_tokens": 1000, "completion_tokens": 60000,
        "total_tokens": 61000}}, "chunkSize": 4096}]}))
END
start_model "$T/fixtures" || exit 1
mount_ --backend local || { cat "$T/start"; exit 1; }
printf 'local_bind = %s\nlocal_path = %s\n' "$cache/node_modules" \
    "$cache/node_modules/.bin" >"$M/config"

# answer NAME FIELD: of the last answer in messages.jsonl
answer() {
    python3 -c '
import json, sys
lines = [json.loads(l) for l in open(sys.argv[1])]
last = [l for l in lines if l["role"] == "assistant"][-1]
for k in sys.argv[2].split("."):
    last = last[int(k) if k.isdigit() else k]
print(last)' "$S/$1/messages.jsonl" "$2"
}
# turn NAME PROMPT: how it went
turn() {
    printf '%s' "$2" >"$S/$1/message" || return
    timeout 240 cat "$S/$1/wait/done"
}
# box NAME [key=value]...: a running sandbox of this CLI
box() {
    local n=$1
    shift
    wr "$S/ctl" "create name=$n $*
" >/dev/null
    if [ "$(wait_for "$n" running)" != running ]; then
        bad "$n does not run: $(cat "$S/$n/error")"
        return 1
    fi
}
# is anything left of the turns of that sandbox? Processes of its VM that
# are the CLI or what it started
left() {
    wr "$S/$1/ctl" "exec ps -e -o args=
" >/dev/null
    timeout 20 cat "$S/$1/exec/last/wait/exited" >/dev/null
    grep -q 'ps -e' "$S/$1/exec/last/stdout" || echo "ps does not work"
    grep -cE 'node_modules|sleep 5[0-9]' "$S/$1/exec/last/stdout"
}

settings() { # CLI PORT
    configure_home "$P/home" "$2"
    {
        echo "ANTHROPIC_BASE_URL=http://127.0.0.1:$2"
        echo CLAUDE_CODE_MAX_RETRIES=1
        echo OPENCODE_DISABLE_MODELS_FETCH=1
    } >"$P/env"
}

replies() {
    local cli=$1 first
    is "$cli: plain reply" "$(turn a 'Say hi [[plain]]')" completed
    like "$cli: its text" "$(answer a content)" 'Hello from the fake model'
    like "$cli: its text in messages" "$(cat "$S/a/messages")" \
        '^Second line, with "quotes"'
    is "$cli: tokens" "$(answer a usage.input_tokens)" 1000
    is "$cli: tokens out" "$(answer a usage.output_tokens)" 20
    is "$cli: idle" "$(cat "$S/a/agent")" idle
    first=$(session a)
    like "$cli: a session" "$first" '..'
    is "$cli: follow-up" "$(turn a 'And then? [[followup]]')" completed
    like "$cli: its text" "$(answer a content)" '^Continuing'
    is "$cli: the same session" "$(session a)" "$first"
    is "$cli: only this turn's tokens" "$(answer a usage.input_tokens)" 1100
    is "$cli: command" "$(turn a 'Run it [[bash]]')" completed
    like "$cli: the tool is shown" "$(cat "$S/a/messages")" \
        '^  ▸ [A-Za-z]+  .*echo hello-from-bash'
    is "$cli: and how it ended" "$(answer a tools.0.status)" completed
    is "$cli: file" "$(turn a 'Write it [[write]]')" completed
    like "$cli: the file is there" "$(cat "$S/a/.files/hello.txt")" '你好'
    is "$cli: characters" "$(turn a 'x [[utf8]]')" completed
    is "$cli: each of them" "$(answer a content)" 'é 你好 🚀👩‍💻 ok'
    like "$cli: in messages" "$(cat "$S/a/messages")" '^é 你好 🚀👩‍💻 ok$'
    is "$cli: 264 KiB" "$(turn a 'x [[long]]')" completed
    yes "$cli: all of it" long_is_whole
    is "$cli: a prompt of 1 MiB" \
        "$(turn a "$(head -c 1000000 /dev/zero | tr '\0' 'x') [[plain]]")" \
        completed
}
session() {
    python3 -c '
import json, sys
print(json.load(open(sys.argv[1])).get("session") or "")' "$S/$1/info.json"
}
long_is_whole() {
    answer a content >"$T/long"
    [ "$(wc -c <"$T/long")" -gt 270336 ] && tail -n 1 "$T/long" |
        grep -qx 'the end' && grep -qx 'the end' "$S/a/messages" &&
        [ "$(grep -c '^0[0-9]* the quick' "$T/long")" = \
            "$(grep -c '^0[0-9]* the quick' "$S/a/messages")" ]
}

errors() {
    local cli=$1
    is "$cli: 401" "$(turn a 'x [[err401]]')" failed
    like "$cli: 401 in words" "$(cat "$S/a/error")" 'invalid .* key'
    like "$cli: whose key" "$(cat "$S/a/error")" \
        "key '(anthropic|openai)' of the project"
    is "$cli: failed" "$(cat "$S/a/agent")" failed
    is "$cli: the VM runs" "$(cat "$S/a/status")" running
    # in between an answer: claude joins prompts that had none
    is "$cli: it goes on" "$(turn a 'x [[plain]]')" completed
    is "$cli: 429" "$(turn a 'x [[err429]]')" failed
    like "$cli: 429 in words" "$(cat "$S/a/reason")" 'rate limited'
    turn a 'x [[plain]]' >/dev/null
    is "$cli: overloaded" "$(turn a 'x [[err529]]')" failed
    like "$cli: overloaded in words" "$(cat "$S/a/reason")" \
        'overloaded|service error'
    turn a 'x [[plain]]' >/dev/null
}

# the model streams for 20 s: the middle of a turn is easy to hit
slow() { # NAME
    log_size=$(stat -c %s "$S/$1/log")
    words=$(grep -c 'word1 ' "$S/$1/messages")
    printf 'x [[slow]]' >"$S/$1/message" &&
        soon 60 grep -q working "$S/$1/agent" && soon 60 streaming "$1"
}
streaming() {
    case $cli in
    claude | pi) [ "$(grep -c 'word1 ' "$S/$1/messages")" -gt "$words" ] ;;
    *) [ "$(stat -c %s "$S/$1/log")" -gt "$log_size" ] ;;
    esac
}

stops() {
    local cli=$1
    slow a || bad "$cli: it does not stream"
    is "$cli: interrupt" "$(wr "$S/a/ctl" 'interrupt
')" OK
    is "$cli: interrupted" "$(timeout 30 cat "$S/a/wait/done")" failed
    like "$cli: in words" "$(tail -n 1 "$S/a/messages")" \
        'error  interrupted by user'
    is "$cli: idle then" "$(cat "$S/a/agent")" idle
    is "$cli: nothing left" "$(left a)" 0
    is "$cli: goes on after that" "$(turn a 'x [[followup]]')" completed
    slow a || bad "$cli: it does not stream again"
    kill -9 "$(pid)"
    soon 10 sh -c "! mountpoint -q $M || fusermount3 -uz $M"
    mount_ --backend local || bad "$cli: no start after kill -9"
    is "$cli: over a restart" "$(timeout 120 cat "$S/a/wait/done")" completed
    is "$cli: whole answer" "$(answer a content | tr -s ' \n' '\n' | wc -l)" 200
    is "$cli: nothing twice" "$(awk '/^── .*  assistant/ { n = 0 }
        { n += gsub(/word77 /, "") } END { print n }' "$S/a/messages")" 1
    slow a || bad "$cli: it does not stream a third time"
    is "$cli: kill mid-turn" "$(wr "$S/a/ctl" 'kill
')" OK
    is "$cli: killed" "$(wait_for a ended)" killed
    like "$cli: the turn ended" "$(tail -n 1 "$S/a/messages")" \
        '#[0-9]+ error  '
}

dead() {
    local cli=$1 t=$EPOCHSECONDS
    settings "$cli" 9
    box b turn_timeout=15s || return
    is "$cli: dead endpoint" "$(turn b 'x [[plain]]')" failed
    like "$cli: in words" "$(cat "$S/b/reason")" 'cannot reach|turn_timeout'
    [ $((EPOCHSECONDS - t)) -lt 60 ] ||
        bad "$cli: took $((EPOCHSECONDS - t)) s"
    is "$cli: nothing left of it" "$(left b)" 0
    wr "$S/b/ctl" 'kill now
' >/dev/null
}

for cli in $clis; do
    t=$EPOCHSECONDS
    P=$M/projects/$cli S=$P/sandboxes
    mkdir "$P"
    settings "$cli" "$port"
    printf 'tool = %s\nnetwork = host\nlearn = off\nmemory = 2048\n' "$cli" \
        >"$P/config"
    case $cli in
    claude) echo sk-ant-fake-000000001234 >"$P/keys/anthropic" ;;
    codex) echo sk-fake-000000001234 >"$P/keys/openai" ;;
    *)
        echo sk-fake-000000001234 >"$P/keys/openai"
        echo 'model = fake/fake-1' >>"$P/config"
        ;;
    esac
    box a || continue
    replies "$cli"
    errors "$cli"
    stops "$cli"
    dead "$cli"
    echo "$cli: $((EPOCHSECONDS - t)) s"
done
