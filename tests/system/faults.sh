#!/bin/bash
# courierfs on a provider that breaks: between it and a host stands a proxy
# that cuts, delays, refuses and loses answers, by a seeded schedule. Every
# byte of every turn arrives once, every VM is accounted for, no message is
# sent twice, and every status ends right.
#   tests/system/faults.sh [SEEDS...]     (default: 1)
. "$(dirname "$0")/../lib.sh"
[ $# -gt 0 ] || set -- 1
N=4

"$BIN/courier-sandboxd" --data "$T/host" --idle 600 || exit 1
url() { jq -r .url "$T/host/host.json"; }
key() { jq -r .key "$T/host/host.json"; }
port=$(url)
python3 "$HERE/e2b/proxy.py" --to "127.0.0.1:${port##*:}" --rate 0 >"$T/port" &
yes "the proxy serves" soon 10 test -s "$T/port"
read -r _ pport <"$T/port"
proxy="http://127.0.0.1:$pport"
set_rate() { curl -sf "$proxy/__proxy/set?rate=$1&seed=$2" >/dev/null; }
vms() { curl -sf -H "X-API-KEY: $(key)" "$(url)/v2/sandboxes?state=running,paused" | jq length; }

export E2B_API_KEY=$(key) E2B_API_URL=$proxy E2B_SANDBOX_URL=$proxy
start --backend e2b
like "it says which backend" "$(cat "$T/start")" "backend e2b"

want() { for i in $(seq 400); do echo "$1 line $i"; done; echo "$1 end"; }
for seed in "$@"; do
    set_rate 0.2 "$seed"
    for k in $(seq $N); do
        n=s$seed-$k
        is "create $n" "$(wr "$S/ctl" "create name=$n tool=shell timeout=30m prompt='for i in \$(seq 400); do echo $n line \$i; [ \$((i % 100)) = 0 ] && sleep 0.2; done; echo $n end'
")" OK
    done
    for k in $(seq $N); do
        n=s$seed-$k
        is "seed $seed: $n first turn" "$(wait_for "$n" done 240)" completed
        is "message to $n" "$(wr "$S/$n/ctl" "message for i in \$(seq 400); do echo $n again \$i; done
")" OK
    done
    for k in $(seq $N); do
        n=s$seed-$k
        is "seed $seed: $n second turn" "$(wait_for "$n" done 240)" completed
        is "seed $seed: $n, every byte once and in order" \
            "$(cmp "$S/$n/log" <(want "$n"; for i in $(seq 400); do echo "$n again $i"; done) 2>&1)" ""
        is "$n was asked twice, no more" "$(grep -c '  user  #' "$S/$n/messages")" 2
    done
    is "seed $seed: a VM for each" "$(vms)" "$N"
    for k in $(seq $N); do echo kill >"$S/s$seed-$k/ctl"; done
    for k in $(seq $N); do
        is "seed $seed: s$seed-$k ends" "$(wait_for "s$seed-$k" ended 240)" killed
    done
    set_rate 0 "$seed"
    none() { [ "$(vms)" = 0 ]; }; yes "seed $seed: no VM is left" soon 90 none
done
is "no error was made of it" "$(cat "$S"/*/status | sort | uniq -c | awk '{print $2}')" killed
