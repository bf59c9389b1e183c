#!/bin/bash
# local.env points E2B's own SDK at the local host while it runs; the host
# ends when it has been idle, and comes back when it is needed.
. "$(dirname "$0")/../lib.sh"
start --backend local
H=$D/host
is 'empty while none runs' "$(cat "$M/local.env")" ''
is 'and its size too' "$(stat -c %s "$M/local.env")" 0
is 'no host yet' "$(pgrep -fc "courier-sandboxd .*$T/")" 0
mk one
pid1=$(jq -r .pid "$H/host.json")
is 'three lines' "$(wc -l <"$M/local.env")" 3
is 'its size' "$(stat -c %s "$M/local.env")" "$(wc -c <"$M/local.env")"
is 'its mode' "$(stat -c %a "$M/local.env")" 400
is 'nothing else' "$(grep -vcE \
    '^E2B_(API_URL|SANDBOX_URL|API_KEY)=[A-Za-z0-9_:/.]+$' "$M/local.env")" 0

id=$(jq -r .provider_id "$S/one/info.json")
(
    set -a
    . "$M/local.env"
    curl -s -m 10 -H "X-API-KEY: $E2B_API_KEY" "$E2B_API_URL/v2/sandboxes" |
        jq -r '.[].sandboxID'
) >"$T/list"
is 'curl lists it' "$(cat "$T/list")" "$id"
is 'no key, no list' "$(curl -s -m 10 -o /dev/null -w '%{http_code}' \
    "$(. "$M/local.env" && echo "$E2B_API_URL")/v2/sandboxes")" 401

peers=${COURIER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/courier-tests}/peers
if command -v node >/dev/null && [ -d "$peers/node_modules/e2b" ]; then
    ln -s "$peers/node_modules" "$T/node_modules"
    cat >"$T/sdk.mjs" <<'END'
import { Sandbox } from 'e2b'
const pages = Sandbox.list()
const all = []
while (pages.hasNext) all.push(...await pages.nextItems())
console.log(all.map(s => s.sandboxId).join(' '))
const s = await Sandbox.connect(all[0].sandboxId)
const r = await s.commands.run('echo from the SDK; cat note')
console.log(r.stdout.trim())
END
    ask one 'echo from courier >note' >/dev/null
    out=$(set -a && . "$M/local.env" && HOME=$T timeout 60 node "$T/sdk.mjs" 2>&1)
    is 'the SDK lists it and works in it' "$out" "$id
from the SDK
from courier"
else
    echo 'skipped: the SDK is not installed (tests/peers/run.sh does)'
fi
# connect has moved the deadline, nothing else
is 'it runs' "$(cat "$S/one/status")" running

# ---- idle: a minute without a sandbox ----

echo 'kill now' >"$S/one/ctl"
is 'killed' "$(wait_for one ended)" killed
t=$SECONDS
yes 'it lives on' kill -0 "$pid1"
is 'local.env is still there' "$(wc -l <"$M/local.env")" 3
sleep 50
yes 'less than a minute is not enough' kill -0 "$pid1"
ended() { ! kill -0 "$pid1"; }
yes 'after a minute it ends' soon 25 ended
[ $((SECONDS - t)) -ge 58 ] && ok || bad "it ended after $((SECONDS - t)) s"
nothing() { [ ! -s "$M/local.env" ] && [ -z "$(cat "$M/local.env")" ]; }
yes 'local.env is empty then' soon 5 nothing
mk two
yes 'on need it comes back' test "$(jq -r .pid "$H/host.json")" != "$pid1"
is 'and works' "$(ask two 'echo hi')" completed
is 'local.env is back' "$(wc -l <"$M/local.env")" 3

# ---- the daemon dies: the host lives on and is found again ----

pid2=$(jq -r .pid "$H/host.json") v=$(jq -r .provider_id "$S/two/info.json")
kill -9 "$(pid)"
sleep 0.3
yes 'the host lives on' kill -0 "$pid2"
yes 'a new daemon' mount_ --backend local
is 'the same host' "$(jq -r .pid "$H/host.json")" "$pid2"
is 'the same VM' "$(cat "$S/two/status") $(jq -r .provider_id "$S/two/info.json")" \
    "running $v"
is 'it works' "$(ask two 'echo again')" completed
echo 'shutdown all' >"$M/ctl"
gone() { ! mountpoint -q "$M"; }
yes 'shutdown all' soon 30 gone
