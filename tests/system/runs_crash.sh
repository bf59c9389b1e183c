#!/bin/bash
# The daemon dies (kill -9) while runs are in every state; after a new start
# each goes on where it was, and no turn is done twice.
# shellcheck disable=SC2154,SC2016
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/system/agents_fake.bash
. "$(dirname "$0")/agents_fake.bash"
start
fake_tools
ctl() { wr "$R/$1/ctl" "$2
"; }
crash() {
    local p
    p=$(pid)
    kill -9 "$p"
    soon 10 sh -c "! kill -0 $p"
}
back() {
    mount_ || bad "does not start again: $(cat "$T/start")"
}
becomes() {
    soon 30 grep -qx "$2" "$R/$1/status" || bad "$1 is $(cat "$R/$1/status"), not $2"
}
turns() { grep -c '^── .*  assistant  #' "$R/$1/messages"; }

workflow gates <<'END'
[step one]
instructions = One.
  $ g=$(sed -n 's/^name //p' $IN); gate "$g-one"; echo one
[step two]
loop = l
instructions = Two.
  $ echo "two $N"
[step check]
role = checker
loop = l
instructions = Check.
  $ g=$(sed -n 's/^name //p' $IN); echo "${g:-$(cat g)}" >g; gate "$(cat g)-check$N"
  $ if [ $N = 2 ]; then verdict pass; else verdict fail "once more"; fi
[loop l]
max = 3
END
go() { run_ "$1" gates "'prompt=name $1'" >/dev/null; }
outcome() {
    is "$1: done" "$(run_done "$1" 90)" completed
    is "$1: steps" "$(ls "$R/$1/steps" | tr '\n' ' ')" \
        "01-one 02-two 02-two.2 03-check 03-check.2 "
    is "$1: no turn twice" "$(turns "$1")" 5
    is "$1: rounds" "$(cat "$R/$1"/steps/02-two{,.2}/output | tr '\n' ' ')" "two 1 two 2 "
}

# at a turn of the first step, in the loop, while its VM is being made or
# ended; paused; with a wish that has just been written
for n in turn loop paused cancel stop wake; do go $n; done
at turn turn-one
for n in loop paused; do open_gate $n-one; done
at loop loop-check1
at paused paused-check1
at cancel cancel-one
at stop stop-one
at wake wake-one
ctl paused pause >/dev/null
becomes paused paused
ctl wake pause >/dev/null
becomes wake paused
go made
ctl cancel cancel >/dev/null
ctl stop stop >/dev/null
crash
open_gate loop-check1
open_gate made-one
open_gate stop-one
back
is "cancelled after all" "$(run_done cancel)" cancelled
is "stopped after its turn" "$(run_done stop)" cancelled
is "its step is done" "$(step stop 01-one/status)" completed
is "still paused" "$(cat "$R/paused/status")" paused
open_gate loop-check2
outcome loop
open_gate made-check1
open_gate made-check2
at made made-check1
open_gate turn-one
open_gate turn-check1
open_gate turn-check2
ctl wake resume >/dev/null
crash
for g in one check1 check2; do open_gate wake-$g; done
back
outcome turn
outcome made
outcome wake
ctl paused resume >/dev/null
crash
open_gate paused-check1
open_gate paused-check2
back
outcome paused

# a body that was never ended begins no run; one that was, does
python3 -c '
import os, sys, time
os.write(os.open(sys.argv[1], os.O_WRONLY), sys.argv[2].encode())
time.sleep(60)' "$R/ctl" 'create name=half workflow=gates <<
name half' &
half=$!
soon 10 test -e "$R/half" || bad "half is not there while its body is written"
cat >"$R/ctl" <<'END'
create name=whole workflow=gates <<
name whole
END
for g in one check1 check2; do open_gate whole-$g; done
crash
kill "$half"
back
outcome whole
no "half is dropped" test -e "$R/half"

# many deaths of the daemon at any moment
open_gate many-one
for g in check1 check2; do open_gate many-$g; open_gate more-$g; done
open_gate more-one
go many
go more
for i in 1 2 3 4 5 6; do
    sleep 0.$((i * 37 % 5))
    crash
    back
done
outcome many
outcome more

# the daemon is away while the VM dies: once more from the last push
go away
at away away-one
box=$(basename "$(readlink "$R/away/steps/01-one/sandbox")")
id=$(jq -r .provider_id "$S/$box/info.json")
crash
murder_id "$id" || bad "no VM $id"
for g in one check1 check2; do open_gate away-$g; done
back
is "away: done" "$(run_done away 90)" completed
like "away: was tried again" "$(cat "$R/away/messages")" "step 01-one again"

# shutdown all ends its sandbox and pauses it: nothing is made by a start
go shut
at shut shut-one
p=$(pid)
echo 'shutdown all' >"$M/ctl"
soon 30 sh -c "! kill -0 $p" || bad "shutdown all does not end it"
back
is "shutdown: paused" "$(cat "$R/shut/status")" paused
is "and why" "$(cat "$R/shut/reason")" shutdown
is "its sandbox has ended" "$(ls "$P/by-status/running")" ""
for g in one check1 check2; do open_gate shut-$g; done
ctl shut resume >/dev/null
is "goes on when it is told to" "$(run_done shut)" completed
is "with the same step" "$(ls "$R/shut/steps" | head -n 1)" 01-one

soon 20 sh -c "! ls $P/by-status/running | grep ."
soon 20 grep -qx 'jobs 0' "$M/status"
is "no sandbox is left" "$(ls "$P"/by-status/{creating,running,paused} | grep -c '^[a-z]*-')" 0
is "no job is left" "$(val "$M/status" jobs)" 0
