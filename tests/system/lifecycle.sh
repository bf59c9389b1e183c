#!/bin/bash
# One sandbox from its making to its end and back out of the trash, as a
# person does it; what each view says on the way; the reconciler's part; what
# is durable when the daemon is killed right after the answer.
cd "$(dirname "$0")/../.." && . tests/lib.sh || exit 2
start

### made in one line
is "create" "$(wr "$S/ctl" $'create name=one tool=shell timeout=30m prompt="echo first-$((1+1))"\n')" OK
is "runs" "$(wait_for one running)" running
is "its first turn" "$(wait_for one done)" completed
is "status" "$(cat "$S/one/status")" running
is "agent" "$(cat "$S/one/agent")" idle
is "error" "$(cat "$S/one/error")" ""
is "prompt" "$(cat "$S/one/prompt")" 'echo first-$((1+1))'
like "messages" "$(cat "$S/one/messages")" '^first-2'
is "log" "$(cat "$S/one/log")" first-2
is "config has its own only" "$(cat "$S/one/config")" $'tool = shell\ntimeout = 30m'
like "expires" "$(cat "$S/one/expires")" '^20[0-9-]+T[0-9:]+Z$'
is "info: where a value is from" "$(jq -r '[.config.timeout.value, .config.timeout.from, .config.cpu.from] | join(" ")' "$S/one/info.json")" "30m sandbox default"
is "info: kind" "$(jq -r .kind "$S/one/info.json")" standalone
yes "info: provider_id" test -n "$(jq -r '.provider_id // empty' "$S/one/info.json")"
is "board" "$(awk -F'\t' '$2 == "one" { print $1, $3, $4, $5 }' "$M/board")" "web running idle shell"
is "board: header" "$(head -n 1 "$M/board" | cut -f 1-11)" $'project\tname\tstatus\tagent\ttool\tmodel\tsince\texpires\tcost\tbranch\tpr'
is "the project's board" "$(cat "$P/board")" "$(cat "$M/board")"
is "active" "$(val "$P/status" active)" 1
is "by status" "$(readlink -f "$P/by-status/running/one")" "$(readlink -f "$S/one")"
is "events: the states" "$(jq -r 'select(.event == "status") | .to' "$S/one/events" | xargs)" "creating running"
is "events: numbered" "$(jq -r .seq "$M/events" | awk 'NR > 1 && $1 != l + 1 { print } { l = $1 }')" ""
is "the project's events are the root's" "$(diff <(grep '"project":"web"' "$M/events") "$P/events")" ""
like "root status" "$(val "$M/status" sandboxes)" 'running 1'
like "backend" "$(val "$M/status" backend)" '^local'
yes "limits are named" test -n "$(val "$M/status" limits)"

### a follow-up, a file kept between turns, the environment
wr "$P/env" $'GREETING=hello world\n' >/dev/null
is "a file" "$(ask one 'echo kept > f; pwd; id -un')" completed
is "is there in the next turn" "$(ask one 'cat f')" completed
is "said" "$(tail -n 2 "$S/one/messages" | head -n 1)" kept
like "at home" "$(cat "$S/one/messages")" '^/home/user$'
is "a new one has the environment" "$(wr "$S/ctl" $'create name=env tool=shell prompt="echo [$GREETING]"\n'; wait_for env done)" OK$'\n'completed
is "not expanded on the way" "$(cat "$S/env/prompt")" 'echo [$GREETING]'
like "but in the VM" "$(cat "$S/env/messages")" '^\[hello world\]'

### a pause loses nothing and repeats nothing
wr "$S/one/message" 'for i in $(seq 60); do echo "beat $i"; sleep 0.05; done' >/dev/null
yes "it beats" soon 20 grep -q '^beat 5$' "$S/one/messages"
wr "$S/one/ctl" $'pause\n' >/dev/null
is "paused" "$(wait_for one paused)" paused
is "active" "$(val "$P/status" active)" 1
is "no deadline" "$(cat "$S/one/expires")" ""
n=$(grep -c '^beat' "$S/one/messages")
yes "it stands still" test "$n" -lt 60
wr "$S/one/ctl" $'resume\n' >/dev/null
is "resumed" "$(wait_for one running)" running
is "goes on to its end" "$(wait_for one done)" completed
is "every beat once, in order" "$(grep '^beat' "$S/one/messages" | xargs)" "$(seq 60 | sed 's/^/beat /' | xargs)"

### durable at the answer
is "a message" "$(wr "$S/one/ctl" $'message echo durable-$((1+1))\n')" OK
kill -9 "$(pid)"
yes "restart" mount_
is "is done" "$(wait_for one done)" completed
is "once" "$(grep -c '^durable-2' "$S/one/messages")" 1
is "a document" "$(wr "$P/CLAUDE.md" "durable text")" OK
mkdir "$S/dd"
is "a create" "$(wr "$S/ctl" $'create name=cc tool=shell\n')" OK
is "a kill" "$(wr "$S/env/ctl" $'kill\n')" OK
kill -9 "$(pid)"
yes "restart" mount_
is "the document" "$(cat "$P/CLAUDE.md")" "durable text"
is "the draft" "$(cat "$S/dd/status")" draft
is "the create" "$(wait_for cc running)" running
is "the kill" "$(wait_for env ended)" killed
is "active" "$(val "$P/status" active)" 2

### its end
is "kill" "$(wr "$S/one/ctl" $'kill\n')" OK
is "killed" "$(wait_for one ended)" killed
is "reason" "$(cat "$S/one/reason")" "killed by user"
is "done is known" "$(timeout 5 cat "$S/one/wait/done")" completed
is "files is down" "$(eno listdir "$S/one/.files")" EHOSTDOWN
unlike "not on the board" "$(cat "$M/board")" $'^web\tone\t'
is "history" "$(grep -c '^first-2' "$S/one/messages")" 1
is "into the trash" "$(eno rmdir "$S/one")" OK
is "back" "$(eno rename "$P/trash/one" "$S/uno")" OK
is "with its history" "$(grep -c '^first-2' "$S/uno/messages")" 1
is "away" "$(eno rmdir "$S/uno")$(eno rmdir "$P/trash/uno")" OKOK

### ended from elsewhere: the reconciler finds out
vm=$(jq -r .provider_id "$S/cc/info.json")
( set -a; . "$M/local.env"; python3 - "$vm" <<'E2'
import os, sys, urllib.request
r = urllib.request.Request(os.environ["E2B_API_URL"] + "/sandboxes/" + sys.argv[1],
                           method="DELETE", headers={"X-API-KEY": os.environ["E2B_API_KEY"]})
print(urllib.request.urlopen(r, timeout=20).status)
E2
) >"$T/del" 2>&1
is "killed from elsewhere" "$(cat "$T/del")" 204
yes "is found out" wait_for cc ended 90
like "with a reason" "$(cat "$S/cc/reason")" '[a-z]'
is "active" "$(val "$P/status" active)" 0
