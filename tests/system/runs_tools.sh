#!/bin/bash
# Steps of different tools: what each finds in the sandbox that they share,
# which model it works with, and what is told of it afterwards.
# shellcheck disable=SC2154,SC2016
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/system/agents_fake.bash
. "$(dirname "$0")/agents_fake.bash"
start
fake_tools
# tool NAME MEMORY SKILLS: a scripted tool with places of its own
tool() {
    printf '%s\n' "command = MODEL={model} EFFORT={thinking} \$HOME/fake claude $GATE" \
        "continue = MODEL={model} EFFORT={thinking} \$HOME/fake claude $GATE {session}" \
        'format = claude' "model = $1-usual" ${2:+"memory_file = $2"} \
        ${3:+"skills_dir = $3"} >"$M/tools/$1"
}
tool ann CLAUDE.md .claude/skills
tool bob AGENTS.md .bob/skills
tool eve
echo 'Be brief.' >"$P/CLAUDE.md"
for s in tidy test other; do
    mkdir "$P/skills/$s"
    echo "skill $s" >"$P/skills/$s/SKILL.md"
done
said() { cat "$R/$1/steps/$2/output"; }
info() { jq -r "$2" "$R/$1/info.json"; }

# ---- instructions and skills, for each tool of the loop ----
workflow share <<'WF'
[step one]
tool = ann
skills = tidy
loop = l
instructions = One.
  $ cd; cat CLAUDE.md; find .claude/skills -name SKILL.md | sort | xargs cat
[step two]
tool = bob
skills = tidy, test
loop = l
instructions = Two.
  $ cd; cat AGENTS.md; find .bob/skills -name SKILL.md | sort | xargs cat
[step three]
tool = eve
skills = test
instructions = Three.
  $ grep '^Use these' $IN; cat ~/.courier/skills/*/SKILL.md
[step four]
tool = ann
instructions = Four.
  $ cd; ls .claude/skills | xargs; grep -c '^Use these' $IN
[loop l]
WF
is 'begun' "$(run_ share share)" OK
printf '[step one]\ntool = plain\nskills = nowhere\ninstructions = x\n' |
    workflow nowhere
run_ nowhere nowhere >/dev/null
is 'done' "$(run_done share)" completed
is "the first tool's instructions, and the skills of the loop" \
    "$(said share 01-one | xargs)" 'Be brief. skill test skill tidy'
is "the second's" "$(said share 02-two | xargs)" \
    'Be brief. skill test skill tidy'
is 'a tool that looks nowhere is told where, and has only those' \
    "$(said share 03-three)" "Use these of your skills: test; each is described in SKILL.md of its directory below /home/user/.courier/skills
skill test"
is 'a step that names none has all' "$(said share 04-four | head -n 1)" \
    'other test tidy'
run_done nowhere >/dev/null
like 'a skill that is nowhere is told' "$(cat "$P/errors")" \
    "runs/nowhere.step one names the skill 'nowhere'"

# in a repository: beside the work, and in no commit
repo r
printf 'learn = off\nrepo = %s\n' "$T/r.git" >"$P/config"
workflow git <<'WF'
[step one]
tool = ann
loop = l
instructions = One.
  $ cat CLAUDE.md AGENTS.md; git status --porcelain
[step two]
tool = bob
loop = l
instructions = Two.
  $ echo 1 >f; git add -A; git commit -qm work; git show --name-only --format=
[loop l]
WF
run_ git git >/dev/null
is 'with a repository' "$(run_done git)" completed
is 'both are there' "$(said git 01-one | xargs)" 'Be brief. Be brief.'
is 'and not in the work' "$(said git 02-two)" f

# ---- models ----
workflow models <<'WF'
[step own]
tool = ann
model = own
loop = l
instructions = Own.
  $ echo "$MODEL $EFFORT"
[step same]
tool = ann
role = designer
loop = l
instructions = Same.
  $ echo "$MODEL $EFFORT"
[step other]
tool = bob
loop = l
instructions = Other.
  $ echo "$MODEL $EFFORT"
[step free]
loop = l
instructions = Free.
  $ echo "$MODEL $EFFORT"
[step alone]
tool = bob
instructions = Alone.
  $ echo "$MODEL $EFFORT"
[step last]
instructions = Last.
  $ echo "$MODEL $EFFORT"
[loop l]
WF
models() { (cd "$R/$1/steps" && tail -qn 1 ./*/output | tr '\n' ','); }
printf 'learn = off\ntool = ann\nmodel = general\nthinking = high\ndesigner_model = grand\n' \
    >"$P/config"
