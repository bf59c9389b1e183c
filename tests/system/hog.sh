#!/bin/bash
# A sandbox that takes memory as fast as it can, all processors and all the
# processes it may have: it is held to its limits by what `status` names, and
# who is beside it doesn't notice.
# shellcheck disable=SC2016
. "$(dirname "$0")/../lib.sh"
start --backend local
mk calm memory=256
limits=$(val "$M/status" limits)
like 'memory is limited, and by what' "$limits" 'memory: (cgroup v[12]|watchdog)'
like 'the processor, too' "$limits" 'cpu: (cgroup v[12]|affinity)'
like 'processes, too' "$limits" 'pids: (cgroup v[12]|rlimit)'
ms() { echo $((${EPOCHREALTIME/./} / 1000)); }
# what of a sandbox runs on the host, by its directory in the mount table
procs() {
    local id p
    id=$(jq -r .provider_id "$S/$1/info.json")
    for p in /proc/[0-9]*; do
        grep -qs "boxes/$id" "$p/mountinfo" && echo "${p#/proc/}"
    done
}
metric() { # NAME KEY: of the last of its metrics
    curl -s --unix-socket "$D/host/host.sock" \
        "http://x/sandboxes/$(jq -r .provider_id "$S/$1/info.json")/metrics?start=0" |
        jq ".[-1].$2"
}
hostlog() {
    curl -s --unix-socket "$D/host/host.sock" \
        "http://x/sandboxes/$(jq -r .provider_id "$S/$1/info.json")/logs"
}

# ---- memory ----

mk hog memory=256
# how far a process gets that takes memory one way or another: it says so
# after each MiB, and waits at the end, where a slow watchdog would find it
take='cat >take.py <<"END"
import mmap, os, sys, time
way, n = sys.argv[1], int(sys.argv[2])
kept = []
for i in range(n):
    if way == "shared":
        m = mmap.mmap(-1, 1 << 20); m.write(b"x" * (1 << 20)); kept.append(m)
    elif way == "memfd":
        f = os.memfd_create("x"); os.ftruncate(f, 1 << 20)
        m = mmap.mmap(f, 1 << 20); m.write(b"x" * (1 << 20)); os.close(f)
        kept.append(m)
    else:
        kept.append(bytearray(b"x") * (1 << 20))
    os.pwrite(1, b"%d\n" % i, 0)
time.sleep(5)
os.pwrite(1, b"all\n", 0)
END
'
for way in private shared memfd; do
    is "$way: fast" "$(ask hog "$take python3 take.py $way 3000 >got
echo \"rc \$?\"")" completed
    is "$way: it is killed" "$(tail -n 1 "$S/hog/log")" 'rc 137'
    ask hog 'head -n 1 got' >/dev/null
    got=$(tail -n 1 "$S/hog/log")
    echo "# $way: $got MiB of 256"
    if [ "$got" -le 600 ]; then ok; else bad "$way: it got $got MiB"; fi
done
like 'the log of the host has it' "$(hostlog hog)" 'out of memory'
is 'the sandbox goes on' "$(ask hog 'echo on')" completed

# by many processes, none of which is big
is 'by many' "$(ask hog "$take
for i in 1 2 3 4 5 6 7 8; do python3 take.py private 80 >got\$i 2>&1 & done; wait
cat got* | grep -c all; echo")" completed
all=$(grep -E '^[0-9]+$' "$S/hog/log" | tail -n 1)
if [ "$all" -lt 4 ]; then ok; else bad "$all of 8 got their 80 MiB"; fi
# what is shared counts once
is 'pages that many share' "$(ask hog 'python3 -c "
import os, time
x = bytearray(b\"x\") * (120 << 20)
kids = []
for i in range(8):
    k = os.fork()
    if not k: time.sleep(3); os._exit(0)
    kids.append(k)
print(\"ended\", sum(os.waitpid(k, 0)[1] for k in kids))"')" completed
is 'nobody is killed for them' "$(tail -n 1 "$S/hog/log")" 'ended 0'
# files in memory count, each with a limit of its own, and all leave some room
is 'files in memory' "$(ask hog 'for d in /tmp /var/tmp /dev/shm; do
head -c 256M /dev/zero >$d/big 2>/dev/null; done; echo filled')" completed
is 'are kept small' "$(tail -n 1 "$S/hog/log")" filled
is 'and turns go on' "$(ask hog 'echo on')" completed
mem=$(metric hog memUsed)
echo "# files in memory: $((mem >> 20)) MiB"
if [ "$mem" -ge $((180 << 20)) ]; then ok; else bad "metrics say $mem"; fi
ask hog 'rm /tmp/big /var/tmp/big /dev/shm/big' >/dev/null
is 'the one beside' "$(ask calm 'echo fine')" completed

# ---- the processor ----

mk burn cpu=1 memory=256
is 'as many loops as can be' "$(wr "$S/burn/message" 'for i in 1 2 3 4; do
(while :; do :; done) & done; echo begun; sleep 60')" OK
soon 20 grep -q begun "$S/burn/log"
used() { # ticks of all its processes
    local p n=0 a b
    for p in $(procs burn); do
        read -r a b < <(sed 's/.*) //' "/proc/$p/stat" 2>/dev/null |
            awk '{ print $12, $13 }')
        n=$((n + ${a:-0} + ${b:-0}))
    done
    echo $n
}
a=$(used) t=$(ms)
is 'the one beside, meanwhile' "$(ask calm 'echo fine')" completed
sleep 2
share=$((($(used) - a) * 1000 / ($(ms) - t)))
echo "# $share % of a processor"
if [ $share -le 125 ]; then ok; else bad "$share % of a processor, not 100"; fi
echo interrupt >"$S/burn/ctl"
is 'ended' "$(wait_for burn "done")" failed

# ---- processes ----

mk many memory=256
is 'processes' "$(ask many 'python3 -c "
import os, time
n = 0
try:
    for i in range(1000):
        if os.fork() == 0: time.sleep(4242); os._exit(0)
        n += 1
except OSError as e: pass
print(n)"')" completed
n=$(tail -n 1 "$S/many/log")
echo "# $n processes of 256"
if [ "$n" -ge 150 ] && [ "$n" -le 256 ]; then ok; else bad "$n processes"; fi
is 'the next turn' "$(ask many 'echo on')" completed
is 'the one beside it' "$(ask calm 'echo fine')" completed
echo 'kill now' >"$S/many/ctl"
is 'all end' "$(wait_for many ended 20)" killed
no 'nothing is left' test -n "$(procs many)"
