#!/bin/bash
# The control plane of courier-sandboxd, for real: curl and jq against a host
# of our own. BIN is the build directory. Leaves nothing behind.
set -u
BIN=${BIN:-build}
bin=$(readlink -f "$BIN/courier-sandboxd")
work=$(mktemp -d /var/tmp/courier-host.XXXXXX)
D=$work/d
passed=0
failed=0
id='' token=''

end() {
    local pid
    pid=$(jq -r .pid "$D/host.json" 2>/dev/null)
    if [ -n "$pid" ]; then
        kill "$pid" 2>/dev/null
        for _ in $(seq 100); do [ -d "/proc/$pid" ] || break; sleep .05; done
    fi
    rm -rf "$work"
}
trap end EXIT

ok() {
    passed=$((passed + 1))
    [ -z "${VERBOSE:-}" ] || echo "ok   $1"
}
bad() {
    failed=$((failed + 1))
    echo "BAD  $1${2:+: $2}"
}
# is NAME GOT WANTED
is() { if [ "$2" = "$3" ]; then ok "$1"; else bad "$1" "got '$2', not '$3'"; fi; }
# has NAME TEXT PATTERN
has() { if grep -q -- "$3" <<<"$2"; then ok "$1"; else bad "$1" "'$2' lacks '$3'"; fi; }
lacks() { if grep -q -- "$3" <<<"$2"; then bad "$1" "'$2' has '$3'"; else ok "$1"; fi; }

# call METHOD PATH [BODY] [curl's options]: the body into $out, status into $st
call() {
    local m=$1 p=$2 body=()
    shift 2
    if [ $# -gt 0 ]; then
        [ -z "$1" ] || body=(-d "$1")
        shift
    fi
    st=$(curl -sS -m 30 -g --unix-socket "$D/host.sock" -X "$m" \
        -o "$work/out" -D "$work/head" -w '%{http_code}' "${body[@]}" "$@" \
        "http://localhost$p" 2>"$work/err")
    out=$(tr -d '\0' <"$work/out" 2>/dev/null)
}
field() { jq -r "$1" <<<"$out"; }
create() {
    call POST /v2/sandboxes "$1"
    id=$(field .sandboxID)
    token=$(field .envdAccessToken)
}
# run [-u USER] COMMAND: what it prints, by the data plane
run() {
    local user=() cmd p n
    if [ "$1" = -u ]; then
        user=(-u "$2:")
        shift 2
    fi
    cmd=$(jq -cn --arg c "$1" \
        '{process:{cmd:"/bin/bash",args:["-l","-c",$c]},stdin:false}')
    n=$(printf %s "$cmd" | wc -c)
    printf -v p '\\x00\\x%02x\\x%02x\\x%02x\\x%02x' $((n >> 24)) \
        $((n >> 16 & 255)) $((n >> 8 & 255)) $((n & 255))
    { printf "$p"; printf %s "$cmd"; } >"$work/frame"
    curl -sS -m 30 --unix-socket "$D/host.sock" "${user[@]}" \
        -H 'Content-Type: application/connect+json' \
        -H "X-Access-Token: $token" -H "E2b-Sandbox-Id: $id" \
        -H 'E2b-Sandbox-Port: 49983' --data-binary @"$work/frame" \
        http://localhost/process.Process/Start |
        tr -c '[:print:]\n' '\n' | grep -o '{"event.*}' |
        jq -r '.event.data // {} | (.stdout, .stderr) // empty' |
        while read -r b; do base64 -d <<<"$b"; done
}
gone() { # PATTERN: no process has it in its command line
    for _ in $(seq 60); do
        pgrep -f -- "$1" >/dev/null || return 0
        sleep .05
    done
    return 1
}

# ---- the daemon ----

before=$(date +%s%N)
said=$("$bin" --data "$D" --idle 600 </dev/null 7<"$0")
is 'starts' $? 0
has 'says one line' "$said" "serving in $D"
has 'a second start says so' "$("$bin" --data "$D")" 'already running'
is 'and ends well' $? 0
[ $(($(date +%s%N) - before)) -lt 2000000000 ] && ok 'fast' || bad 'fast'
pid=$(jq -r .pid "$D/host.json")
url=$(jq -r .url "$D/host.json")
key=$(jq -r .key "$D/host.json")
is 'host.json is private' "$(stat -c %a "$D/host.json")" 600
is 'the directory too' "$(stat -c %a "$D")" 700
is 'keeps no inherited descriptor' \
    "$(ls -l "/proc/$pid/fd" | grep -c host.sh)" 0
has 'key' "$key" '^e2b_[0-9a-f]\{40\}$'
call GET /limits
has 'limits' "$out" '"freeze"'
memory=$(field .memory) network=$(field .network)

# ---- TCP and the key ----

tcp() { curl -sS -m 20 -o "$work/out" -w '%{http_code}' "$@"; }
is 'TCP without a key' "$(tcp "$url/sandboxes")" 401
is 'its body has a code' "$(jq .code "$work/out")" 401
is 'a wrong key' "$(tcp -H "X-API-KEY: ${key%?}x" "$url/sandboxes")" 401
is 'a longer key' "$(tcp -H "X-API-KEY: ${key}0" "$url/sandboxes")" 401
is 'an empty key' "$(tcp -H 'X-API-KEY;' "$url/sandboxes")" 401
is 'the key' "$(tcp -H "X-API-KEY: $key" "$url/sandboxes")" 200
is 'chunked body' "$(tcp -H "X-API-KEY: $key" -H 'Transfer-Encoding: chunked' \
    -d '{"templateID":"base","timeout":60}' "$url/v2/sandboxes")" 201
tcpid=$(jq -r .sandboxID "$work/out")
is 'bind over TCP is refused' "$(tcp -H "X-API-KEY: $key" \
    -d '{"templateID":"base","metadata":{"courier.bind":"[\"/opt\"]"}}' \
    "$url/v2/sandboxes")" 400