run_ models models >/dev/null
is 'models' "$(run_done models)" completed
is "its own, the project's for its tool, else the tool's" "$(models models)" \
    'own high,grand high,bob-usual ,general high,bob-usual ,general high,'
is 'info.json tells what each was' \
    "$(info models '[.steps[] | .tool + " " + .model] | join(",")')" \
    'ann own,ann grand,bob bob-usual,ann general,bob bob-usual,ann general'
run_ over models model=runs >/dev/null
run_ bobs models tool=bob model=runs >/dev/null
is 'over' "$(run_done over) $(run_done bobs)" 'completed completed'
is "a run's own goes before the project's" "$(models over)" \
    'own high,runs high,bob-usual ,runs high,bob-usual ,runs high,'
is 'and with its tool' "$(models bobs)" \
    'own high,grand high,runs ,runs ,runs ,runs ,'

# a sandbox of another tool than its project's
wr "$S/ctl" 'create name=other tool=bob
' >/dev/null
wr "$S/ctl" 'create name=same tool=ann
' >/dev/null
is "another tool doesn't get the project's model" \
    "$(jq -r .config.model.value "$S/other/info.json")" bob-usual
is 'the same does' "$(jq -r .config.model.value "$S/same/info.json")" general
printf 'learn = off\nmodel = general\n' >"$P/config"
wr "$S/ctl" 'create name=any tool=bob
' >/dev/null
is 'one that means no tool is for any' \
    "$(jq -r .config.model.value "$S/any/info.json")" general

# ---- a script that checks: its exit code is the verdict ----
# check NAME TEXT...: a run of one step, a shell as the checker
check() {
    local n=$1
    shift
    { printf '[step test]\nrole = %s\ntool = shell\ninstructions = :\n' \
        "${ROLE:-checker}"; printf '  %s\n' "$@"; } | workflow "$n"
    run_ "$n" "$n" >/dev/null
    run_done "$n"
}
got() { step "$1" "01-test/$2"; }
is 'exit 0' "$(check zero 'echo fine; exit 0')" completed
is 'passes' "$(got zero verdict) $(got zero feedback)" 'pass '
is 'another' "$(check three 'seq 100; echo why >&2; exit 3')" failed
is 'fails' "$(got three verdict) $(got three status)" 'fail completed'
is 'with how it ended, and the last lines' \
    "$(got three feedback | sed -n '1p;$p' | xargs)" 'exited 3 why'
is 'not with all of them' "$(got three feedback | grep -cx '[1-9]')" 0
is 'the whole is its output' "$(got three output | wc -l)" 101
like 'the run says which' "$(cat "$R/three/reason")" 'step test: the verdict'
is 'a reviewer, too' "$(ROLE=reviewer check rev 'exit 1')" failed
is 'fails' "$(got rev verdict): $(got rev feedback)" 'fail: exited 1'
is 'no such program' "$(check none 'no-such-program; exit')" failed
like 'says so' "$(got none feedback)" 'no-such-program: command not found'
block() { printf '%s\n' "echo '\`\`\`json'" "echo '$1'" "echo '\`\`\`'"; }
mapfile -t pass < <(block '{"verdict": "pass", "feedback": ""}')
mapfile -t fail < <(block '{"verdict": "fail", "feedback": "said"}')
mapfile -t other < <(block '{"version": 3}')
is 'one that prints a verdict' "$(check said "${fail[@]}" 'exit 0')" failed
is 'has that' "$(got said feedback)" said
is 'also with a code' "$(check both "${fail[@]}" 'exit 1')" failed
is 'has that' "$(got both feedback)" said
is 'a pass needs 0' "$(check lie "${pass[@]}" 'exit 1')" failed
like 'or it is none' "$(got lie feedback)" '^exited 1'
is 'a block that is no verdict' "$(check block "${other[@]}" 'exit 0')" \
    completed
