#!/bin/bash
# Runs every block of docs/chains.md as it stands.
# shellcheck disable=SC2154,SC2016
. "$(dirname "$0")/../lib.sh"
# shellcheck source=tests/system/agents_fake.bash
. "$(dirname "$0")/agents_fake.bash"
start
fake_tools
repo web
cat >"$M/tools/worker" <<'END'
command = cat >"$HOME/in"; cat "$HOME/in"; cat work 2>/dev/null; grep -q FAIL "$HOME/in" && exit 1; cat "$HOME/in" >>work; git add work 2>/dev/null; git commit -qm work 2>/dev/null; true
format = text
END
printf 'tool = worker\nlearn = off\npr = off\nrepo = %s\n' "$T/web.git" >"$P/config"
printf '[step one]\n' >"$P/workflows/single"
export P
doc=$HERE/../docs/chains.md
# block TITLE: its code
block() {
    awk -v t="### $1" '$0 == t { on = 1 } on && /^```$/ { exit }
        on && code { print } on && /^```[a-z]/ { code = 1 }' "$doc"
}
mkdir "$T/w" && cd "$T/w" || exit

block "A Makefile as orchestrator" >Makefile
yes "make" timeout 90 make -j2 P="$P"
is "all completed" "$(cat "$R"/{api,ui,release}/status | sort -u)" completed
like "the prompt is the target's" "$(step ui 01-one/prompt)" "^Show the list of orders"
yes "the last began after the others" python3 -c '
import json, sys
t = [json.load(open(sys.argv[1] + "/" + n + "/info.json"))["times"]
     for n in ("api", "ui", "release")]
assert t[2]["created"] >= t[0]["ended"] and t[2]["created"] >= t[1]["ended"]' "$R"
rm ./*.ok
yes "again" timeout 60 make P="$P"
is "begins nothing new" "$(ls -d "$R"/*/steps/* | wc -l)" 3
sed -i 's/Write the release notes/FAIL/' Makefile
rm ./*.ok
rmdir "$R/release" && rmdir "$P/trash/release"
sed -i 's/id=\$\*/id=$*2/' Makefile
rmdir "$R/api" "$R/ui" && rmdir "$P/trash/api" "$P/trash/ui"
no "one that fails" timeout 60 make P="$P"
is "has failed" "$(cat "$R/release/status")" failed
yes "what it needs is done" test -e api.ok
no "is restarted" timeout 60 make P="$P"
yes "at its step" test -e "$R/release/steps/01-one.2"

line=$(block "Every night" | sed 's/\\%/%/g; s/^\([^ ]* \)\{5\}//')
yes "the line of cron" sh -c "$line"
yes "twice" sh -c "$line"
night=nightly-$(date +%F)
is "nightly" "$(run_done "$night")" completed
is "once" "$(ls -d "$R"/nightly-* | wc -l)" 1

mkdir tasks
echo "first task" >tasks/a.md
echo "second task" >tasks/b.md
block "One after another" >chain.sh
yes "chain" timeout 90 sh chain.sh
is "completed" "$(cat "$R"/{a,b}/status | sort -u)" completed
like "the second has the work of the first" "$(step b 01-one/output)" "^first task$"
is "its base" "$(jq -r .git.base "$R/b/info.json")" courier/a

block "Side by side" >side.sh
is "side by side" "$(timeout 90 sh side.sh | cut -f 1,2 | tr '\t\n' '  ')" \
    "side-a completed side-b completed "

block "A second opinion" >second.sh
yes "second opinion" timeout 90 sh second.sh
like "told what the first said" "$(step repair 01-one/prompt)" "^What could break under load"
