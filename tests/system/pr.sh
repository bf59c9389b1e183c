#!/bin/bash
# Pull requests, with the stand-in for GitHub.
set -u
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/repo.bash"
G=$T/gh
mkdir -p "$G" "$T/acme"
key=ghp_0123456789abcdefTOKEN
python3 "$HERE/git/github.py" --state "$G" --token "$key" >"$T/url" \
    2>"$T/gh.err" &
soon 20 test -s "$T/url"
api=$(cat "$T/url")
start
remote acme/web
R=acme/web
printf 'repo = %s\ngithub_api = %s\n' "$T/acme/web.git" "$api" >"$P/config"
echo "$key" >"$P/keys/github"
fault() { printf '[%s]' "$1" >"$G/faults"; }
pulls() { jq -r "$1" "$G/pulls.json"; }
pr() { timeout 40 cat "$S/$1/wait/pr" 2>/dev/null; }
db() { sqlite3 -cmd '.timeout 5000' "$D/courier.db" "$1"; }
# work NAME SCRIPT: a turn, then the kill
work() {
    up "$1" >/dev/null
    ask "$1" "$2" >/dev/null
    kill_ "$1" >/dev/null
}

# ---- created ----
make one 'pr_labels="agent, needs review"' "prompt='Make the thing work'"
up one >/dev/null
timeout 60 cat "$S/one/wait/done" >/dev/null
work one 'echo 1 >f; git add f; git commit -qm "Add f"; echo it is done'
is 'a kill ends in a pull request' "$(pr one)" created
url=$(cat "$S/one/pr_url")
like 'pr_url' "$url" '^https?://.*/acme/web/pull/1$'
is 'pr/url is the same' "$(cat "$S/one/pr/url")" "$url"
is 'pr/number' "$(cat "$S/one/pr/number")" 1
is 'the title is of the commit' "$(cat "$S/one/pr/title")" 'Add f'
is 'its head' "$(pulls '.[0].head')" courier/one
is 'its base' "$(pulls '.[0].base')" main
like 'the body has the last message' "$(pulls '.[0].body')" 'it is done'
like 'and the commits' "$(pulls '.[0].body')" '^- [0-9a-f]{12} Add f'
is 'labels' "$(pulls '.[0].labels | join("|")')" 'agent|needs review'
is 'no draft' "$(pulls '.[0].draft')" false
like 'an event tells it' "$(grep '"event":"pr"' "$P/events" | tail -1)" \
    'created'

# ---- followed until it is merged ----
look() { # the next look is now, not in a minute
    kill "$1" && soon 20 sh -c "! kill -0 $1"
    db "UPDATE job SET not_before=0 WHERE verb='pr'"
    mount_ || bad "courierfs does not start again"
}
n=$(wc -l <"$G/calls")
look "$(pid)"
looked() { [ "$(grep -c 'GET /repos/acme/web/pulls/1 ' "$G/calls")" -ge "$1" ]; }
yes 'it is looked at' soon 20 looked 1
look "$(pid)"
yes 'and again' soon 20 looked 2
is 'still created' "$(cat "$S/one/pr/status")" created
is 'no checks' "$(cat "$S/one/pr/checks")" ''

# ---- what the forge's checks say ----
said() { [ "$(cat "$S/one/pr/checks")" = "$1" ]; }
echo '{"runs": {"build": null, "lint": "success"}}' >"$G/checks.json"
look "$(pid)"
yes 'checks are under way' soon 20 said pending
is 'in words' "$(jq -r .pr.checks_reason "$S/one/info.json")" \
    '1 of 2 passed, 1 to come'
echo '{"runs": {"build": "failure", "lint": "success"},
    "statuses": {"ci/old": "success"}}' >"$G/checks.json"
look "$(pid)"
yes 'one failed' soon 20 said failed
is 'which one' "$(jq -r .pr.checks_reason "$S/one/info.json")" \
    '2 of 3 passed, failed: build'
like 'an event tells it' "$(grep '"checks"' "$S/one/events" | tail -1)" \
    '"checks":"failed".*failed: build'
n_events=$(grep -c '"checks"' "$S/one/events")
look "$(pid)"
yes 'it is looked at as before' soon 20 looked 5
is 'what did not change is no event' "$(grep -c '"checks"' "$S/one/events")" \
    "$n_events"
