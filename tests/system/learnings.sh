#!/bin/bash
# Learnings: asked of a scripted tool in all its moods, decided with mv,
# compiled, put into new sandboxes, rolled back.
# shellcheck disable=SC2154,SC2016
. "$(dirname "$0")/../lib.sh"
start
A=$T/answer
mkdir "$A"
cat >"$M/tools/talker" <<'END'
command = cat >/dev/null; echo I learned that tests need the database
format = text
memory_file = AGENTS.md
END
# answers what the test has put into the directory; keeps what it was asked
cat >"$M/tools/teacher" <<END
command = cat >"\$HOME/asked"; until [ -e $A/go ]; do sleep 0.1; done; grep -q 'need the database' "\$HOME/asked" && cat $A/text; exit \$(cat $A/code)
format = text
END
printf 'local_bind = %s\n' "$A" >"$M/config"
printf "tool = talker\nlearning_tool = teacher\nlearn = auto\n" >"$P/config"
L=$P/learnings
echo 0 >"$A/code"
: >"$A/go"
answer() { printf '%s\n' "$@" >"$A/text"; }
# learn NAME: a sandbox talks, ends, and is learned from; how that went
learn() {
    wr "$S/ctl" "create name=$1 prompt=hello
" >/dev/null
    timeout 60 cat "$S/$1/wait/done" >/dev/null
    wr "$S/$1/ctl" 'kill
' >/dev/null
    timeout 60 cat "$S/$1/wait/learned"
}
# told NAME: the last that `errors` has of it
told() { grep -F "/$1"$'\t' "$P/errors" | tail -n 1 | cut -f 3; }
reason() { jq -r '.learnings.reason // ""' "$S/$1/info.json"; }

# ---- completed ----

answer 'Two things:' '```json' '[{"kind":"pitfall","description":"Tests need\nthe database.","trigger":"running tests","correct_behavior":"Start it first.","severity":"high","category":"tests","roles":["designer","checker"]},' \
    '{"kind":"pattern","description":"Errors are sentences."}]' '```'
is "completed" "$(learn full)" completed
is "reason" "$(reason full)" ""
is "two are pending" "$(ls "$L/pending" | wc -l)" 2
one=$(ls "$L/pending" | head -n 1) two=$(ls "$L/pending" | tail -n 1)
like "front matter: kind" "$(cat "$L/pending/$one")" "^kind: pitfall$"
like "front matter: trigger" "$(cat "$L/pending/$one")" "^trigger: running tests$"
like "front matter: severity" "$(cat "$L/pending/$one")" "^severity: high$"
like "front matter: category" "$(cat "$L/pending/$one")" "^category: tests$"
like "front matter: roles" "$(cat "$L/pending/$one")" "^roles: designer, checker$"
like "front matter: source" "$(cat "$L/pending/$one")" "^sandbox: full$"
like "description" "$(cat "$L/pending/$one")" "^the database\.$"
like "correct behaviour" "$(cat "$L/pending/$one")" "^Start it first\.$"
like "the sandbox shows them" "$(cat "$S/full/learnings")" "Errors are sentences"
is "its own is gone" "$(ls "$S" | grep -c learn-)" 0
like "events" "$(cat "$P/events")" '"event":"learning","status":"completed"'

# ---- partial, cut, empty, nonsense, failing ----

answer '```json' '[{"kind":"pattern"}, "text", {"description":"Kept."}, 7]' '```'
is "partial" "$(learn part)" completed
is "counted" "$(reason part)" "3 left out"
is "one more" "$(ls "$L/pending" | wc -l)" 3
answer '```json' '[{"description":"Whole."}, {"description":"cut he'
is "cut" "$(learn cut)" completed
is "says so" "$(reason cut)" "the answer was cut"
is "what was whole is kept" "$(ls "$L/pending" | wc -l)" 4
answer 'Nothing new.' '```json' '[]' '```'
is "empty" "$(learn empty)" completed
is "nothing" "$(ls "$L/pending" | wc -l)" 4
is "its learnings" "$(cat "$S/empty/learnings")" ""
answer 'I would rather' $'talk \033[31mabout' '```' '{"kind":"pattern"}' '```'
is "nonsense" "$(learn nonsense)" error
like "with the text" "$(reason nonsense)" "no JSON array: I would rather"
unlike "made printable" "$(reason nonsense)" $'\033'
like "errors have it" "$(told nonsense)" '^nothing learned: .*no JSON array: I would'
unlike "printable, too" "$(told nonsense)" $'\033'
answer 'bad day'
echo 3 >"$A/code"
is "a tool that fails" "$(learn fails)" error
like "says how" "$(reason fails)" "exited 3"
like "errors have it" "$(told fails)" '^nothing learned: .*exited 3'
is "of one that taught something they have nothing" "$(told full)" ""
echo 0 >"$A/code"

# ---- skipped, off, by hand ----

