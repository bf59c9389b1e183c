#!/bin/bash
# The network of local sandboxes: each has its own, the host's loopback is
# closed but to network=host, and user ports are dialled inside theirs.
# shellcheck disable=SC2016
. "$(dirname "$0")/../lib.sh"
H=$D/host
start --backend local
cat >"$T/server.py" <<'END'
import http.server, os, sys
class Q(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"secret of the host\n")
    def log_message(self, *a):
        pass
s = http.server.HTTPServer((sys.argv[2], 0), Q)
open(sys.argv[1] + ".new", "w").write(str(s.server_port))
os.rename(sys.argv[1] + ".new", sys.argv[1])
s.serve_forever()
END
python3 "$T/server.py" "$T/hostport" 127.0.0.1 &
server=$!
soon 10 test -s "$T/hostport"
hp=$(cat "$T/hostport")
# an address of this machine that others could reach, too
ip=$(hostname -I 2>/dev/null | tr ' ' '\n' | grep -m 1 '^[0-9.]*$')
if [ -n "$ip" ]; then
    python3 "$T/server.py" "$T/ipport" "$ip" &
    server="$server $!"
    soon 10 test -s "$T/ipport"
    ipp=$(cat "$T/ipport")
fi
last() { tail -n "${2:-1}" "$S/$1/log"; }
st() { cat "$S/$1/status"; }

# try ADDRESS PORT [SECONDS]: what a sandbox gets from there
try='try() { python3 - "$1" "$2" "${3:-3}" <<END
import sys, urllib.request
try:
    o = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    print("got", o.open("http://%s:%s/" % tuple(sys.argv[1:3]), timeout=int(sys.argv[3])).read().decode().strip())
except Exception as e:
    print("closed")
END
}
'
mk off network=off
mk a
mk b
limits=$(val "$M/status" limits)
for n in off a; do
    is "$n: turn" "$(ask $n "$try for x in 127.0.0.1 10.0.2.2 169.254.169.254; do try \$x $hp; done")" completed
    is "$n: neither the host's loopback nor link-local" \
        "$(last $n 3 | tr '\n' ' ')" 'closed closed closed '
done
ask off 'awk "NR > 2 && \$1 != \"lo:\"" /proc/net/dev | wc -l' >/dev/null
is 'off: no interface but lo' "$(last off)" 0
ask off 'getent hosts example.com || echo none' >/dev/null
is 'off: no names' "$(last off)" none
if grep -q 'network: slirp4netns' <<<"$limits"; then
    ask a 'awk "NR > 2 && \$1 != \"lo:\"" /proc/net/dev | wc -l; cat /etc/resolv.conf' >/dev/null
    like 'on: an interface' "$(cat "$S/a/log")" '^[1-9]'
    like 'on: a resolver' "$(cat "$S/a/log")" '^nameserver'
    if [ -n "$ip" ]; then
        ask a "$try try $ip $ipp 20" >/dev/null
        is 'on: a way out' "$(last a)" 'got secret of the host'
        ask off "$try try $ip $ipp" >/dev/null
        is 'off: none' "$(last off)" closed
    fi
fi

# ---- the same port in two of them ----

serve='nohup python3 -c "
import http.server
class Q(http.server.BaseHTTPRequestHandler):
    def answer(self):
        n = int(self.headers.get(\"Content-Length\") or 0)
        body = self.rfile.read(n)
        self.send_response(200)
        self.send_header(\"X-Path\", self.path)
        self.end_headers()
        self.wfile.write(b\"i am NAME \" + self.path.encode() + b\" \" + body)
    do_GET = do_POST = answer
    def log_message(self, *a): pass
http.server.ThreadingHTTPServer((\"127.0.0.1\", 8123), Q).serve_forever()
" >/tmp/serve.log 2>&1 &
for i in $(seq 100); do (exec 3<>/dev/tcp/127.0.0.1/8123) 2>/dev/null && break; sleep .05; done
echo serves'
for n in a b off; do
    is "$n serves on 8123" "$(ask $n "${serve//NAME/$n}")" completed
    is "$n said so" "$(last $n)" serves
done
no 'nothing of it on the host' curl -s -m 3 http://127.0.0.1:8123/
ask a "$try try 127.0.0.1 8123" >/dev/null
is 'inside it answers' "$(last a)" 'got i am a /'

# ---- user ports through the host ----

url=$(jq -r .url "$H/host.json") key=$(jq -r .key "$H/host.json")
id() { jq -r .provider_id "$S/$1/info.json"; }
port() { # NAME PORT PATH [curl's options]
    local n=$1 p=$2 path=$3
    shift 3
    curl -s -m 10 "$@" -H "Host: $p-$(id "$n").${url#http://}" "$url$path"
}
for n in a b off; do
    is "$n: its port by name" "$(port $n 8123 '/x?y=1')" "i am $n /x?y=1 "
done
is 'a body' "$(port a 8123 /p -d hello)" 'i am a /p hello'
is 'the answer of one that listens not' \
    "$(port a 8124 / -o /dev/null -w '%{http_code}')" 502
like 'an unknown sandbox' "$(curl -s -m 10 -o /dev/null -w '%{http_code}' \
    -H "Host: 8123-i0000000000000000000x.localhost" "$url/")" '404|502'
is 'by the headers of the SDK' "$(curl -s -m 10 -H "E2b-Sandbox-Id: $(id b)" \
    -H 'E2b-Sandbox-Port: 8123' "$url/h")" 'i am b /h '
is 'the key is not handed in' "$(port a 8123 /k -H "X-API-KEY: $key")" 'i am a /k '

# ---- allow=, host ----

w=$(wr "$S/ctl" 'create name=some tool=shell network=allow=example.com
')
if [ "$w" = OK ]; then
    like 'allow= works, or says why not' "$(timeout 60 cat "$S/some/wait/running" 2>/dev/null || cat "$S/some/reason")" '^running$|network|allow'
    if [ "$(st some)" = running ]; then
        ask some "$try try 127.0.0.1 $hp; try 10.0.2.2 $hp; try 1.1.1.1 80
getent hosts not-allowed.example.org >/dev/null && echo named || echo unnamed" >/dev/null
        is 'allow=: others are closed' "$(last some 4 | tr '\n' ' ')" \
            'closed closed closed unnamed '
    fi
else
    like 'allow= is refused in words' "$(cat "$S/ctl")" 'network|allow'
fi
is 'network=host' "$(wr "$S/ctl" 'create name=h tool=shell network=host
')" OK
is 'runs' "$(wait_for h running)" running
is 'it asks' "$(ask h "$try try 127.0.0.1 $hp 20")" completed
is "network=host: the host's loopback" "$(last h)" 'got secret of the host'
is 'another word is refused' "$(wr "$S/ctl" 'create name=z tool=shell network=some
')" EINVAL

# ---- a pause keeps the server ----

echo pause >"$S/a/ctl"
is 'paused' "$(wait_for a paused)" paused
unlike 'a paused one does not answer' "$(port a 8123 /z)" 'i am a'
echo resume >"$S/a/ctl"
is 'resumed' "$(wait_for a running)" running
is 'its server is there' "$(port a 8123 /z)" 'i am a /z '

echo killall >"$M/ctl"
for n in a b off h; do is "$n ends" "$(wait_for $n ended)" killed; done
# shellcheck disable=SC2086
kill $server
quiet() { ! pgrep -f "slirp4netns.*$T/" && ! pgrep -P "$(jq -r .pid "$H/host.json")"; }
yes 'no helper of the network is left' soon 10 quiet
