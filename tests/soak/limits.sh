#!/bin/bash
# A sandbox that takes all it can get: processes, memory, CPU, disk. The host
# and the others go on, and what happened has a reason in words.
# shellcheck disable=SC2016
. "$(dirname "$0")/../lib.sh"
H=$D/host
start --backend local
mk calm memory=256
limits=$(val "$M/status" limits)
for what in memory cpu pids freeze network; do
    like "status tells the limit: $what" "$limits" "$what: [a-zA-Z]"
done
# has KIND: a cgroup holds it
has() { grep -q "$1: cgroup" <<<"$limits"; }

st() { cat "$S/$1/status"; }
others() { # WHAT: the host and another sandbox answer as ever
    local a=${EPOCHREALTIME/./}
    is "$1: another sandbox works" "$(ask calm 'echo fine')" completed
    a=$(((${EPOCHREALTIME/./} - a) / 1000))
    if [ "$a" -lt 15000 ]; then ok; else bad "$1: it took $a ms"; fi
    is "$1: a daemon that answers" "$(val "$M/status" backend | cut -c1-5)" local
    is "$1: the host forks" "$(sh -c 'echo forked')" forked
}
# its own VM's processes on the host
procs() {
    local id p
    id=$(jq -r .provider_id "$S/$1/info.json")
    for p in /proc/[0-9]*; do
        grep -qs "boxes/$id" "$p/mountinfo" && echo "${p#/proc/}"
    done
}

# ---- a fork bomb ----

mk bomb memory=256 cpu=1
is 'a fork bomb' "$(wr "$S/bomb/message" 'b() { sleep 30 & b 2>/dev/null & b 2>/dev/null & }
echo armed; b 2>/dev/null; sleep 60; echo after')" OK
soon 20 grep -q armed "$S/bomb/log"
sleep 2
n=$(procs bomb | wc -l)
if [ "$n" -le 260 ]; then ok; else bad "$n processes"; fi
others 'fork bomb'
echo 'kill now' >"$S/bomb/ctl"
is 'it is ended' "$(wait_for bomb ended 20)" killed
is 'with a reason' "$(cat "$S/bomb/reason")" 'killed by user'
like 'its turn ends in words' "$(cat "$S/bomb/messages")" '#[0-9]+ error  .+'
left() { [ -n "$(procs bomb)" ]; }
no 'no process is left on the host' left

# ---- memory ----

mk hog memory=256
if has memory || grep -q 'memory: watchdog' <<<"$limits"; then
    r=$(ask hog 'python3 -c "
import time
x = []
for i in range(40):
    x.append(bytearray(b\"x\") * (32 << 20))
time.sleep(8) # where a watchdog looks, it takes its time
print(\"got\", \"it all\")
" || { echo "python ended: $?"; exit 9; }')
    is 'a memory hog' "$r" failed
    unlike 'it does not get 1.2 GB' "$(cat "$S/hog/log")" 'got it all'
    others 'memory hog'
    if [ "$(st hog)" = running ]; then
        like 'its process was killed' "$(cat "$S/hog/log")" \
            'python ended: (137|1|143)'
        is 'the sandbox goes on' "$(ask hog 'echo on')" completed
        api=$(curl -s --unix-socket "$H/host.sock" \
            "http://x/sandboxes/$(jq -r .provider_id "$S/hog/info.json")/logs")
        like 'the host logs it' "$api" 'out of memory'
    else
        like 'a reason' "$(cat "$S/hog/reason")" memory
    fi
    # what is in a tmpfs counts, too
    r=$(ask hog 'head -c 600M /dev/zero >/tmp/big; echo "rc $?"; exit 0')
    like 'a full /tmp ends somehow' "$r" 'completed|failed'
    unlike 'but not with 600 MB' "$(tail -n 1 "$S/hog/log")" '^rc 0$'
    others 'full /tmp'
fi

# ---- CPU ----

if has cpu; then
    mk burn cpu=1
    is 'four loops' "$(wr "$S/burn/message" 'for i in 1 2 3 4; do
(while :; do :; done) & done; sleep 1; a=$(awk "{ print \$14+\$15 }" /proc/[0-9]*/stat | paste -sd+ | bc 2>/dev/null)
echo begun; sleep 4; kill $(jobs -p); times')" OK
    soon 20 grep -q begun "$S/burn/log"
    used() {
        local p n=0 a b
        for p in $(procs burn); do
            read -r a b < <(sed 's/.*) //' "/proc/$p/stat" 2>/dev/null |
                awk '{ print $12, $13 }')
            n=$((n + ${a:-0} + ${b:-0}))
        done
        echo $n
    }
    a=$(used) ta=${EPOCHREALTIME/./}
    sleep 2
    b=$(used) tb=${EPOCHREALTIME/./}
    share=$(((b - a) * 10000 * 100 / (tb - ta)))
    if [ $share -le 125 ]; then ok; else bad "$share % of a CPU, not 100"; fi
    others 'busy loops'
    wait_for burn done >/dev/null
    echo 'kill now' >"$S/burn/ctl"
else
    echo 'skipped: no limit of the CPU here'
fi

# ---- disk ----

free=$(df --output=avail -m "$D" | tail -n 1)
if [ "$free" -gt 30000 ]; then
    mk filler
    is 'a disk filler' "$(wr "$S/filler/message" 'for i in 1 2 3 4; do
fallocate -l 3500M f$i || exit 3; echo "file $i"; sleep 1; done; sleep 60')" OK
    is 'ends' "$(wait_for filler ended 60)" error
    like 'with a reason' "$(cat "$S/filler/reason")" disk
    others 'disk filler'
    back() { [ "$(df --output=avail -m "$D" | tail -n 1)" -gt $((free - 3000)) ]; }
    yes 'the disk is free again' soon 30 back
else
    echo 'skipped: too little disk here'
fi
# one file has a limit as well
r=$(ask calm 'truncate -s 11G big; echo "rc $?"; rm -f big')
unlike 'no file above 10 GiB' "$(tail -n 1 "$S/calm/log")" '^rc 0$'

is 'calm never noticed' "$(st calm)" running
like 'a pause with many processes' "$(ask calm 'for i in $(seq 200); do sleep 300 & done; echo started')" completed
is 'pause' "$(wr "$S/calm/ctl" 'pause
')" OK
is 'paused' "$(wait_for calm paused 20)" paused
still() { local p; for p in $(procs calm); do
    grep -qsE '^State:\s+R' "/proc/$p/status" && return 1; done; return 0; }
yes 'nothing runs then' soon 5 still
echo killall >"$M/ctl"
is 'all end' "$(wait_for calm ended)" killed
