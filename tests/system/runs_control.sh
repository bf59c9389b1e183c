#!/bin/bash
# Cancel, pause, resume, stop, restart, delete: a run in every state; and what
# happens to it when its sandbox is ended, paused, or dies.
# shellcheck disable=SC2154,SC2016
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/system/agents_fake.bash
. "$(dirname "$0")/agents_fake.bash"
start
fake_tools
ctl() { wr "$R/$1/ctl" "$2
"; }
status_is() { [ "$(cat "$R/$1/status")" = "$2" ]; }
becomes() { soon 30 status_is "$1" "$2" || bad "$1 is $(cat "$R/$1/status"), not $2"; }
box() { basename "$(readlink "$R/$1/steps/$2/sandbox")"; }
# two steps and a loop; each step stands at the gate RUN-STEP
workflow gates <<'END'
[step one]
instructions = One.
  $ gate "$(sed -n 's/^name //p' $IN)-one"; echo one
[step two]
loop = l
instructions = Two.
  $ r=$(sed -n 's/^name //p' $IN); echo "${r:-$(cat r 2>/dev/null)}" >r; gate "$(cat r)-two"; echo two
[step check]
role = checker
loop = l
instructions = Check.
  $ verdict pass
[loop l]
max = 3
END
# go NAME: begins a run of it
go() { run_ "$1" gates "'prompt=name $1'" >/dev/null; }

# ---- at the first step ----

# late: its time is over long before the end of this suite
run_ late gates timeout=1m salvage_ahead=50s "'prompt=name late'" >/dev/null
at late late-one
for n in cancel pause stop kill vmpause stillkill stilldel; do go $n; done

at cancel cancel-one
is "restart of a live one" "$(ctl cancel restart)" EBUSY
is "delete of a live one" "$(ctl cancel delete)" EBUSY
no "rmdir of a live one" rmdir "$R/cancel"
is "cancel" "$(ctl cancel cancel)" OK
is "cancelled" "$(run_done cancel)" cancelled
is "and why" "$(cat "$R/cancel/reason")" "cancelled by user"
is "its step" "$(step cancel 01-one/status)" cancelled
is "its sandbox" "$(cat "$S/$(box cancel 01-one)/status")" killed
like "and why" "$(cat "$S/$(box cancel 01-one)/reason")" "^run cancelled"
no "not ok" timeout 9 cat "$R/cancel/wait/ok"
is "cancel again" "$(ctl cancel cancel)" OK
is "pause of an ended one" "$(ctl cancel pause)" EBUSY
is "stop of an ended one" "$(ctl cancel stop)" EBUSY

at pause pause-one
is "pause" "$(ctl pause pause)" OK
becomes pause paused
is "its sandbox, too" "$(cat "$S/$(box pause 01-one)/status")" paused
is "pause again" "$(ctl pause pause)" OK
is "why" "$(cat "$R/pause/reason")" "paused by user"
open_gate pause-one
is "resume" "$(ctl pause resume)" OK
at pause pause-two
is "runs on" "$(cat "$R/pause/status")" running
is "resume of a running one" "$(ctl pause resume)" OK
ctl pause pause >/dev/null
becomes pause paused
is "cancel of a paused one" "$(ctl pause cancel)" OK
is "is cancelled" "$(run_done pause)" cancelled
is "no sandbox is left paused" "$(cat "$S/$(box pause 02-two)/status")" killed

at stop stop-one
is "stop" "$(ctl stop stop)" OK
is "it goes on to the turn's end" "$(cat "$R/stop/status")" running
open_gate stop-one
is "stopped" "$(run_done stop)" cancelled
is "why" "$(cat "$R/stop/reason")" "stopped by user after step 01-one"
is "that step is done" "$(step stop 01-one/status)" completed
no "no other began" test -e "$R/stop/steps/02-two"

# ---- its sandbox is ended, or paused, by itself ----

at kill kill-one
is "kill of its sandbox" "$(wr "$S/$(box kill 01-one)/ctl" 'kill now
')" OK
is "fails" "$(run_done kill)" failed
like "and says why" "$(cat "$R/kill/reason")" "step 01-one: its sandbox ended: killed by user"
is "was not tried again" "$(ls "$S" | grep -c '^kill-')" 1

for n in stillkill stilldel; do
    at $n $n-one
    ctl $n pause >/dev/null
done
for n in stillkill stilldel; do becomes $n paused; done
wr "$S/$(box stillkill 01-one)/ctl" 'kill
' >/dev/null
is "kill of a paused run's sandbox" "$(run_done stillkill)" failed
like "says why" "$(cat "$R/stillkill/reason")" "its sandbox ended: killed by user"
yes "deletion of one" rmdir "$S/$(box stilldel 01-one)"
is "fails, too" "$(run_done stilldel)" failed
like "says why" "$(cat "$R/stilldel/reason")" "it was deleted"

at vmpause vmpause-one
wr "$S/$(box vmpause 01-one)/ctl" 'pause
' >/dev/null
becomes vmpause paused
wr "$S/$(box vmpause 01-one)/ctl" 'resume
' >/dev/null
becomes vmpause running
is "cancelled at the end" "$(ctl vmpause cancel)" OK

# ---- a VM that dies: once more, then not ----

go dies
at dies dies-one
first=$(box dies 01-one)
yes "its VM dies" murder "$first"
soon 40 sh -c "[ \"\$(grep -c '^at dies-one' '$R/dies/messages')\" = 2 ]" || bad "not tried again"
no "in another sandbox" [ "$(box dies 01-one)" = "$first" ]
is "under the same step" "$(ls "$R/dies/steps")" 01-one
like "messages say so" "$(cat "$R/dies/messages")" "step 01-one again"
open_gate dies-one
at dies dies-two
murder "$(box dies 02-two)"
soon 40 sh -c "[ \"\$(grep -c '^at dies-two' '$R/dies/messages')\" = 2 ]" || bad "not tried again"
murder "$(box dies 02-two)"
is "not a third time" "$(run_done dies)" failed
like "says why" "$(cat "$R/dies/reason")" "step 02-two: its sandbox ended"

# ---- restart ----

is "restart" "$(ctl dies restart)" OK
becomes dies running
soon 40 test -e "$R/dies/steps/02-two.2" || bad "not restarted at its step"
no "the first step isn't done again" test -e "$R/dies/steps/01-one.2"
like "it is told what was done" "$(step dies 02-two.2/prompt)" "^one$"
open_gate dies-two
is "and comes to its end" "$(run_done dies)" completed
is "an unknown step" "$(ctl dies 'restart from=nope')" ENOENT
is "restart from a step" "$(ctl dies 'restart from=01-one')" OK
is "of a completed one" "$(run_done dies)" completed
yes "all are done again" test -e "$R/dies/steps/01-one.2"
yes "and the last" test -e "$R/dies/steps/03-check.2"
is "progress" "$(cat "$R/dies/progress")" "step 3/3 checker, round 1/3, 100 %"
is "restart when stopped" "$(ctl stop restart)" OK
open_gate stop-two
is "goes on where it was" "$(run_done stop)" completed
no "without what was done" test -e "$R/stop/steps/01-one.2"

# a loop whose rounds are spent begins anew, with what was said last
workflow spent <<'END'
[step design]
loop = l
instructions = Build.
  $ if [ -e /dev/null ]; then echo "work $N"; fi
[step check]
role = checker
loop = l
instructions = Check.
  $ if [ -e $GATE/pass ]; then verdict pass; else verdict fail "more of it"; fi
[loop l]
max = 2
END
run_ spent spent >/dev/null
is "spent" "$(run_done spent)" failed
open_gate pass
ctl spent restart >/dev/null
is "restarted" "$(run_done spent)" completed
is "at the begin of the loop" "$(ls "$R/spent/steps" | tr '\n' ' ')" \
    "01-design 01-design.2 01-design.3 02-check 02-check.2 02-check.3 "
like "with the last feedback" "$(step spent 01-design.3/prompt)" "^more of it$"

# ---- before it began ----

cat >"$R/ctl" <<'END' &
create name=early workflow=gates <<
name early
END
wait $!
is "created paused" "$(ctl early pause)" OK
becomes early paused
is "cancel" "$(ctl early cancel)" OK
is "is cancelled" "$(run_done early)" cancelled
exec 4>"$R/ctl"
printf 'create name=draft workflow=gates <<\nname draft' >&4
is "pending while its body is written" "$(cat "$R/draft/status")" pending
is "pause it" "$(ctl draft pause)" OK
exec 4>&-
becomes draft paused
is "stop it" "$(ctl draft stop)" OK
is "stopped before it began" "$(run_done draft)" cancelled
is "no step" "$(ls "$R/draft/steps")" ""

# ---- while the VM is being made ----

printf 'learn = off\ntool = fake\nsetup = until [ -e %s/setup ]; do sleep 0.1; done\n' "$GATE" >"$P/config"
go made
go made2
soon 30 test -e "$R/made/steps/01-one" || bad "made has not begun"
is "cancel while it is made" "$(ctl made cancel)" OK
is "cancelled" "$(run_done made)" cancelled
soon 30 test -e "$R/made2/steps/01-one"
is "pause while it is made" "$(ctl made2 pause)" OK
open_gate setup
becomes made2 paused
is "the sandbox was made first" "$(cat "$S/$(box made2 01-one)/status")" paused
open_gate made2-one
open_gate made2-two
ctl made2 resume >/dev/null
is "comes to its end" "$(run_done made2)" completed
printf 'learn = off\ntool = fake\n' >"$P/config"

# ---- the trash ----

is "delete" "$(ctl cancel delete)" OK
no "is gone" test -e "$R/cancel"
yes "is in the trash" test -e "$P/trash/cancel/steps/01-one/prompt"
is "restart in the trash" "$(wr "$P/trash/cancel/ctl" 'restart
')" EBUSY
is "restore" "$(wr "$P/trash/cancel/ctl" 'restore
')" OK
yes "is back" test -e "$R/cancel/status"
yes "rmdir" rmdir "$R/cancel"
go cancel
yes "mv back with another name" mv "$P/trash/cancel" "$R/was"
is "is it" "$(cat "$R/was/status")" cancelled
yes "rmdir of it" rmdir "$R/was"
yes "for good" rmdir "$P/trash/was"
no "is gone" test -e "$P/trash/was"
at cancel cancel-one

# one that its time ends is such a death, too: the work is saved, then again
soon 70 sh -c "[ \"\$(grep -c '^at late-one' '$R/late/messages')\" = 2 ]" || bad "late: not tried again"
like "its time was over" "$(cat "$S/late-one/reason")" "^timeout"
ctl late cancel >/dev/null

# ---- killall, and a pause by budget ----

cat >"$M/tools/dear" <<END
command = \$HOME/fake claude $GATE
continue = \$HOME/fake claude $GATE {session}
format = claude
END
workflow dear <<'END'
[step one]
loop = l
tool = dear
instructions = One.
  $ echo one
[step two]
loop = l
instructions = Two.
  $ verdict pass
role = checker
[loop l]
END
run_ budget dear budget=0.005 >/dev/null
becomes budget paused
like "the budget pauses the run" "$(cat "$R/budget/reason")" "^budget 0.005 reached"
ctl budget cancel >/dev/null
go all
at all all-one
echo killall >"$P/ctl"
is "killall cancels runs" "$(run_done all)" cancelled
is "and why" "$(cat "$R/all/reason")" killall
is "all of them" "$(run_done cancel)" cancelled
run_done budget >/dev/null
run_done vmpause >/dev/null
none() { [ -z "$(ls "$P"/by-status/{creating,running,paused})" ]; }
soon 20 none
is "no sandbox is left" "$(cd "$P/by-status" && echo {creating,running,paused}/* | tr -d '*' )" \
    "creating/ running/ paused/"
