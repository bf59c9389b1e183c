# shellcheck shell=bash
# A scripted agent for the tests of runs: its instructions hold the script.
#
# fake_tools installs the tools `fake` (JSON, goes on with a conversation) and
# `plain` (text, each turn by itself). Lines of the prompt that begin with
# '$ ' are the script, run by bash; what it prints is the answer. `fake` hears
# them once, at the begin of its conversation, and runs them in each turn. In
# the script: N (which turn of this script it is), IN (file of the prompt),
# verdict pass|fail [FEEDBACK], block JSON, gate NAME (waits until the test
# opens that gate).
#
# shellcheck disable=SC2154  # the variables of lib.sh

GATE=$T/gate
mkdir -p "$GATE"
open_gate() { : >"$GATE/$1"; }

# shellcheck disable=SC2016
fake_tools() {
    mkdir -p "$P/home" 2>/dev/null
    cat >"$P/home/fake" <<'END'
#!/bin/bash
# fake FORMAT GATE [SESSION]
export GATE=$2 IN=$COURIER_TURN_DIR/in
cat >"$IN"
mkdir -p ~/.fake
cd ~/.fake || exit 1
s=$3
if [ -z "$s" ]; then
    sed -n 's/^\$ //p' "$IN" >new.$$
    s=s$(md5sum <new.$$ | cut -c1-8)
    [ "$1" = text ] || s=$s-$$
    mv new.$$ "$s"
fi
N=$(cat "$s.n" 2>/dev/null)
N=$((N + 1))
echo "$N" >"$s.n"
export N
block() { printf '```json\n%s\n```\n' "$1"; }
verdict() { block "{\"verdict\":\"$1\",\"feedback\":\"$2\"}"; }
gate() {
    echo "at $1"
    exec {never}<> <(:)
    until [ -e "$GATE/$1" ]; do read -rt 0.1 -u "$never" _; done
}
export -f block verdict gate
script=$PWD/$s
cd - >/dev/null || exit 1
if [ "$1" = text ]; then
    exec bash "$script"
fi
{ bash "$script" 2>&1 && echo "<end>"; } | python3 -u -c '
import json, sys
s = sys.argv[1]
def say(**j):
    print(json.dumps(j), flush=True)
say(type="system", subtype="init", session_id=s, model="fake-1")
text = ""
for line in sys.stdin:
    if line == "<end>\n":
        break
    text += line
    say(type="assistant", session_id=s, message={"id": "m%d" % len(text),
        "role": "assistant", "model": "fake-1",
        "content": [{"type": "text", "text": line.rstrip("\n")}],
        "usage": {"input_tokens": 1, "output_tokens": 1}})
else:
    sys.exit(0)
say(type="result", subtype="success", is_error=False, result=text,
    session_id=s, total_cost_usd=0.01,
    usage={"input_tokens": 10, "output_tokens": 5})
' "$s"
exit "${PIPESTATUS[0]}"
END
    chmod 700 "$P/home/fake"
    cat >"$M/tools/fake" <<END
command = \$HOME/fake claude $GATE
continue = \$HOME/fake claude $GATE {session}
format = claude
service = anthropic
END
    cat >"$M/tools/plain" <<END
command = \$HOME/fake text $GATE
format = text
END
    printf 'local_bind = %s\n' "$GATE" >"$M/config"
    printf 'tool = fake\nlearn = off\n' >"$P/config"
}
# workflow NAME <<END: a workflow of that name
workflow() { cat >"$P/workflows/$1"; }
# run_ NAME WORKFLOW [key=value]...: begins a run
run_() {
    local n=$1 w=$2
    shift 2
    wr "$P/runs/ctl" "create name=$n workflow=$w $*
"
}
R=$P/runs
# run_done NAME [SECONDS]: how it ended
run_done() { timeout "${2:-60}" cat "$R/$1/wait/done"; }
# at NAME GATE: waits until the run's agent stands at the gate
at() { soon 40 grep -q "^at $2\$" "$R/$1/messages" || bad "$1 is not at gate $2"; }
step() { cat "$R/$1/steps/$2"; }
# repo NAME: a repository with one commit on main
repo() {
    git init -q -b main "$T/$1.work" &&
        git -C "$T/$1.work" -c user.name=t -c user.email=t@t commit -q \
            --allow-empty -m first &&
        git clone -q --bare "$T/$1.work" "$T/$1.git" && rm -rf "$T/$1.work"
    chmod -R a+rX "$T/$1.git"
}
# murder SANDBOX: its VM dies (local ones only): its first process is killed
murder() { murder_id "$(jq -r .provider_id "$S/$1/info.json")"; }
murder_id() {
    local pid
    for pid in $(pgrep -f 'courier/init --init'); do
        if grep -q "boxes/$1/" "/proc/$pid/mountinfo" 2>/dev/null; then
            kill -9 "$pid"
            return
        fi
    done
    return 1
}
