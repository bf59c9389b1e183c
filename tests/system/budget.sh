#!/bin/bash
# Limits: a budget that is reached pauses; a deadline kills or pauses, with
# on_timeout, and with the daemon away; when_done; max_active. The shortest
# timeout is a minute, so that half runs beside the rest.
cd "$(dirname "$0")/../.." && . tests/lib.sh || exit 2
start
wr "$S/ctl" $'create name=tk tool=shell timeout=1m salvage_ahead=10s prompt="echo kept-$((1+1))"\n' >/dev/null
wr "$S/ctl" $'create name=tp tool=shell timeout=1m on_timeout=pause prompt="echo kept-$((1+1))"\n' >/dev/null
is "tk runs" "$(wait_for tk running)" running
is "tp runs" "$(wait_for tp running)" running
began=$SECONDS
t=$(($(date -d "$(cat "$S/tk/expires")" +%s) - $(date +%s)))
yes "a minute is left ($t)" test "$t" -gt 40 -a "$t" -le 60

### a daemon that is away at the deadline: a second one, started again later
mkdir "$T/away" "$T/data-away"
away() { timeout 60 "$BIN/courierfs" --data "$T/data-away" "$T/away" >"$T/start2" 2>&1; }
A=$T/away/projects/p/sandboxes
yes "another daemon" away
mkdir "$T/away/projects/p"
wr "$A/ctl" $'create name=k tool=shell timeout=1m prompt="echo kept-$((1+1))"\ncreate name=p tool=shell timeout=1m on_timeout=pause\n' >/dev/null
is "k works" "$(timeout 60 cat "$A/k/wait/done")" completed
is "p runs" "$(timeout 60 cat "$A/p/wait/running")" running
is "it goes away" "$(wr "$T/away/ctl" $'shutdown\n')" OK
yes "is away" soon 20 eval '! mountpoint -q "$T/away"'

### budget: a JSON tool that costs
cat >"$P/home/costly" <<'END'
#!/bin/sh
cat >/dev/null
echo '{"type":"system","subtype":"init","session_id":"s1","model":"m"}'
echo '{"type":"assistant","message":{"model":"m","content":[{"type":"text","text":"spent"}]}}'
echo '{"type":"result","subtype":"success","is_error":false,"session_id":"s1","result":"spent","total_cost_usd":0.60,"usage":{"input_tokens":10,"output_tokens":10}}'
END
chmod +x "$P/home/costly"
wr "$M/tools/costly" $'command = $HOME/costly\nformat = claude\n' >/dev/null
is "with a budget" "$(wr "$S/ctl" $'create name=b tool=costly budget=1.00 prompt=one\n')" OK
is "one turn" "$(wait_for b done)" completed
is "still runs" "$(cat "$S/b/status")" running
is "two turns" "$(wr "$S/b/ctl" $'message two\nmessage three\n')" OK
is "reaching it pauses" "$(wait_for b paused)" paused
like "the reason" "$(cat "$S/b/reason")" 'budget 1(\.00)? reached'
like "its cost" "$(jq -r .usage.usd "$S/b/info.json")" '^1\.2'
like "on the board" "$(cat "$M/board")" '1\.20'
is "two were done" "$(grep -c '^spent$' "$S/b/messages")" 2
is "resume without more budget" "$(wr "$S/b/ctl" $'resume\n')" EDQUOT
like "in words" "$(tail -n 1 "$M/errors")" 'budget'
is "more budget" "$(sed -i 's/budget.*/budget = 5/' "$S/b/config"; echo $?)" 0
is "resume" "$(wr "$S/b/ctl" $'resume\n')" OK
is "the queue goes on" "$(wait_for b done)" completed
is "three were done" "$(grep -c '^spent$' "$S/b/messages")" 3

### when_done
is "when_done=kill" "$(wr "$S/ctl" $'create name=w tool=shell when_done=kill prompt="echo done-$((1+1))"\n')" OK
is "ends by itself" "$(wait_for w ended)" killed
like "why" "$(cat "$S/w/reason")" 'done'
is "how it went" "$(timeout 5 cat "$S/w/wait/done")" completed
like "its work was done" "$(cat "$S/w/messages")" '^done-2'

### usage
like "usage has seconds" "$(cat "$S/w/usage")" 'sandbox_seconds|seconds'
is "a record has its fields" "$(head -n 1 "$S/w/usage.jsonl" | jq -r 'keys_unsorted | sort | join(",")')" \
    "model,project,quantity,run,sandbox,service,step,time,unit,usd"
is "the csv has them, too" "$(head -n 1 "$S/w/usage.csv" | tr -d '\r')" \
    "time,service,model,unit,quantity,usd,project,sandbox,run,step"

### max_active
is "max_active" "$(wr "$M/config" $'max_active = 5\n')" OK
for i in 1 2 3 4; do wr "$S/ctl" "create name=m$i tool=shell"$'\n' >/dev/null; done
full() { [ "$(val "$P/status" active)" = 5 ]; }
yes "five run" soon 30 full
is "one waits" "$(cat "$S"/m*/status | sort | uniq -c | xargs)" "$(cat "$S"/m*/status | sort | uniq -c | xargs)"
like "and says for what" "$(cat "$S"/m*/reason)" 'max_active 5'
no "never more" eval '[ "$(val "$P/status" running)" -gt 5 ]'
wr "$S/b/ctl" $'kill now\n' >/dev/null
yes "room is taken" soon 30 eval '[ "$(wait_for b ended)" = killed ] && full'
is "no limit" "$(wr "$M/config" $'# none\n')" OK
yes "all run" soon 30 eval '! grep -q creating "$S"/m*/status'

### the deadline
left=$((55 - (SECONDS - began)))
[ $left -gt 0 ] && is "not before its time" "$(cat "$S/tp/status")" running
is "on_timeout=kill" "$(wait_for tk ended 120)" killed
like "the reason" "$(cat "$S/tk/reason")" '^timeout'
like "history stays" "$(cat "$S/tk/messages")" '^kept-2'
is "on_timeout=pause" "$(wait_for tp paused 120)" paused
like "the reason" "$(cat "$S/tp/reason")" '^timeout'
is "resumes" "$(wr "$S/tp/ctl" $'resume\n')" OK
is "and works" "$(wait_for tp running; ask tp 'echo after-$((1+1))')" $'running\ncompleted'

### the one that was away finds its VMs paused
yes "it comes back" away
is "kill: done now" "$(timeout 90 cat "$A/k/wait/ended")" killed
like "the reason" "$(cat "$A/k/reason")" '^timeout'
like "history stays" "$(cat "$A/k/messages")" '^kept-2'
is "pause: paused" "$(timeout 90 cat "$A/p/wait/paused")" paused
is "resumes" "$(wr "$A/p/ctl" $'resume\n'; timeout 60 cat "$A/p/wait/running")" OK$'\n'running
wr "$T/away/ctl" $'shutdown all\n' >/dev/null
yes "ends" soon 60 eval '! mountpoint -q "$T/away"'
