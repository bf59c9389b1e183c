#!/bin/bash
# What a provider does by itself, and what time brings: kills and pauses from
# elsewhere, VMs that vanish, deadlines, full accounts, a daemon that was away.
# Parts run at once, each with a daemon and a host of its own.
#   tests/system/provider.sh [e2b|local|away|full]
. "$(dirname "$0")/../lib.sh"

if [ $# = 0 ]; then
    export BIN
    "$0" local >"$T/local" 2>&1 &
    "$0" e2b >"$T/e2b" 2>&1 &
    "$0" away >"$T/away" 2>&1 &
    "$0" full >"$T/full" 2>&1 &
    wait
    for b in local e2b away full; do
        sed '$d' "$T/$b" | sed "s/^/$b: /"
        read -r p _ f _ < <(tail -n 1 "$T/$b")
        passed=$((passed + ${p:-0})) failed=$((failed + ${f:-1}))
    done
    exit
fi
part=$1 backend=local
case $part in e2b | full) backend=e2b ;; esac

if [ "$backend" = e2b ]; then
    H=$T/host
    "$BIN/courier-sandboxd" --data "$H" --idle 600 >/dev/null || exit 1
    export E2B_API_KEY E2B_API_URL E2B_SANDBOX_URL
    E2B_API_KEY=$(jq -r .key "$H/host.json")
    E2B_API_URL=$(jq -r .url "$H/host.json") E2B_SANDBOX_URL=$E2B_API_URL
else
    H=$D/host
fi
api() { # METHOD PATH [BODY]: the body, then the status as last line
    curl -s -m 20 -w '\n%{http_code}\n' -X "$1" ${3+-d "$3"} \
        -H 'Content-Type: application/json' \
        -H "X-API-KEY: $(jq -r .key "$H/host.json")" \
        "$(jq -r .url "$H/host.json")$2"
}
code() { api "$@" | tail -n 1; }
vm() { jq -r .provider_id "$S/$1/info.json"; }
vms() { api GET '/v2/sandboxes?state=running,paused' | head -n 1 | jq length; }
st() { cat "$S/$1/status"; }
why() { cat "$S/$1/reason"; }
status_is() { [ "$(st "$1")" = "$2" ]; }
# becomes WHAT NAME STATUS SECONDS
becomes() {
    if soon "$4" status_is "$2" "$3"; then ok
    else bad "$1: still '$(st "$2")' ($(why "$2")), not $3, after $4 s"; fi
}

# ---- the daemon is away at the deadline ----

if [ "$part" = away ]; then
    export GIT_CONFIG_GLOBAL=$T/gitconfig
    git config --file "$T/gitconfig" user.name tester
    git config --file "$T/gitconfig" user.email tester@example.org
    git init -q --bare -b main "$T/repo.git"
    git clone -q "$T/repo.git" "$T/w" 2>/dev/null
    (cd "$T/w" && echo one >one && git add one && git commit -qm one &&
        git push -q origin HEAD:main)
    start --backend local
    wr "$S/ctl" "create name=laptop tool=shell timeout=1m repo=$T/repo.git sync=end pr=off prompt='echo two >two; echo made'
