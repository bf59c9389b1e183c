#!/bin/bash
# Runs of workflows through all branches, with a scripted agent. Many run at
# the same time; what each came to is looked at when all have ended.
# shellcheck disable=SC2154  # lib.sh
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/system/agents_fake.bash
. "$(dirname "$0")/agents_fake.bash"
start
fake_tools
usd() { awk '$1 == "total" { print $2 }' "$1"; }

# ---- documents ----

is "seeded workflows" "$(ls "$P/workflows" | tr '\n' ' ')" "polish review single "
no "a run needs a workflow" sh -c "echo 'create name=x' > $P/runs/ctl"
is "an unknown workflow" "$(wr "$P/runs/ctl" 'create name=x workflow=nope
')" ENOENT
is "a run may not be called ctl" "$(wr "$P/runs/ctl" 'create name=ctl workflow=single
')" EINVAL
is "an unknown key" "$(wr "$P/runs/ctl" 'create name=x workflow=single colour=red
')" EINVAL
is "n is bounded" "$(wr "$P/runs/ctl" 'create name=x workflow=single n=21
')" EINVAL
is "nothing was made" "$(ls "$P/runs" | tr '\n' ' ')" "attempts ctl "

workflow bad_persona <<'END'
[step design]
persona = nobody
END
is "a persona must be there" "$(run_ x bad_persona)" ENOENT
like "and the reason says which" "$(cat "$P/runs/ctl")" "no persona 'nobody'"

printf '[step one]\ninstructions = x\n[step two]\ntool = codex\n' | workflow keyless
is "each step's tool has its key" "$(run_ x keyless)" EACCES
like "or it is said which" "$(cat "$P/runs/ctl")" "step two: tool 'codex' needs a key: openai"
no "and nothing was made" test -e "$P/runs/x"

# a step of its own, then a loop that passes in the round that the task says
workflow pass <<'END'
description = prepared, then designed and checked
[step plan]
role = planner
instructions = Plan.
  $ echo "the plan"
[step design]
role = designer
loop = l
instructions = Build.
  $ echo "work $N"
[step check]
role = checker
loop = l
instructions = Check.
  $ if [ $N = 1 ] && grep -q '^pass at once' "$IN"; then touch pass; fi
  $ if [ -e pass ] || [ $N = 3 ]; then verdict pass good; else verdict fail "not yet $N"; fi
[step score]
role = evaluator
instructions = Score.
  $ block '{"score": 87.5, "feedback": "fine"}'
[loop l]
max = 3
END
workflow never <<'END'
[step design]
loop = l
instructions = Build.
  $ echo "work $N"
[step check]
role = checker
loop = l
instructions = Check.
  $ verdict fail "never"
[loop l]
max = 2
END
sed 's/^max = 2/&\non_max = continue/' "$P/workflows/never" |
    { cat; printf '[step after]\nrole = optimizer\ninstructions = Go on.\n  $ echo after\n'; } |
    workflow goes_on
workflow broken <<'END'
[step check]
role = checker
instructions = Check.
  $ if [ $N = 1 ]; then echo "looks good to me"; else verdict pass "asked"; fi
END
workflow broken_twice <<'END'
[step check]
role = reviewer
instructions = Check.
  $ echo '```json'; echo '{"verdict": "maybe"}'; echo '```'
END
workflow broken_text <<'END'
[step check]
role = checker
tool = plain
instructions = Check.
  $ if [ $N = 1 ]; then verdict maybe; else grep -c '^# The task' "$IN"; verdict pass; fi
END
workflow bad_score <<'END'
[step score]
role = evaluator
instructions = Score.
  $ block '{"score": 101}'
END
workflow fails <<'END'
[step one]
instructions = One.
  $ echo one
[step two]
instructions = Two.
  $ echo half; exit 3
[step three]
instructions = Three.
  $ echo three
END
workflow two_checkers <<'END'
[step design]
loop = l
tool = plain
instructions = Build.
  $ echo "work $N"
[step first]
role = checker
loop = l
instructions = Check one.
  $ if [ $N = 2 ]; then verdict pass; else verdict fail "first says no"; fi
[step second]
role = reviewer
loop = l
instructions = Check two.
  $ if [ $N = 2 ]; then verdict pass; else verdict fail "second says no"; fi
[loop l]
max = 2
END

is "begun" "$(run_ once pass 'prompt="pass at once"')" OK
run_ third pass 'prompt="the task"' >/dev/null
run_ never never >/dev/null
run_ goes_on goes_on >/dev/null
run_ broken broken >/dev/null
run_ broken2 broken_twice >/dev/null
run_ text broken_text >/dev/null
run_ score bad_score >/dev/null
run_ fails fails >/dev/null
run_ two two_checkers 'prompt="two of them"' >/dev/null
is "the name is taken" "$(run_ once pass)" EEXIST

# ---- passes at once ----

is "once: done" "$(run_done once)" completed
is "once: ok" "$(timeout 9 cat "$R/once/wait/ok")" completed
is "once: steps" "$(ls "$R/once/steps" | tr '\n' ' ')" \
    "01-plan 02-design 03-check 04-score "