echo '{"runs": {"build": "success", "lint": "skipped"}}' >"$G/checks.json"
look "$(pid)"
yes 'all passed' soon 20 said passed
curl -sS -X POST -d '{"state": "closed", "merged": true}' \
    "$api/_/acme/web/pulls/1" >/dev/null
look "$(pid)"
merged() { [ "$(cat "$S/$1/pr/status")" = merged ]; }
yes 'merged' soon 20 merged one
is 'wait/pr says so' "$(pr one)" merged
is 'nobody looks any more' "$(db "SELECT count(*) FROM job WHERE verb='pr'")" 0
[ "$n" -gt 0 ] && ok || bad 'no calls'

# ---- draft; asked for while it runs; a title of one's own ----
make two pr=draft
up two >/dev/null
ask two 'echo 2 >f; git add f; git commit -qm two' >/dev/null
is 'pr is a verb' "$(ctl two 'pr title="My own title"')" OK
is 'that creates' "$(pr two)" created
is 'with that title' "$(pulls '.[1].title')" 'My own title'
is 'as a draft' "$(pulls '.[1].draft')" true
is 'while it runs' "$(cat "$S/two/status")" running
like 'the board shows it' "$(cat "$P/board")" 'acme/web/pull/2'
ask two 'echo 3 >f' >/dev/null
kill_ two >/dev/null
is 'the end does not open another' "$(pulls length)" 2
is 'pr again, on a killed one' "$(ctl two 'pr title="Better title"')" OK
titled() { [ "$(cat "$S/two/pr/title")" = 'Better title' ]; }
yes 'changes the title' soon 20 titled
is 'there, too' "$(pulls '.[1].title')" 'Better title'
is 'of the same one' "$(pulls length)" 2

# ---- one that is there already ----
make old "branch=feature"
up old >/dev/null
ask old 'echo o >o' >/dev/null
soon 20 at $R rev-parse -q --verify feature
jq '. + [{repo: "acme/web", number: 3, state: "open", title: "Theirs",
    body: "by hand", draft: false, merged: false, labels: [],
    head: "feature", base: "main"}]' "$G/pulls.json" >"$G/p" &&
    mv "$G/p" "$G/pulls.json"
kill_ old >/dev/null
is 'an open one is adopted' "$(pr old)" created
is 'its number' "$(cat "$S/old/pr/number")" 3
is "others' words stay" "$(pulls '.[2].title')" Theirs
is 'no second one' "$(pulls length)" 3

# ---- its branch is refused: the request is of the one beside ----
make beside sync=turn
up beside >/dev/null
ask beside 'echo 1 >s; git add s; git commit -qm one' >/dev/null
soon 20 at $R rev-parse -q --verify courier/beside
at $R update-ref refs/heads/courier/beside "$(at $R commit-tree \
    -p courier/beside -m theirs 'courier/beside^{tree}')"
ask beside 'echo 2 >s; git add s; git commit -qm two' >/dev/null
went() { grep -qE '^courier-beside-[0-9a-f]{8}$' "$S/beside/branch"; }
yes 'branch says where the work went' soon 20 went
b=$(cat "$S/beside/branch")
is 'info.json says what was meant' \
    "$(jq -r '.git.branch + " " + .git.meant' "$S/beside/info.json")" \
    "$b courier/beside"
soon 10 grep -q '^+2' "$S/beside/diff"
like 'diff is of the work' "$(cat "$S/beside/diff")" '^\+2'
ask beside 'echo 3 >s; git add s; git commit -qm three' >/dev/null
three() { [ "$(tip $R "$b")" = three ]; }
yes 'it goes on there' soon 20 three
kill_ beside >/dev/null
is 'a refused branch ends in a request' "$(pr beside)" created
is 'of the one beside' "$(pulls '.[-1].head')" "$b"
is 'there is one such branch' "$(at $R for-each-ref --format=x \
    'refs/heads/courier-beside-*' | wc -l)" 1
is 'the other keeps what it has' "$(tip $R courier/beside)" theirs