mk sh
ask sh 'echo from a shell' >/dev/null
wr "$S/sh/ctl" 'kill
' >/dev/null
timeout 30 cat "$S/sh/wait/ended" >/dev/null
is "shell: none" "$(cat "$S/sh/learnings_status")" ""
answer '```json' '[{"description":"From the shell."}]' '```'
wr "$S/sh/ctl" 'learn
' >/dev/null
is "learn by hand" "$(timeout 60 cat "$S/sh/wait/learned")" error
printf 'tool = talker\nlearning_tool = shell\n' >"$P/config"
wr "$S/full/ctl" 'learn
' >/dev/null
is "a shell is never asked" "$(timeout 60 cat "$S/full/wait/learned")" skipped
is "errors say why" "$(told full)" \
    "nothing learned: a shell can't be asked: set learning_tool"
printf 'tool = talker\nlearning_tool = teacher\nlearn = auto\n' >"$P/config"
wr "$S/ctl" 'create name=mute
' >/dev/null
timeout 60 cat "$S/mute/wait/running" >/dev/null
wr "$S/mute/ctl" 'kill
' >/dev/null
is "nothing was said" "$(timeout 60 cat "$S/mute/wait/learned")" skipped
is "that is no error" "$(told mute)" ""
wr "$S/mute/ctl" 'learn
' >/dev/null
soon 30 grep -q nothing.learned.*conversation "$P/errors"
is "unless somebody asks" "$(told mute)" \
    "nothing learned: there was no conversation"
printf 'tool = talker\nlearning_tool = teacher\nlearn = off\n' >"$P/config"
wr "$S/ctl" 'create name=off prompt=x
' >/dev/null
timeout 60 cat "$S/off/wait/done" >/dev/null
wr "$S/off/ctl" 'kill
' >/dev/null
timeout 60 cat "$S/off/wait/ended" >/dev/null
is "off" "$(cat "$S/off/learnings_status")" ""

# ---- the decision, and what follows from it ----

no "nothing approved: nothing to compile" sh -c "echo compile >$L/ctl"
yes "approve" mv "$L/pending/$one" "$L/approved/"
yes "reject" mv "$L/pending/$two" "$L/rejected/"
is "pending" "$(ls "$L/pending" | wc -l)" 2
no "no active one" test -e "$L/active"
is "compile" "$(wr "$L/ctl" 'compile
')" OK
is "active" "$(readlink "$L/active")" versions/1.md
like "has the approved one" "$(cat "$L/active")" "Start it first"
unlike "not the rejected" "$(cat "$L/active")" "sentences"
like "what matters is its heading" "$(cat "$L/active")" "^## pitfall; high; when: running tests; for: designer, checker"
like "versions are read-only" "$(wr "$L/versions/1.md" x)" "^(EACCES|EROFS)$"
mv "$L"/pending/* "$L/approved/"
wr "$L/ctl" 'compile
' >/dev/null
is "active is the second" "$(readlink "$L/active")" versions/2.md
like "has more" "$(cat "$L/versions/2.md")" "^Whole\.$"
yes "roll back" ln -sfn versions/1.md "$L/active"
is "rolled back" "$(readlink "$L/active")" versions/1.md
no "to what is not there" ln -sfn versions/9.md "$L/active"
is "still" "$(readlink "$L/active")" versions/1.md
wr "$S/ctl" 'create name=taught
' >/dev/null
timeout 60 cat "$S/taught/wait/running" >/dev/null
like "in a new sandbox" "$(cat "$S/taught/.files/AGENTS.md")" "Start it first"
unlike "of that version" "$(cat "$S/taught/.files/AGENTS.md")" "Whole"

# ---- the daemon dies while it is asked ----

printf "tool = talker\nlearning_tool = teacher\nlearn = auto\n" >"$P/config"
git init -q --bare -b main "$T/r.git"
printf 'repo = %s\nsetup = true\n' "$T/r.git" >>"$P/config"
rm "$A/go"
answer '```json' '[{"description":"After the crash."}]' '```'
wr "$S/ctl" 'create name=crash prompt=hello
' >/dev/null
timeout 60 cat "$S/crash/wait/done" >/dev/null
wr "$S/crash/ctl" 'kill
' >/dev/null
soon 30 grep -qx working "$S/learn-crash/agent" || bad "learn-crash is not at work"
is "running" "$(cat "$S/crash/learnings_status")" running
is "it needs no repository" "$(cat "$S/learn-crash/setup.log")" ""
p=$(pid)
kill -9 "$p"
soon 10 sh -c "! kill -0 $p"
: >"$A/go"
mount_ || bad "$(cat "$T/start")"
is "goes on" "$(timeout 60 cat "$S/crash/wait/learned")" completed
is "once" "$(grep -l 'After the crash' "$L"/pending/* | wc -l)" 1
soon 20 sh -c "! ls $S | grep -q learn-"
is "its sandbox has gone" "$(ls "$S" | grep -c learn-)" 0

# ---- runs ----

printf "tool = talker\nlearning_tool = teacher\nlearn = auto\n" >"$P/config"

answer '```json' '[{"description":"Of a run."}]' '```'
printf '[step one]\n' >"$P/workflows/talk"
echo 'create name=r workflow=talk' >"$P/runs/ctl"
is "a run" "$(timeout 60 cat "$P/runs/r/wait/done")" completed
is "its sandbox is learned from" "$(timeout 60 cat "$S/r-one/wait/learned")" completed
like "the run shows it" "$(cat "$P/runs/r/learnings")" "^Of a run\.$"
soon 20 sh -c "! ls $S | grep -q learn-"