is 'asks for nothing' "$(grep -c 'did not end with' "$R/block/messages")" 0
is 'one that is no checker' "$(ROLE=designer check work 'exit 4')" failed
is 'has no verdict' "$(got work verdict) $(got work status)" ' failed'
is 'killed' "$(check killed 'kill -9 $$')" failed
like 'is no verdict' "$(cat "$R/killed/reason")" 'SIGKILL|signal 9'
workflow loop <<'WF'
[step write]
tool = shell
loop = l
instructions = cd; echo x >>round; exit 0
[step test]
role = checker
tool = shell
loop = l
instructions = cd; wc -l <round; [ $(wc -l <round) = 3 ]; exit
[loop l]
max = 5
WF
run_ loop loop >/dev/null
is 'in a loop' "$(run_done loop)" completed
is 'it is done until it passes' \
    "$(cat "$R/loop/steps"/02-test{,.2,.3}/verdict | xargs)" 'fail fail pass'

# ---- pauses in the picture ----
workflow still <<'WF'
[step one]
tool = ann
instructions = One.
  $ gate still; echo one
WF
run_ still still >/dev/null
at still still
shown() { grep -c '"paused" x="[0-9]*" y="38"' "$R/still/timeline.svg"; }
is 'no pause yet' "$(shown)" 0
wr "$R/still/ctl" 'pause
' >/dev/null
soon 20 grep -qx paused "$R/still/status"
is 'a pause is shown' "$(shown)" 1
sleep 1
wr "$R/still/ctl" 'resume
' >/dev/null
soon 20 grep -qx running "$R/still/status"
open_gate still
is 'still' "$(run_done still)" completed
is 'it stays' "$(shown)" 1
yes 'with a width' python3 -c "
import sys, xml.dom.minidom
d = xml.dom.minidom.parse(sys.argv[1])
w = [int(r.getAttribute('width')) for r in d.getElementsByTagName('rect')
     if r.getAttribute('class') == 'paused' and r.parentNode.tagName == 'g']
assert len(w) == 1 and 60 < w[0] < 590, w" "$R/still/timeline.svg"

# ---- a budget is of the whole run ----
workflow dear <<'WF'
[step one]
tool = ann
instructions = One.
  $ echo one
[step two]
tool = ann
loop = l
instructions = Two.
  $ echo two
[step three]
tool = ann
loop = l
instructions = Three.
  $ echo three
[step four]
tool = ann
instructions = Four.
  $ echo four
[loop l]
WF
becomes() {
    soon 30 grep -qx "$2" "$R/$1/status" ||
        bad "$1 is $(cat "$R/$1/status"), not $2"
}
ctl() { wr "$R/$1/ctl" "$2
"; }
run_ dear dear budget=0.015 >/dev/null
becomes dear paused
like 'the steps together reach it' "$(cat "$R/dear/reason")" '^budget 0.015 reached'
is 'two were done' "$(ls "$R/dear/steps" | tr '\n' ' ')" '01-one 02-two '
is 'it does not go on' "$(ctl dear resume)" EDQUOT
is 'nor by its sandbox' "$(wr "$R/dear/steps/02-two/sandbox/ctl" 'resume
')" EDQUOT
is 'a setting that is fixed' "$(wr "$R/dear/config" 'budget = 0.015
repo = /x
')" EBUSY
is 'more of it' "$(wr "$R/dear/config" 'budget = 0.035
')" OK
is 'resumed' "$(ctl dear resume)" OK
is 'to its end' "$(run_done dear)" completed
is 'with all steps' "$(ls "$R/dear/steps" | wc -l)" 4
is 'the config of an ended one' "$(wr "$R/dear/config" 'budget = 1
')" EBUSY
run_ alone dear budget=0.01 >/dev/null
becomes alone paused
soon 20 sh -c "! ls $P/by-status/running | grep -q alone"
no 'between two steps: no VM waits' ls "$P"/by-status/paused/alone*
is 'cancelled' "$(ctl alone cancel) $(run_done alone)" 'OK cancelled'