is "once: verdict" "$(step once 03-check/verdict)" pass
is "once: feedback" "$(step once 03-check/feedback)" good
is "once: score" "$(step once 04-score/score)" 87.5
is "once: output" "$(step once 02-design/output)" "work 1"
is "once: statuses" "$(cat "$R"/once/steps/*/status | sort -u)" completed
like "the output of a step is there for the next" \
    "$(step once 02-design/prompt)" "^the plan"
like "the task is told" "$(step once 02-design/prompt)" "^pass at once"
like "the evaluator sees all" "$(step once 04-score/prompt)" "^## 03-check"
is "once: progress" "$(cat "$R/once/progress")" "step 4/4 evaluator, 100 %"
is "once: reason" "$(cat "$R/once/reason")" "all steps completed"
is "once: cost" "$(usd "$R/once/usage")" 0.0400
is "usage by step" "$(awk '$1 == "02-design" { print $NF }' "$R/once/usage")" 0.0100
is "a VM a loop, else a step" "$(readlink "$R"/once/steps/*/sandbox | sort -u | wc -l)" 3
yes "the sandbox is there" test -e "$R/once/steps/01-plan/sandbox/status"
is "and has ended" "$(cat "$R/once/steps/01-plan/sandbox/status")" killed
like "and why" "$(cat "$R/once/steps/01-plan/sandbox/reason")" "^step finished"
like "and its run" "$(readlink "$R/once/steps/01-plan/sandbox/run")" "runs/once$"
is "kind" "$(jq -r .kind "$R/once/steps/01-plan/sandbox/info.json")" run
is "no message to it" "$(wr "$R/once/steps/01-plan/sandbox/message" x)" EPERM
is "the prompt" "$(cat "$R/once/prompt")" "pass at once"
is "info" "$(jq -r '.status + " " + (.steps | length | tostring) + " " + .workflow' \
    "$R/once/info.json")" "completed 4 pass"
yes "events are JSON" jq -es 'map(select(.event == "step")) | length == 8' \
    "$R/once/events"
yes "and their numbers grow" jq -es 'map(.seq) | . == (sort | unique)' \
    "$M/events"
like "messages: the steps" "$(grep '^── .*  step ' "$R/once/messages" |
    awk '{ print $NF }' | tr '\n' ' ')" "^01-plan 02-design 03-check 04-score $"
like "messages: what was said" "$(cat "$R/once/messages")" "^work 1$"
yes "timeline is XML" python3 -c "
import sys, xml.dom.minidom
t = open(sys.argv[1]).read()
xml.dom.minidom.parseString(t)
assert 'prefers-color-scheme' in t and '02-design' in t" "$R/once/timeline.svg"

# ---- passes in round three ----

is "third: done" "$(run_done third)" completed
is "third: steps" "$(ls "$R/third/steps" | tr '\n' ' ')" \
    "01-plan 02-design 02-design.2 02-design.3 03-check 03-check.2 03-check.3 04-score "
is "third: verdicts" "$(cat "$R"/third/steps/03-check{,.2,.3}/verdict | tr '\n' ' ')" \
    "fail fail pass "
like "the feedback goes back" "$(step third 02-design.2/prompt)" "^not yet 1$"
unlike "to an agent that knows the task" "$(step third 02-design.2/prompt)" "^the task$"
like "with the round" "$(step third 02-design.2/prompt)" "round 2 of at most 3"
unlike "only the last feedback" "$(step third 02-design.3/prompt)" "not yet 1"
is "its own conversation" "$(step third 02-design.3/output)" "work 3"
is "third: progress" "$(cat "$R/third/progress")" "step 4/4 evaluator, 100 %"

# ---- never ----

is "never: done" "$(run_done never)" failed
is "never: reason" "$(cat "$R/never/reason")" "loop l: not passed after 2 rounds"
no "never: not ok" timeout 9 cat "$R/never/wait/ok"
is "never: the steps did their work" "$(cat "$R"/never/steps/*/status | sort -u)" completed
is "goes on: done" "$(run_done goes_on)" completed
is "goes on: after" "$(step goes_on 03-after/output)" after
like "goes on: with the last feedback" "$(step goes_on 03-after/prompt)" "^never$"

# ---- broken verdicts ----

is "broken: asked once more" "$(run_done broken)" completed
is "broken: verdict" "$(step broken 01-check/verdict)" pass
is "broken: the answer is the first" "$(step broken 01-check/output)" "looks good to me"
is "broken: two turns" "$(grep -c '  user  #' "$R/broken/messages")" 2
is "twice: fails" "$(run_done broken2)" failed
is "twice: counts as fail" "$(step broken2 01-check/verdict)" fail
like "twice: says so" "$(step broken2 01-check/feedback)" "^no verdict: .*neither pass nor fail"
is "twice: two turns" "$(grep -c '  user  #' "$R/broken2/messages")" 2
is "text: an agent without memory is told all again" "$(run_done text)" completed
is "text: two turns" "$(grep -c '^# The task' "$R/text/messages")" 2
is "score: goes on" "$(run_done score)" completed
is "score: none" "$(step score 01-score/score)" ""
like "score: says so" "$(step score 01-score/feedback)" "not from 0 to 100"