# one whose request is open already, when somebody writes to its branch
make two2
up two2 >/dev/null
ask two2 'echo 1 >t; git add t; git commit -qm one' >/dev/null
ctl two2 pr >/dev/null
is 'a request while it runs' "$(pr two2)" created
at $R update-ref refs/heads/courier/two2 "$(at $R commit-tree \
    -p courier/two2 -m theirs 'courier/two2^{tree}')"
ask two2 'echo 2 >t; git add t; git commit -qm two' >/dev/null
kill_ two2 >/dev/null
is 'what came later has one, too' "$(pr two2)" created
like 'of its branch' "$(pulls '.[-1].head')" '^courier-two2-'
is 'which is the one told' "$(cat "$S/two2/pr/number")" "$(pulls length)"

# ---- skipped ----
make none
make def branch=main
make noforge github_api=
make off pr=off
work none true
is 'nothing new' "$(pr none)" skipped
like 'says so' "$(jq -r .pr.reason "$S/none/info.json")" 'nothing new'
work def 'echo d >d'
is 'a default branch' "$(pr def)" skipped
like 'says so' "$(jq -r .pr.reason "$S/def/info.json")" "'main'"
work noforge 'echo n >n'
is 'not a forge' "$(pr noforge)" skipped
like 'says so' "$(jq -r .pr.reason "$S/noforge/info.json")" 'not on a forge'
work off 'echo o >o'
is 'pr = off' "$(cat "$S/off/pr/status")" ''
no 'wait/pr can not come true' cat "$S/off/wait/pr"
is 'none of them asked GitHub' "$(pulls length)" 6
is 'with pr = off, pr by hand' "$(ctl off pr)" OK
is 'works' "$(pr off)" created

# ---- failed, and tried again ----
make bad401
make bad422
make lost
make limit
fault '{"status": 401, "message": "Bad credentials", "count": 99}'
work bad401 'echo 1 >b1'
is '401' "$(pr bad401)" failed
like 'in words' "$(jq -r .pr.reason "$S/bad401/info.json")" \
    'refused the key.*Bad credentials'
like 'errors has it' "$(cat "$M/errors")" 'bad401/pr/status.*refused the key'
fault ''
is 'tried again by hand' "$(ctl bad401 pr)" OK
is 'it is created' "$(pr bad401)" created
fault '{"method": "POST", "path": "pulls", "status": 422,
    "message": "Validation Failed", "errors": [{"resource": "PullRequest",
    "code": "custom", "message": "the base is locked"}]}'
work bad422 'echo 1 >b2'
is '422' "$(pr bad422)" failed
like "in GitHub's words" "$(jq -r .pr.reason "$S/bad422/info.json")" \
    'the base is locked'
fault '{"method": "POST", "path": "pulls", "status": "drop"}'
n=$(pulls length)
work lost 'echo 1 >b3'
is 'an answer that got lost' "$(pr lost)" created
is 'opens no second one' "$(pulls length)" $((n + 1))
fault '{"status": 403, "message": "API rate limit exceeded",
    "headers": {"X-RateLimit-Remaining": "0", "Retry-After": "20"}}'
work limit 'echo 1 >b4'
limited() { jq -r .pr.reason "$S/limit/info.json" | grep -q 'rate limit'; }
yes 'a rate limit is told' soon 18 limited
is 'while it waits' "$(cat "$S/limit/pr/status")" creating
is 'and then goes on' "$(pr limit)" created

# ---- the daemon dies meanwhile ----
fault '{"method": "POST", "path": "pulls", "status": "html", "count": 3}'
make dies
n=$(pulls length)
up dies >/dev/null
ask dies 'echo 1 >b5' >/dev/null
ctl dies kill >/dev/null
ended dies >/dev/null
p=$(pid)
kill -9 "$p"
soon 20 sh -c "! kill -0 $p"
fusermount3 -uz "$M"
mount_ || bad 'courierfs does not start again'
is 'killed in between' "$(pr dies)" created
is 'there is one' "$(pulls length)" $((n + 1))

# ---- the key ----
no 'the token is in no log' grep -rqaF "$key" "$D/log" "$M/errors" \
    "$P/events" "$S/one/setup.log"
no 'nor in the database' grep -qaF "$key" "$D/courier.db"