is 'host network over TCP too' "$(tcp -H "X-API-KEY: $key" \
    -d '{"templateID":"base","metadata":{"courier.network":"host"}}' \
    "$url/v2/sandboxes")" 400
is 'delete over TCP' "$(tcp -X DELETE -H "X-API-KEY: $key" \
    "$url/sandboxes/$tcpid")" 204

# ---- create, get, list ----

create '{"templateID":"base","timeout":300,"metadata":{"a":"b c","n":"1"},"envVars":{"X":"1 2"}}'
is 'create' "$st" 201
has 'id' "$id" '^i[a-z0-9]\{20\}$'
has 'token' "$token" '^[0-9a-f]\{64\}$'
is 'envd version' "$(field .envdVersion)" 0.6.13
first=$id first_token=$token
call GET "/sandboxes/$id"
is 'get' "$st" 200
is 'state' "$(field .state)" running
is 'metadata' "$(field .metadata.a)" 'b c'
is 'lifecycle' "$(field .lifecycle.onTimeout)" kill
call GET "/sandboxes/$id-6532622b"
is 'the old form of an id' "$st" 200
call GET /sandboxes/UPPER
is 'a malformed id' "$st" 400
call GET /sandboxes/i0000000000000000000x
is 'an unknown id' "$st $(field .code)" '404 404'
call GET '/v2/sandboxes?metadata=a%3Db%252520c'
is 'filter as the SDK encodes it' "$(field length)" 1
call GET '/v2/sandboxes?metadata=a%3Dother'
is 'another value' "$(field length)" 0
call GET '/v2/sandboxes?metadata=a'
is 'a malformed filter' "$st" 400
create '{"templateID":"base","timeout":300,"metadata":{"n":"2"}}'
second=$id
create '{"templateID":"base","timeout":300,"metadata":{"n":"3"}}'
third=$id
call GET '/v2/sandboxes?limit=2'
is 'a page' "$(field '[.[].sandboxID]|join(" ")')" "$third $second"
next=$(tr -d '\r' <"$work/head" | sed -n 's/^X-Next-Token: //p')
has 'total' "$(cat "$work/head")" 'X-Total-Running: 3'
call GET "/v2/sandboxes?limit=2&nextToken=$next"
is 'the next page' "$(field '[.[].sandboxID]|join(" ")')" "$first"
lacks 'is the last' "$(cat "$work/head")" X-Next-Token
call GET "/v2/sandboxes?limit=2&order=asc&nextToken=$next"
is 'a token of another order' "$st" 400
call GET '/v2/sandboxes?order=asc'
is 'ascending' "$(field '.[0].sandboxID')" "$first"
call GET '/v2/sandboxes?limit=0'
is 'limit 0' "$st" 400
call GET '/sandboxes?metadata=n%3D2'
is 'the old list' "$(field '[.[].sandboxID]|join(" ")')" "$second"
call DELETE "/sandboxes/$third"
is 'delete' "$st" 204
call DELETE "/sandboxes/$third"
is 'delete again' "$st $(field .code)" '404 404'
call POST /sandboxes '{"templateID":"base"}'
is 'create of version 1' "$st" 201
is 'is open without secure' "$(field .envdAccessToken)" null
left=$(($(date -d "$(curl -sS --unix-socket "$D/host.sock" \
    "http://localhost/sandboxes/$(field .sandboxID)" | jq -r .endAt)" +%s) - $(date +%s)))
[ "$left" -le 15 ] && ok '15 seconds by default' || bad '15 seconds' "$left"
call DELETE "/sandboxes/$(field .sandboxID)"
for body in '{}' 'nonsense' '{"templateID":"base","timeout":0}' \
    '{"templateID":"base","timeout":999999}' \
    '{"templateID":"base","metadata":{"a":1}}' \
    '{"templateID":"base","envVars":{"A=B":"1"}}' \
    '{"templateID":"base","metadata":{"courier.bind":"[\"/nowhere/at/all\"]"}}' \
    "{\"templateID\":\"base\",\"metadata\":{\"courier.bind\":\"[\\\"$work\\\"]\"}}" \
    '{"templateID":"base","metadata":{"courier.bind":"[\"/\"]"}}' \
    '{"templateID":"base","network":{"allowOut":["exa mple"]}}'; do
    call POST /v2/sandboxes "$body"
    is "refused: $body" "$st $(field .code)" '400 400'
done
call GET '/v2/sandboxes'
is 'nothing was made by those' "$(field length)" 2
call GET /templates
is 'templates' "$(field '.[0].templateID')" base
call POST "/sandboxes/$first/fork" '{}'
is 'no forks' "$st" 501
call GET /snapshots
is 'no snapshots' "$out" '[]'
call PATCH /sandboxes '{}'
is 'a wrong method' "$st" 405

# ---- inside ----

id=$first token=$first_token
is 'user' "$(run 'id -un; id -u; pwd')" $'user\n1000\n/home/user'
is 'environment' "$(run 'echo $X $E2B_SANDBOX $HOME')" '1 2 true /home/user'
has 'read-only' "$(run 'touch /usr/x /etc/x /x 2>&1')" 'Read-only'
is 'home and tmp' "$(run 'touch ~/a /tmp/a /var/tmp/a /dev/shm/a && echo y')" y
has 'tools' "$(run 'git --version; python3 --version')" 'Python 3'
is 'pid 1' "$(run 'ps -o pid= 1 | tr -d " "; kill -9 1 2>/dev/null; sleep .1; ps -o comm= 1')" $'1\ncourier-init'
is 'our files are out of sight' "$(run "ls $D 2>&1 | grep -c 'No such'")" 1
is 'no other sandbox is seen' "$(run 'ps ax -o comm= | grep -c courier-init')" 1
is 'passwd' "$(run 'getent passwd 1000 | cut -d: -f6')" /home/user
if [ "$(id -u)" = 0 ]; then
    is 'root' "$(run -u root 'id -u')" 0
    has 'not the real one' "$(run -u root 'mount -t tmpfs x /tmp 2>&1')" denied
    uid=$(run 'sleep 3.21 & echo $!' >/dev/null; pgrep -f 'sleep 3.21' |
        head -1 | xargs -I{} stat -c %u /proc/{})
    [ "${uid:-0}" -gt 100000 ] && ok 'an id of its own' || bad 'uid' "$uid"
fi
mkdir "$work/repo"
echo hello >"$work/repo/file"
create "{\"templateID\":\"base\",\"metadata\":{\"courier.bind\":\"[\\\"$work/repo\\\"]\"}}"
is 'a bind' "$(run "cat $work/repo/file; touch $work/repo/x 2>/dev/null || echo ro")" $'hello\nro'
call DELETE "/sandboxes/$id"

# ---- time ----

create '{"templateID":"base","timeout":1}'
sleep 1.4
call GET "/sandboxes/$id"
is 'a deadline' "$st" 404
has 'says why' "$out" 'its time was over'
create '{"templateID":"base","timeout":1,"autoPause":true}'
sleep 1.4
call GET "/sandboxes/$id"
is 'a deadline that pauses' "$(field .state)" paused
call DELETE "/sandboxes/$id"
is 'delete of a paused one' "$st" 204
id=$second
call POST "/sandboxes/$id/timeout" '{"timeout":1000}'
is 'timeout' "$st" 204
call GET "/sandboxes/$id"
left=$(($(date -d "$(field .endAt)" +%s) - $(date +%s)))
[ "$left" -ge 995 ] && ok 'longer' || bad 'longer' "$left"
call POST "/sandboxes/$id/refreshes" '{"duration":20}'
is 'refresh' "$st" 204
call GET "/sandboxes/$id"
left=$(($(date -d "$(field .endAt)" +%s) - $(date +%s)))
[ "$left" -ge 995 ] && ok 'refresh never shortens' || bad 'refresh' "$left"
call POST "/sandboxes/$id/connect" '{"timeout":10}'
is 'connect to a running one' "$st" 200
call POST "/sandboxes/$id/timeout" '{"timeout":0}'
sleep .4
call GET "/sandboxes/$id"
is 'timeout 0 ends it' "$st" 404

# ---- pause and resume ----

id=$first token=$first_token
run 'nohup bash -c "while :; do date +%s%N >/tmp/u; mv /tmp/u /tmp/t; sleep .05; done" >/dev/null 2>&1 &' >/dev/null
call POST "/sandboxes/$id/pause" '{}'
is 'pause' "$st" 204
call POST "/sandboxes/$id/pause" '{}'
is 'pause again' "$st $(field .code)" '409 409'
call GET "/sandboxes/$id"
is 'paused' "$(field .state)" paused
call POST "/sandboxes/$id/timeout" '{"timeout":10}'
is 'no timeout for a paused one' "$st" 404
call GET /health '' -H "E2b-Sandbox-Id: $id" -H 'E2b-Sandbox-Port: 49983'
is 'its data plane' "$st $(field .message)" '502 The sandbox was not found'
call GET /v2/sandboxes?state=paused
is 'listed' "$(field '.[0].sandboxID')" "$id"
call GET /sandboxes
is 'not in the old list' "$(field length)" 0
sleep 1
call POST "/sandboxes/$id/connect" '{"timeout":100}'
is 'resume' "$st" 201
is 'the same token' "$(field .envdAccessToken)" "$token"
age=$(run 'sleep .3; echo $(( ($(date +%s%N) - $(cat /tmp/t)) / 1000000 ))')
[ "${age:-9999}" -lt 1000 ] && ok 'its processes go on' || bad 'go on' "$age"
call POST "/sandboxes/$id/resume" '{}'
is 'resume of a running one' "$st" 409
create '{"templateID":"base","autoResume":{"enabled":true}}'
call POST "/sandboxes/$id/pause" '{}'
is 'traffic resumes' "$(run 'echo up')" up
call DELETE "/sandboxes/$id"

# ---- the data plane's door ----

id=$first token=$first_token
to=(-H "E2b-Sandbox-Id: $id" -H 'E2b-Sandbox-Port: 49983')
call GET /health '' "${to[@]}"
is 'health without a token' "$st" 204
call POST /process.Process/List '{}' "${to[@]}"
is 'the rest needs one' "$st $(field .code)" '401 401'
call POST /process.Process/List '{}' "${to[@]}" -H "X-Access-Token: ${token%?}-"
is 'the right one' "$st" 401
call GET /metrics '' "${to[@]}" -H "X-Access-Token: $token"
is 'metrics inside' "$(field .mem_total)" $((1024 << 20))
call POST /init '{}' "${to[@]}" -H "X-Access-Token: $token"
is 'reserved calls' "$st" 404
call GET /health '' -H "E2b-Sandbox-Id: $id"
is 'half of the headers' "$st $out" '400 missing header'
call GET /health '' -H "Host: 49983-$id.e2b.local"
is 'by host name' "$st" 204
call GET /health '' -H "Host: 49983-izzzzzzzzzzzzzzzzzzzz.e2b.local"
is 'an unknown host name' "$st" 502
call GET / '' -H "Host: 8123-$id.e2b.local"
is 'a closed port' "$st $(field .message)" \
    '502 The sandbox is running but port is not open'
run 'mkdir -p www; echo hi >www/f; cd www; nohup python3 -m http.server 8123 --bind 127.0.0.1 >/dev/null 2>&1 & sleep 1' >/dev/null
call GET /f '' -H "Host: 8123-$id.e2b.local"
is 'a port of the sandbox' "$st $out" '200 hi'
call GET /f '' -H "E2b-Sandbox-Id: $id" -H 'E2b-Sandbox-Port: 8123'
is 'by headers' "$st $out" '200 hi'
create '{"templateID":"base","network":{"allowPublicTraffic":false}}'
traffic=$(field .trafficAccessToken)
call GET / '' -H "Host: 8123-$id.e2b.local"
is 'a private one' "$st" 403
call GET / '' -H "Host: 8123-$id.e2b.local" -H "e2b-traffic-access-token: $traffic"
is 'with its token' "$st" 502
call DELETE "/sandboxes/$id"

# ---- limits ----

create '{"templateID":"base","metadata":{"courier.memory":"128"}}'
run 'python3 -c "
b = []
while True: b.append(bytearray(1 << 22))"' >/dev/null 2>&1
is "more memory than allowed ($memory)" "$(run 'echo alive')" alive
sleep .1
call GET "/sandboxes/$id/logs"
has 'is in the log' "$out" 'out of memory'
is 'a line is JSON' "$(field '.logs[-1].line | fromjson | .level')" error
call GET "/v2/sandboxes/$id/logs?direction=forward"
is 'the new log' "$(field '.logs[-1].level')" error
run 'for i in $(seq 3000); do sleep 20.75 & done; wait' >/dev/null 2>&1 &
sleep 3
[ "$(pgrep -fc 'sleep 20.75')" -le 2100 ] && ok 'processes are limited' || bad 'processes'
call DELETE "/sandboxes/$id"
is 'it can be killed then' "$st" 204
wait $! 2>/dev/null
gone 'sleep 20.75' && ok 'nothing stays' || bad 'nothing stays'
call GET "/sandboxes/$first/metrics"
has 'metrics' "$out" '"memUsed"'

# ---- the network ----

dev() { run 'tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d " " | sort | xargs'; }
create '{"templateID":"base","allow_internet_access":false}'
is 'off' "$(dev)" lo
call DELETE "/sandboxes/$id"
create '{"templateID":"base","metadata":{"courier.network":"host"}}'
is 'host' "$(run 'cat /proc/net/dev | wc -l')" "$(wc -l </proc/net/dev)"
call DELETE "/sandboxes/$id"
create '{"templateID":"base"}'
if [ "$network" = slirp4netns ]; then
    is 'on' "$(dev)" 'lo tap0'
    is 'the host is out of reach' "$(run "timeout 3 bash -c ': </dev/tcp/10.0.2.2/${url##*:}' 2>/dev/null || echo no")" no
    has 'link-local too' "$(run 'timeout 3 bash -c ": </dev/tcp/169.254.169.254/80" 2>&1')" 'No route'
    call PUT "/sandboxes/$id/network" '{"allow_internet_access":false}'
    is 'off later' "$st" 204
    has 'nothing is reachable' "$(run 'timeout 3 bash -c ": </dev/tcp/1.1.1.1/80" 2>&1')" 'unreach\|No route'
    call PUT "/sandboxes/$id/network" '{"allowOut":["192.0.2.1"],"denyOut":["0.0.0.0/0"]}'
    is 'one address' "$st" 204
    lacks 'is reachable' "$(run 'timeout .3 bash -c ": </dev/tcp/192.0.2.1/80" 2>&1')" 'unreach\|No route'
    has 'and no other' "$(run 'timeout 3 bash -c ": </dev/tcp/192.0.2.2/80" 2>&1')" 'unreach\|No route'
    call DELETE "/sandboxes/$id"
    create '{"templateID":"base","metadata":{"courier.allow":"*.example.org,10.9.9.0/24"}}'
    is 'hosts by name' "$st" 201
    has 'other names do not exist' "$(run 'getent hosts forbidden.example.com || echo none')" none
else
    is 'none here' "$(dev)" lo
    call POST /v2/sandboxes '{"templateID":"base","metadata":{"courier.allow":"example.org"}}'
    is 'then no host can be allowed' "$st" 400
fi
call DELETE "/sandboxes/$id"

# ---- the ends ----

id=$first token=$first_token
run 'setsid sleep 987.1 >/dev/null 2>&1 & setsid sleep 987.1 >/dev/null 2>&1 &' >/dev/null
call DELETE "/sandboxes/$id"
gone 'sleep 987.1' && ok 'kill takes all processes' || bad 'processes stay'
is 'and the files' "$(ls "$D/boxes" | wc -l)" 0
call GET /health '' "${to[@]}"
is 'its data plane is gone' "$st $(field .code)" '502 502'
create '{"templateID":"base"}'
run 'setsid sleep 987.2 >/dev/null 2>&1 &' >/dev/null
other=$id
create '{"templateID":"base"}'
run 'setsid sleep 987.2 >/dev/null 2>&1 &' >/dev/null
call POST "/sandboxes/$id/pause" '{}'
children=$(pgrep -P "$pid" | xargs)
kill -9 "$pid"
gone 'sleep 987.2' && ok 'kill -9 of the host takes all' || bad 'kill -9'
gone "$D/boxes" && ok 'bwrap too' || bad 'bwrap stays'
for child in $children; do
    for _ in $(seq 40); do
        grep -q '^State:.[^ZX]' "/proc/$child/status" 2>/dev/null || break
        sleep .05
    done
    if grep -q '^State:.[^ZX]' "/proc/$child/status" 2>/dev/null; then
        bad 'stays' "$(cat "/proc/$child/comm")"
    else
        ok 'and its child'
    fi
done
"$bin" --data "$D" --idle 1 >/dev/null
is 'starts again' $? 0
is 'with the same key' "$(jq -r .key "$D/host.json")" "$key"
is 'what was left is gone' "$(ls "$D/boxes" | wc -l)" 0
is 'control groups too' \
    "$(find /sys/fs/cgroup -maxdepth 5 \( -name "*-$id" -o -name "*-$other" \) 2>/dev/null | wc -l)" 0
pid=$(jq -r .pid "$D/host.json")
for _ in $(seq 60); do [ -d "/proc/$pid" ] || break; sleep .1; done
[ -d "/proc/$pid" ] && bad 'idle' || ok 'an idle host ends'
is 'and takes its files' "$(ls "$D" | grep -c 'host.json\|host.sock')" 0
"$bin" --data "$D" --idle 60 >/dev/null
pid=$(jq -r .pid "$D/host.json")
create '{"templateID":"base"}'
run 'setsid sleep 987.3 >/dev/null 2>&1 &' >/dev/null
kill "$pid"
for _ in $(seq 60); do [ -d "/proc/$pid" ] || break; sleep .05; done
[ -d "/proc/$pid" ] && bad 'SIGTERM' || ok 'SIGTERM ends it'
gone 'sleep 987.3' && ok 'and all in it' || bad 'processes stay'
is 'and the files of all' "$(ls "$D/boxes" | wc -l)" 0

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