# ---- an agent that fails ----

is "fails: done" "$(run_done fails)" failed
like "fails: reason" "$(cat "$R/fails/reason")" "^step [0-9]+-[a-z]+: exited 3$"
is "fails: the step" "$(step fails 02-two/status)" failed
is "fails: no third step" "$(ls "$R/fails/steps" | wc -l)" 2
is "fails: progress" "$(cat "$R/fails/progress")" "step 2/3 custom, 33 %"

is "two checkers: done" "$(run_done two)" completed
like "both are heard: first" "$(step two 01-design.2/prompt)" "^first says no"
like "both are heard: second" "$(step two 01-design.2/prompt)" "^second says no"
like "told the task again" "$(step two 01-design.2/prompt)" "^two of them"
like "and what it did before" "$(step two 01-design.2/prompt)" "^work 1"

# ---- a body, overrides, versions ----

workflow shown <<'END'
[step show]
role = designer
instructions = Show.
  $ echo "$COURIER_MODEL"; cat "$IN"
END
sed -i 's/claude \(.*\) {session}/&/; s|^command.*|command = COURIER_MODEL={model} $HOME/fake claude '"$GATE"'|' "$M/tools/fake"
cat >"$P/runs/ctl" <<'END'
create name=body workflow=shown designer_model=big timeout=20m <<
line one

line "two"
END
is "body: done" "$(run_done body)" completed
like "body: all of it" "$(step body 01-show/prompt)" '^line "two"'
is "override: model" "$(step body 01-show/output | head -n 1)" big
is "override: timeout" "$(jq -r .config.timeout.value \
    "$R/body/steps/01-show/sandbox/info.json")" 20m
workflow keeps <<'END'
[step a]
persona = keeper
[step b]
persona = keeper
END
printf 'role = custom\ninstructions = First.\n  $ gate k; echo kept\n' >"$P/personas/keeper"
run_ keeps keeps >/dev/null
at keeps k
rm "$P/personas/keeper"
printf '[step other]\ninstructions = x\n' >"$P/workflows/keeps"
open_gate k
is "a run keeps what it began with" "$(run_done keeps)" completed
is "and its second step" "$(step keeps 02-b/output | tail -n 1)" kept
yes "old texts are there" test -e "$P/workflows/.versions/keeps"
mkdir "$M/projects/other"
cp "$P/workflows/broken" "$M/projects/other/workflows/"
printf 'learn = off\ntool = fake\n' >"$M/projects/other/config"
mkdir -p "$M/projects/other/home"
cp "$P/home/fake" "$M/projects/other/home/"
chmod 700 "$M/projects/other/home/fake"
echo 'create name=copy workflow=broken' >"$M/projects/other/runs/ctl"
is "a workflow copied to another project works" \
    "$(timeout 60 cat "$M/projects/other/runs/copy/wait/done")" completed

# a prompt of 1 MiB, and attempts whose body comes later, or never
workflow counts <<'END'
[step one]
instructions = One.
  $ wc -c <$IN; tail -c 8 $IN
END
{ echo 'create name=big workflow=counts <<'; head -c 1048000 /dev/zero | tr '\0' x; echo; echo theend; } >"$R/ctl"
is "big: done" "$(run_done big)" completed
yes "big: all of it" test "$(step big 01-one/output | head -n 1)" -gt 1048000
like "big: its end" "$(step big 01-one/output)" "^theend"
{ echo 'create name=pair workflow=counts n=2 <<'; echo twins; } >"$R/ctl"
is "pair: both have the body" "$(run_done pair-1) $(run_done pair-2) $(cat "$R"/pair-*/prompt | xargs)" \
    "completed completed twins twins"
is "a body with a prompt" "$(wr "$R/ctl" 'create name=x workflow=counts prompt=y <<
')" EINVAL
is "the name without name=" "$(wr "$R/ctl" 'create plainly workflow=counts
')" OK
is "plainly" "$(run_done plainly)" completed

# ---- follow ----

workflow talks <<'END'
[step one]
instructions = One.
  $ echo first; gate f; echo last
END
run_ talks talks >/dev/null
timeout 60 cat "$R/talks/follow/messages" >"$T/followed" &
f=$!
at talks f
yes "followed as it comes" soon 10 grep -q '^at f$' "$T/followed"
like "board: the step" "$(grep talks-one "$P/board")" "talks/01-one"
open_gate f
wait $f
is "follow ends with the run" "$?" 0
yes "and has all" cmp "$T/followed" "$R/talks/messages"
run_done talks >/dev/null
is "no sandbox is left" "$(ls "$P/by-status/running" "$P/by-status/creating" | grep -c '^[a-z]*-')" 0
is "nothing in errors but what was refused" \
    "$(grep -cv 'runs/ctl\|exited 3\|belongs to a run' "$P/errors")" 0
