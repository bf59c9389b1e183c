#!/bin/bash
# Remotes over smart HTTP with a key; pushes that are refused.
set -u
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/repo.bash"
key=ghp_TOKEN0123456789abcdef
remote r
remote strict
remote pub
mkdir "$T/srv"
mv "$T/r.git" "$T/strict.git" "$T/srv"
for r in r strict; do git -C "$T/srv/$r.git" config http.receivepack true; done
printf '#!/bin/sh\necho "no pushes on Fridays" >&2\nexit 1\n' \
    >"$T/srv/strict.git/hooks/pre-receive"
chmod +x "$T/srv/strict.git/hooks/pre-receive"
python3 "$HERE/git/smart-http" --root "$T/srv" --token "$key" >"$T/url" \
    2>"$T/http.err" &
server=$!
soon 20 test -s "$T/url"
url=$(cat "$T/url")
srv() { git -C "$T/srv/$1.git" "${@:2}"; }
start
printf 'repo = %s/r.git\nnetwork = host\npr = off\n' "$url" >"$P/config"

make nokey
is 'no key: the clone fails' "$(ended nokey)" error
like 'in words' "$(cat "$S/nokey/error")" 'wants a key'
echo wrong-key-0123456789 >"$P/keys/github"
make wrong
is 'a wrong key' "$(ended wrong)" error
like 'is told' "$(cat "$S/wrong/error")" 'refused the key'
echo "$key" >"$P/keys/github"
make one
make strict repo="$url/strict.git"
make lost sync=end
is 'the right one' "$(up one)" running
is 'a turn' "$(ask one 'echo 1 >f; git remote -v; cat .git/config
git config --global -l; env; ps axww -o args; git fetch origin && echo fetched
echo 2 >g; git add g; git commit -qm g; git push -q && echo agent-pushed')" \
    completed
like "the agent's own git works" "$(cat "$S/one/messages")" 'fetched'
like 'and pushes' "$(cat "$S/one/messages")" 'agent-pushed'
unlike 'the key is not in its configuration, arguments, or remote' \
    "$(sed 's/^GITHUB_TOKEN=.*//; s/^GH_TOKEN=.*//' "$S/one/messages")" "$key"
soon 20 sh -c "git -C $T/srv/r.git log -1 --format=%s courier/one |
    grep -q courier:"
is 'the sync has pushed' "$(srv r show courier/one:f)" 1
soon 10 grep -q '^+1' "$S/one/diff"
like 'diff works' "$(cat "$S/one/diff")" '^\+1'
like 'the end' "$(kill_ one)" '^killed by user'
is 'the work' "$(srv r show courier/one:g)" 2

# ---- a branch that may not be written: beside it, and there to stay ----
printf '#!/bin/sh\n[ "$1" != refs/heads/courier/kept ] || exit 1\n' \
    >"$T/srv/r.git/hooks/update"
chmod +x "$T/srv/r.git/hooks/update"
make kept
up kept >/dev/null
ask kept 'echo 1 >k; git add k; git commit -qm one' >/dev/null
went() { grep -qE '^courier-kept-[0-9a-f]{8}$' "$S/kept/branch"; }
yes 'a branch that a hook refuses' soon 20 went
b=$(cat "$S/kept/branch")
ask kept 'git checkout -q --detach; echo 2 >k; git add k; git commit -qm two' \
    >/dev/null
two() { [ "$(srv r log -1 --format=%s "$b")" = two ]; }
yes 'a detached HEAD goes there, too' soon 20 two
r=$(kill_ kept)
is 'all is in one branch' "$(srv r for-each-ref --format='%(refname:short)' \
    'refs/heads/courier-kept*')" "$b"

# ---- what was pushed is taken away there: it is pushed again ----
make removed
make rewound
for n in removed rewound; do
    up $n >/dev/null
    ask $n 'echo 1 >f; git add f; git commit -qm "work of one"' >/dev/null
    soon 20 srv r rev-parse -q --verify courier/$n
done
srv r update-ref -d refs/heads/courier/removed
srv r update-ref refs/heads/courier/rewound main
like 'a branch that was removed' "$(kill_ removed)" 'pushed courier/removed'
is 'is there again' "$(srv r log -1 --format=%s courier/removed)" 'work of one'
like 'one that was set back' "$(kill_ rewound)" 'pushed courier/rewound'
is 'goes on' "$(srv r log -1 --format=%s courier/rewound)" 'work of one'

# ---- refused ----
up strict >/dev/null
ask strict 'echo 1 >f; git add f; git commit -qm c; echo 2 >u' >/dev/null
soon 20 grep -q Fridays "$S/strict/error"
like 'a push that a hook refuses is told at once' "$(cat "$S/strict/error")" \
    'no pushes on Fridays'
yes 'the work is home by then' test -s "$S/strict/salvage/commits.bundle"
r=$(kill_ strict)
like 'the end tells it' "$r" 'no pushes on Fridays.*salvage/.*commits.bundle'
yes 'the bundle has it' git -C "$T/srv/strict.git" fetch -q \
    "$S/strict/salvage/commits.bundle" courier/strict:kept
is 'all of it' "$(srv strict show kept:u)" 2

# ---- the server is gone ----
up lost >/dev/null
ask lost 'echo 1 >f' >/dev/null
kill "$server"
r=$(kill_ lost)
like 'the remote is gone' "$r" \
    'not pushed .*salvage/ \(commits.bundle\)'
yes 'the bundle has it' git -C "$T/srv/r.git" fetch -q \
    "$S/lost/salvage/commits.bundle" courier/lost:courier/lost
is 'all of it' "$(srv r show courier/lost:f)" 1

# ---- the key is nowhere ----
no 'not in logs' grep -rqaF "$key" "$D/log" "$M/errors" "$M/events"
for f in "$S"/*/setup.log "$S"/*/error "$S"/*/reason "$S"/*/info.json; do
    grep -qaF "$key" "$f" && bad "the key is in $f"
done
no 'not in the database' grep -qaF "$key" "$D/courier.db"
no 'not in the caches' grep -rqaF "$key" "$D/cache"