create name=sleeper tool=shell timeout=1m on_timeout=pause prompt='echo zzz'
create name=dead tool=shell timeout=30m prompt='echo dead'
" >/dev/null
    for n in laptop sleeper dead; do
        is "$n: its turn" "$(wait_for $n done)" completed
    done
    due=$(stat -c %Y "$S/laptop/expires") v=$(vm laptop) gone=$(vm dead)
    kill -9 "$(pid)"
    soon 10 sh -c "! pgrep -f 'courierfs.*$T/'"
    is 'a VM ends meanwhile' "$(code DELETE "/sandboxes/$gone")" 204
    sleep $((due - $(date +%s) + 2))
    vm_state() { api GET "/sandboxes/$v" | head -n 1 | jq -r .state; }
    is 'the provider has paused it' "$(vm_state)" paused
    yes 'the daemon is back' mount_ --backend local
    is 'resumed, saved and killed' "$(wait_for laptop ended 60)" killed
    like 'the reason' "$(why laptop)" '^timeout'
    is 'its VM is gone' "$(code GET "/sandboxes/$v")" 404
    is 'the work is at home' \
        "$(git -C "$T/repo.git" show courier/laptop:two 2>&1)" two
    becomes 'on_timeout=pause' sleeper paused 10
    is 'its reason' "$(why sleeper)" timeout
    becomes 'the one that ended' dead error 10
    like 'its reason' "$(why dead)" 'the VM is gone'
    like 'its history' "$(cat "$S/dead/messages")" dead
    echo kill >"$S/sleeper/ctl"
    is 'a paused one is killed' "$(wait_for sleeper ended)" killed
    exit
fi

# ---- an account that is full: 429 and no Retry-After ----

if [ "$part" = full ]; then
    python3 - "$E2B_API_URL" "$T" >"$T/stub.log" 2>&1 <<'END' &
import http.client, http.server, json, os, socketserver, sys
to, t = sys.argv[1].split("//")[1], sys.argv[2]

class Stub(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *a):
        pass

    def do(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        create = self.command == "POST" and self.path in (
            "/sandboxes", "/v2/sandboxes")
        if create and os.path.exists(t + "/full"):
            status, out = 429, json.dumps({"code": 429, "message":
                "you have reached the maximum number of concurrent E2B "
                "sandboxes (20)"}).encode()
            with open(t + "/asked", "a") as f:
                f.write("x\n")
        else:
            c = http.client.HTTPConnection(to)
            h = {k: v for k, v in self.headers.items()
                 if k.lower() not in ("host", "connection")}
            c.request(self.command, self.path, body or None, h)
            r = c.getresponse()
            status, out = r.status, r.read()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        if status != 204:
            self.send_header("Content-Length", str(len(out)))
        self.end_headers()
        if status != 204:
            self.wfile.write(out)

    do_GET = do_POST = do_DELETE = do_PUT = do_PATCH = do

class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True

s = Server(("127.0.0.1", 0), Stub)
with open(t + "/stub.new", "w") as f:
    f.write(str(s.server_port))
os.rename(t + "/stub.new", t + "/stub")
s.serve_forever()
END
    stub=$!
    soon 10 test -s "$T/stub"
    E2B_API_URL=http://127.0.0.1:$(cat "$T/stub")
    : >"$T/full"
    start --backend e2b
    wr "$S/ctl" 'create name=full tool=shell prompt="echo in"
create name=never tool=shell
' >/dev/null
    said() { grep -qE "$2" "$S/$1/reason"; }
    yes 'the reason is readable' soon 20 said full 'waiting: .*maximum number'
    is 'it waits in creating' "$(st full)" creating
    is 'no error' "$(cat "$S/full/error")" ''
    echo kill >"$S/never/ctl"
    is 'one that waits is killed' "$(wait_for never ended 10)" killed
    sleep 3
    is 'it goes on waiting' "$(st full)" creating
    n=$(wc -l <"$T/asked")
    if [ "$n" -le 12 ]; then ok; else bad "asked $n times"; fi
    rm "$T/full"
    is 'with room it starts' "$(wait_for full running 60)" running
    is 'and works' "$(wait_for full done)" completed
    is 'one VM' "$(vms)" 1
    echo kill >"$S/full/ctl"
    is 'killed' "$(wait_for full ended)" killed
    is 'none left' "$(vms)" 0
    kill $stub
    exit
fi

start --backend "$backend"
like 'it says which backend' "$(cat "$T/start")" "backend $backend"

# ---- deadlines: begun now, looked at later; one minute is the least ----

wr "$S/ctl" 'create name=dl-kill tool=shell timeout=1m salvage_ahead=10s prompt="echo hello"
create name=dl-pause tool=shell timeout=1m on_timeout=pause prompt="echo hello"
' >/dev/null
mk moved timeout=30m
mk touched timeout=2m on_timeout=pause
for n in dl-kill dl-pause; do
    is "$n: its turn" "$(wait_for $n done)" completed
done
due_kill=$(stat -c %Y "$S/dl-kill/expires")
due_pause=$(stat -c %Y "$S/dl-pause/expires")
(
    wait_for dl-pause paused 100 >/dev/null
    echo "$EPOCHREALTIME" >"$T/paused.at"
) &
(
    wait_for dl-kill ended 100 >/dev/null
    echo "$EPOCHREALTIME" >"$T/killed.at"
) &

# ---- expires ----

left() { echo $(($(stat -c %Y "$S/$1/expires") - $(date +%s))); }
near() { # WHAT NAME SECONDS: that much is left, or was a while ago
    local l
    l=$(left "$2")
    if [ $((l - $3)) -ge -15 ] && [ $((l - $3)) -le 2 ]; then ok
    else bad "$1: $l s left, not about $3"; fi
}
near 'the first deadline' moved 1800
like 'expires shows a time' "$(cat "$S/moved/expires")" \
    '^20[0-9-]+T[0-9:]+Z$'
is 'its mtime is that time' "$(date -d "$(cat "$S/moved/expires")" +%s)" \
    "$(stat -c %Y "$S/moved/expires")"
is 'expires by write' "$(wr "$S/moved/expires" '10m
')" OK
near 'after 10m' moved 600
provider_left() {
    local at
    at=$(api GET "/sandboxes/$(vm "$1")" | head -n 1 | jq -r .endAt)
    echo $(($(date -d "$at" +%s) - $(date +%s)))
}
told() { local l; l=$(provider_left "$1"); [ "$l" -gt "$2" ] && [ "$l" -lt "$3" ]; }
yes 'the provider is told' soon 10 told moved 590 604
is 'an absolute time' "$(wr "$S/moved/expires" "$(date -u -d '+20 min' +%FT%TZ)
")" OK
near 'after an absolute one' moved 1200
yes 'touch -d' touch -d '+30 min' "$S/moved/expires"
near 'after touch -d' moved 1800
yes 'plain touch' touch "$S/touched/expires"
near 'a plain touch is the timeout from now' touched 120
is 'the verb' "$(wr "$S/moved/ctl" 'timeout 1h
')" OK
near 'after timeout 1h' moved 3600
is 'too short' "$(wr "$S/moved/expires" '30s
')" EINVAL
is 'too long' "$(wr "$S/moved/expires" '5h
')" EINVAL
is 'in the past' "$(wr "$S/moved/expires" '2020-01-01T00:00:00Z
')" EINVAL
no 'touch into the past' touch -d '-1 hour' "$S/moved/expires"
near 'refused ones change nothing' moved 3600
is 'moved from elsewhere' \
    "$(code POST "/sandboxes/$(vm moved)/timeout" '{"timeout":300}')" 204
seen() { local l; l=$(left moved); [ "$l" -gt 280 ] && [ "$l" -lt 302 ]; }
yes 'is seen' soon 10 seen

# ---- killed and paused from elsewhere ----

for n in k1 k2 p1 gone; do
    wr "$S/ctl" "create name=$n tool=shell prompt='echo i am $n; trap'
" >/dev/null
done
for n in k1 k2 p1 gone; do
    is "$n: its turn" "$(wait_for $n done)" completed
done
like 'SIGINT and SIGQUIT are not ignored' "$(ask p1 'grep SigIgn /proc/self/status')" completed
ign=$(awk '/SigIgn/ { print $2 }' "$S/p1/log" | tail -n 1)
is 'by a turn' "$((0x${ign:-f} & 6))" 0

is 'k1 is killed elsewhere' "$(code DELETE "/sandboxes/$(vm k1)")" 204
becomes 'idle, killed elsewhere' k1 error 10
like 'its reason' "$(why k1)" 'VM is gone: it was (ended|killed) from elsewhere'
is 'its error' "$(cat "$S/k1/error")" "$(why k1)"
like 'its history stays' "$(cat "$S/k1/messages")" 'i am k1'
is 'expires is empty' "$(cat "$S/k1/expires")" ''
is 'ended' "$(wait_for k1 ended)" error

is 'k2 works' "$(wr "$S/k2/message" 'echo begun; sleep 100')" OK
soon 20 grep -q begun "$S/k2/log"
code DELETE "/sandboxes/$(vm k2)" >/dev/null
becomes 'at work, killed elsewhere' k2 error 10
like 'its turn ends in words' "$(cat "$S/k2/messages")" '#[0-9]+ error  .+'
is 'output is kept' "$(cat "$S/k2/log")" "$(printf 'i am k2\nbegun')"

is 'p1 works' "$(wr "$S/p1/message" 'echo begun; sleep 8; echo over')" OK
soon 20 grep -q begun "$S/p1/log"
is 'p1 is paused elsewhere' "$(code POST "/sandboxes/$(vm p1)/pause")" 204
becomes 'paused elsewhere' p1 paused 10
is 'its reason' "$(why p1)" 'paused from elsewhere'
is 'no message now' "$(wr "$S/p1/message" x)" EBUSY
is 'p1 is resumed elsewhere' "$(code POST "/sandboxes/$(vm p1)/connect" \
    '{"timeout":600}' | head -c 2)" 20
becomes 'resumed elsewhere' p1 running 25
is 'its reason then' "$(why p1)" 'resumed from elsewhere'
is 'the turn goes on' "$(wait_for p1 done)" completed
is 'once' "$(grep -c over "$S/p1/log")" 1
code POST "/sandboxes/$(vm p1)/pause" >/dev/null
becomes 'paused elsewhere again' p1 paused 10
is 'resume of that' "$(wr "$S/p1/ctl" 'resume
')" OK
becomes 'resumed by us' p1 running 20
is 'it works' "$(ask p1 'echo still here')" completed

# ---- a VM that is deleted while it is paused ----

wr "$S/p1/ctl" 'pause
' >/dev/null
is 'p1 pauses' "$(wait_for p1 paused)" paused
before=$(cat "$S/p1/messages")
code DELETE "/sandboxes/$(vm p1)" >/dev/null
wr "$S/p1/ctl" 'resume
' >/dev/null
becomes 'a resume that answers 404' p1 error 20
like 'its reason' "$(why p1)" 'VM is gone'
is 'history as it was' "$(cat "$S/p1/messages")" "$before"

# ---- a VM that vanishes ----

init_of() { # its first process on the host
    local id p
    id=$(vm "$1")
    for p in $(pgrep -f -- '^/run/courier/init --init'); do
        grep -q "boxes/$id" "/proc/$p/mountinfo" 2>/dev/null && echo "$p"
    done | head -n 1
}
p=$(init_of gone)
yes 'the VM has a process' test -n "$p"
[ -z "$p" ] || kill -9 "$p"
becomes 'vanished' gone error 10
like 'in words' "$(why gone)" '^the VM is gone: .{8,}'
like 'its history is there' "$(cat "$S/gone/messages")" 'i am gone'
is 'the others do not notice' "$(st moved)" running

# ---- another courierfs on the same host: other records, other VMs ----

if [ "$backend" = e2b ]; then
    mkdir -p "$T/mnt2"
    yes 'a second daemon' timeout 60 "$BIN/courierfs" --data "$T/data2" \
        --backend e2b "$T/mnt2"
    mkdir "$T/mnt2/projects/web"
    S2=$T/mnt2/projects/web/sandboxes
    wr "$S2/ctl" 'create name=moved tool=shell
' >/dev/null
    timeout 60 cat "$S2/moved/wait/running" >/dev/null
    sleep 6 # each has looked at the list
    is 'the first has its VM' "$(st moved)" running
    is 'the second too' "$(cat "$S2/moved/status")" running
    echo killall >"$T/mnt2/ctl"
    is 'the second kills its own' \
        "$(timeout 60 cat "$S2/moved/wait/ended")" killed
    is 'not the first one'"'"'s' "$(st moved) $(code GET "/sandboxes/$(vm moved)")" \
        'running 200'
    fusermount3 -u "$T/mnt2" || { echo shutdown >"$T/mnt2/ctl"; }
fi

# ---- how big a VM is: at E2B the template decides ----

wr "$S/ctl" 'create name=small tool=shell cpu=1 memory=512
' >/dev/null
is 'a VM of another size runs' "$(wait_for small running)" running
size() { jq -r '"\(.vm.cpu) \(.vm.memory)"' "$S/$1/info.json"; }
if [ "$backend" = e2b ]; then
    is 'it has what its template has' "$(size small)" '2 1024'
    is 'and that is told' "$(why small)" 'started; the template gives '"\
"'2 CPUs instead of 1, 1024 MiB of memory instead of 512'
else
    is 'it has what was asked for' "$(size small)" '1 512'
    is 'so nothing is told' "$(why small)" started
fi
echo 'kill now' >"$S/small/ctl"
is 'it is ended' "$(wait_for small ended)" killed

# ---- max_active ----

n=$(cat "$S"/*/status | grep -c running)
yes 'max_active' sh -c "echo 'max_active = $n' >'$M/config'"
wr "$S/ctl" 'create name=waits tool=shell
' >/dev/null
said() { grep -q "$2" "$S/$1/reason"; }
yes 'it says why it waits' soon 10 said waits 'max_active'
is 'in creating' "$(st waits)" creating
yes 'more room' sh -c "echo 'max_active = 50' >'$M/config'"
is 'it goes on' "$(wait_for waits running)" running

# ---- no VM without a record ----

for k in $(seq 20); do
    wr "$S/ctl" "create name=r$k tool=shell
" >/dev/null
    sleep 0.0$((k * 7 % 10))
    [ $((k % 3)) = 0 ] && sleep 0.$((k % 5))
    echo 'kill now' >"$S/r$k/ctl"
done
all_ended() { ! cat "$S"/r[0-9]*/status | grep -qvx killed; }
yes '20 creates and kills: all killed' soon 40 all_ended
count() { [ "$(vms)" = "$(cat "$S"/*/status | grep -cE 'running|paused')" ]; }
yes 'as many VMs as records want' soon 15 count

# ---- the deadlines ----

at() { # WHAT FILE DUE EARLY LATE: within these seconds of it
    local t
    t=$(cat "$2" 2>/dev/null)
    t=${t%.*}
    if [ -n "$t" ] && [ $((t - $3)) -ge "$4" ] && [ $((t - $3)) -le "$5" ]
    then ok
    else bad "$1: at ${t:-never}, due $3"; fi
}
soon 60 test -s "$T/killed.at"
is 'on_timeout=kill' "$(st dl-kill)" killed
like 'its reason' "$(why dl-kill)" '^timeout'
at 'in its time' "$T/killed.at" "$due_kill" -12 3
soon 60 test -s "$T/paused.at"
is 'on_timeout=pause' "$(st dl-pause)" paused
is 'its reason' "$(why dl-pause)" timeout
at 'in its time' "$T/paused.at" "$due_pause" -1 2
is 'it can be resumed' "$(wr "$S/dl-pause/ctl" 'resume
')" OK
is 'and goes on' "$(wait_for dl-pause running)" running
is 'with its memory' "$(ask dl-pause 'echo back')" completed

echo killall >"$M/ctl"
for n in moved touched waits dl-pause; do
    is "$n: killall" "$(wait_for $n ended)" killed
done
none() { [ "$(vms)" = 0 ]; }
yes 'the list of the provider is empty' soon 15 none
