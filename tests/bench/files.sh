#!/bin/bash
# What files/ costs: against sshfs to the same machine and E2B's SDK on the
# same local host, with the same contents, in turns. All that is copied is
# compared, and a difference ends the run.
#
#   BIN=build tests/bench/files.sh          some minutes
#   BENCH_FULL=1 ...                        with 2 GiB and 50 sandboxes beside
#   BENCH_BOXES=50 ...                      with that many beside
#
# sshfs and sshd are asked for by `scripts/setup bench`; without them, or
# without the SDK (tests/peers installs it), their columns are empty.
set -u
cd "$(dirname "$0")/../.." || exit 2
PATH=/usr/bin:/bin:$PATH:/usr/sbin
BIN=$(cd "${BIN:-build}" && pwd) || exit 2
full=${BENCH_FULL:-}
boxes=${full:+50} boxes=${BENCH_BOXES:-${boxes:-10}}
rounds=${full:+3} rounds=${BENCH_ROUNDS:-${rounds:-2}}
peers=${COURIER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/courier-tests}/peers
export LC_ALL=C.UTF-8 GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory \
    GIT_CONFIG_VALUE_0='*'
unset E2B_API_KEY E2B_DOMAIN E2B_API_URL E2B_SANDBOX_URL ANTHROPIC_API_KEY \
    ANTHROPIC_AUTH_TOKEN OPENAI_API_KEY OPENROUTER_API_KEY GITHUB_TOKEN
T=$(mktemp -d "${TMPDIR:-/var/tmp}/courier-bench.XXXXXX") || exit 2
M=$T/mnt D=$T/data P=$T/mnt/projects/web
S=$P/sandboxes X=$T/ssh
mkdir "$M" "$D" "$X" "$T/home" "$T/out"

# shellcheck disable=SC2329
finish() {
    trap - EXIT
    fusermount3 -uzq "$X"
    [ -s "$T/sshd.pid" ] && kill "$(cat "$T/sshd.pid")"
    mountpoint -q "$M" && echo 'shutdown all' >"$M/ctl"
    for _ in $(seq 300); do mountpoint -q "$M" || break; sleep 0.1; done
    pkill -TERM -f "courier-sandboxd .*$T/" && sleep 1
    fusermount3 -uzq "$M"
    pkill -f "$T/"
    rm -rf "$T"
}
trap finish EXIT
trap 'exit 130' INT TERM
fail() { echo "bench: $*" >&2; exit 1; }

us() { # COMMAND...: how long it takes, in ms with one decimal
    local t=${EPOCHREALTIME/./}
    timeout 300 "$@" >"$T/said" 2>&1 || fail "$* ($(head -c 200 "$T/said"))"
    awk -v t=$((${EPOCHREALTIME/./} - t)) 'BEGIN { printf "%.1f", t / 1000 }'
}
best() {
    local had=${!1:-}
    if [ -z "$had" ] || awk -v a="$2" -v b="$had" 'BEGIN { exit !(a < b) }'; then
        printf -v "$1" %s "$2"
    fi
}
over() {
    awk -v a="$1" -v b="$2" 'BEGIN { if (b + 0 > 0) printf "%.2f", a / b; else print "-" }'
}
row() { printf '%-40s %10s %10s %7s %10s\n' "$@"; }
pid() { awk '$1 == "pid" { print $2 }' "$M/status"; }
rss() { awk '/^VmRSS/ { printf "%.0f", $2 / 1024 }' "/proc/$(pid)/status"; }
hwm() { awk '/^VmHWM/ { printf "%.0f", $2 / 1024 }' "/proc/$(pid)/status"; }

# ---- the same on both sides ----

cat >"$T/make" <<'END'
mkdir repo && cd repo && git init -q .
for i in $(seq 100); do
    mkdir -p "d$i/s"
    for j in $(seq 25); do
        echo "$i.$j a line that is looked for" >"d$i/s/f$j"
        echo "$i.$j another" >"d$i/g$j"
    done
done
git add -A
git -c user.name=a -c user.email=a@b commit -qm all
git gc -q
mkdir ../many && cd ../many
for i in $(seq 2000); do echo "$i some content of a small file" >"f$i"; done
END
(cd "$T/home" && bash ../make) || fail "no contents"
head -c 100000000 /dev/urandom >"$T/big"

"$BIN/courierfs" --data "$D" --backend local "$M" >/dev/null || exit 1
mkdir "$P"
echo 'create one tool=shell network=off' >"$S/ctl"
timeout 60 cat "$S/one/wait/running" >/dev/null || fail "no sandbox"
F=$S/one/files
cat "$T/make" >"$S/one/message"
timeout 120 cat "$S/one/wait/done" >/dev/null

ssh=
if command -v sshfs >/dev/null && command -v sshd >/dev/null; then
    [ "$(id -u)" = 0 ] && mkdir -p /run/sshd
    ssh-keygen -q -t ed25519 -N '' -f "$T/hostkey"
    ssh-keygen -q -t ed25519 -N '' -f "$T/key"
    port=$((20000 + $$ % 20000))
    cat >"$T/sshd_config" <<END
ListenAddress 127.0.0.1:$port
HostKey $T/hostkey
AuthorizedKeysFile $T/key.pub
PidFile $T/sshd.pid
StrictModes no
UsePAM no
PermitRootLogin yes
Subsystem sftp internal-sftp
END
    "$(command -v sshd)" -f "$T/sshd_config" -E "$T/sshd.log"
    sshfs_() {
        sshfs -p "$port" -o IdentityFile="$T/key" -o UserKnownHostsFile=/dev/null \
            -o StrictHostKeyChecking=no "$(id -un)@127.0.0.1:$T/home" "$X" 2>"$T/sshfs.log"
    }
    sshfs_ && ssh=1 || echo "no sshfs: $(tail -n 1 "$T/sshfs.log")"
fi
# what it has cached is gone
cold() {
    sleep 2
    [ -z "$ssh" ] || { fusermount3 -u "$X"; sshfs_; }
}

echo "$(nproc) CPUs, $(uname -sm), load $(cut -d' ' -f1 /proc/loadavg) at the start"
echo
row 'files of a sandbox (ms)' files/ sshfs ratio SDK

# both NAME COMMAND...: with DIR for the directory, into c_NAME and s_NAME
both() {
    local name=$1
    shift
    best "c_$name" "$(us "${@//DIR/$F}")"
    [ -z "$ssh" ] || best "s_$name" "$(us "${@//DIR/$X}")"
}
tell() { # NAME WORDS [SDK]
    local c=c_$1 s=s_$1
    row "$2" "${!c}" "${!s:--}" "$(over "${!c}" "${!s:-0}")" "${3:--}"
}
for r in $(seq "$rounds"); do
    both in_big cp "$T/big" DIR/big
    cold
    both cat_big cat DIR/big
    both cmp_big cmp "$T/big" DIR/big
    cold
    both status_cold git -C DIR/repo status --short
    both status git -C DIR/repo status --short
    cold
    both grep grep -rc --exclude-dir=.git 'looked for' DIR/repo
    cold
    both ls ls -lR DIR/repo
    cold
    rm -rf "$T/out/c" "$T/out/s"
    best c_out "$(us cp -r "$F/many" "$T/out/c")"
    [ -z "$ssh" ] || best s_out "$(us cp -r "$X/many" "$T/out/s")"
    diff -r "$T/out/c" "$T/home/many" >/dev/null || fail "other bytes by cp -r"
    both in cp -r "$T/home/many" "DIR/in$r"
    both rsync rsync -a "$T/home/many/" "DIR/sync$r"
    both rsync_again rsync -a "$T/home/many/" "DIR/sync$r"
    echo "diff -r many in$r && diff -r many sync$r && echo same" >"$S/one/message"
    timeout 60 cat "$S/one/wait/done" >/dev/null
    tail -n 3 "$S/one/log" | grep -q '^same' || fail "other bytes in the VM"
    both rm rm -r "DIR/in$r" "DIR/sync$r"
done

sdk() { :; }
if [ -d "$peers/node_modules/e2b" ]; then
    ln -s "$peers/node_modules" "$T/node_modules"
    cat >"$T/sdk.mjs" <<'END'
import { Sandbox } from 'e2b'
const box = await Sandbox.connect(process.argv[2])
const time = async (name, f) => {
  const t = performance.now()
  await f()
  console.log(name, (performance.now() - t).toFixed(1))
}
const walk = async (dir) => {
  for (const e of await box.files.list(dir))
    if (e.type === 'dir') await walk(e.path)
}
await box.files.list('.')
await time('cat_big', () => box.files.read('big', { format: 'bytes' }))
await time('ls', () => walk('repo'))
await time('out', async () => {
  for (const e of await box.files.list('many'))
    await box.files.read(e.path, { format: 'bytes' })
})
await time('in', async () => {
  for (let i = 0; i < 2000; i++) await box.files.write(`sdk/f${i}`, 'some content')
})
END
    (set -a; . "$M/local.env"; cd "$T" &&
        timeout 300 node sdk.mjs "$(jq -r .provider_id "$S/one/info.json")") >"$T/sdk" ||
        echo "no SDK"
    sdk() { awk -v n="$1" '$1 == n { print $2 }' "$T/sdk"; }
fi

tell cat_big 'cat of 100 MB' "$(sdk cat_big)"
tell in_big 'cp of 100 MB in'
tell status_cold 'git status of 5,000 files, the first'
tell status '  the second'
tell grep 'grep -r over 5,000 files'
tell ls 'ls -lR of 200 directories' "$(sdk ls)"
tell out 'cp -r of 2,000 files out' "$(sdk out)"
tell in 'cp -r of 2,000 files in' "$(sdk in)"
tell rsync 'rsync -a of 2,000 files in'
tell rsync_again '  again'
tell rm 'rm -r of 4,000 files'
row 'courierfs at most (MiB)' "$(hwm)" - - -

if [ -n "$full" ]; then
    head -c 2147483648 /dev/urandom >"$T/huge"
    a=$(us cp "$T/huge" "$F/huge")
    b=$(us cmp "$T/huge" "$F/huge")
    row '2 GiB in' "$a" - - -
    row '2 GiB compared' "$b" - - -
    row 'courierfs at most (MiB)' "$(hwm)" - - -
    rm "$T/huge" "$F/huge"
fi

# ---- from the VM to who watches ----

echo
row 'a line printed in the VM is told after (ms)' median p99 '' ''
# lat NAME FILE-OF-LINES: of pairs "when seen, when printed", in ns
lat() {
    local n
    sort -n "$2" >"$T/sorted"
    n=$(wc -l <"$T/sorted")
    [ "$n" -ge 50 ] || { row "$1" - - '' ''; return; }
    row "$1" "$(sed -n "$((n / 2))p" "$T/sorted")" "$(sed -n "$((n * 99 / 100))p" "$T/sorted")" '' ''
}
cat >"$T/watch.py" <<'END'
# reads lines that hold a time in ns, as they come; how: a command whose every
# line says that FILE has grown, or whose output is the lines themselves
import re, subprocess, sys, time
how, path = sys.argv[1], sys.argv[2]
f = open(path, "rb")
f.seek(0, 2)
if how == "inotify":
    p = subprocess.Popen(["inotifywait", "-m", "-q", "-e", "modify,attrib", path], stdout=subprocess.PIPE)
elif how == "tail":
    p = subprocess.Popen(["tail", "-n", "0", "-f", path], stdout=subprocess.PIPE)
else:
    p = subprocess.Popen(["cat", path], stdout=subprocess.PIPE)
seen = 0
began = time.time_ns()
end = time.time() + 60
rest = b""
while seen < 200 and time.time() < end:
    if how == "inotify":
        if not p.stdout.readline():
            break
        now = time.time_ns()
        rest += f.read()
    else:
        more = p.stdout.read1(65536)
        now = time.time_ns()
        if not more:
            break
        rest += more
    lines = rest.split(b"\n")
    rest = lines.pop()
    for line in lines:
        m = re.search(rb"\b(\d{19})\b", line)
        if m and int(m[1]) > began:
            print("%.1f" % ((now - int(m[1])) / 1e6), flush=True)
            seen += 1
p.kill()
END
for how in inotify:log tail:log cat:follow/log; do
    python3 "$T/watch.py" "${how%%:*}" "$S/one/${how#*:}" >"$T/lat" &
    w=$!
    sleep 0.5
    echo 'for i in $(seq 210); do date +%s%N; sleep 0.05; done' >"$S/one/message"
    timeout 60 cat "$S/one/wait/done" >/dev/null
    sleep 1
    pkill -P $w 2>/dev/null
    wait $w
    case $how in
    inotify*) lat 'inotifywait -m of log' "$T/lat" ;;
    tail*) lat 'tail -f of log' "$T/lat" ;;
    *) lat 'cat of follow/log' "$T/lat" ;;
    esac
done
echo 'exec for i in $(seq 25); do date +%s%N >seen; sleep 0.6; done' >"$S/one/ctl"
python3 - "$F/seen" >"$T/lat" <<'END'
import sys, time
last = None
end = time.time() + 15
while time.time() < end:
    try:
        v = open(sys.argv[1]).read().strip()
    except OSError:
        v = None
    now = time.time_ns()
    if v and v != last:
        if last:
            print("%.1f" % ((now - int(v)) / 1e6))
        last = v
    time.sleep(0.01)
END
sort -n "$T/lat" >"$T/sorted"
n=$(wc -l <"$T/sorted")
row 'a file changed there, by cat of files/' "$(sed -n "$(((n + 1) / 2))p" "$T/sorted")" \
    "$(tail -n 1 "$T/sorted")" '' ''
timeout 60 cat "$S/one/exec/last/wait/exited" >/dev/null

# ---- beside many ----

echo
row "beside $boxes sandboxes that print (ms)" files/ sshfs ratio alone
# one process each that prints ten lines a second: what is measured is what
# their streams cost, not shells that start sleep
print='$|=1; for (;;) { print "a line of output\n"; select undef, undef, undef, 0.1 }'
for i in $(seq "$boxes"); do
    echo "create w$i tool=shell network=off memory=256 " >"$S/ctl"
    printf "exec perl -e '%s'" "$print" >"$S/w$i/message"
done
# shellcheck disable=SC2046
timeout 300 cat $(seq -f "$S/w%g/wait/running" "$boxes") >/dev/null
sleep 3
# shellcheck disable=SC2154
alone=("$c_cat_big" "$c_status_cold" "$c_status")
# beside WHAT ALONE COMMAND...: with DIR for the directory, on both sides
beside() {
    local what=$1 was=$2 a b=
    shift 2
    a=$(us "${@//DIR/$F}")
    [ -z "$ssh" ] || b=$(us "${@//DIR/$X}")
    row "$what" "$a" "$b" "${b:+$(over "$a" "$b")}" "$was"
}
cold
beside 'cat of 100 MB' "${alone[0]}" cat DIR/big
cold
beside 'git status, the first' "${alone[1]}" git -C DIR/repo status --short
beside '  the second' "${alone[2]}" git -C DIR/repo status --short
for _ in $(seq 100); do us cat "$S/w1/status"; echo; done | sort -n >"$T/sorted"
row 'cat status: median, p99' "$(sed -n 50p "$T/sorted")" '' '' "$(sed -n 99p "$T/sorted")"
echo "courierfs $(rss) MiB; load $(cut -d' ' -f1 /proc/loadavg)"
echo "kill now $(seq -f 'w%g' -s ' ' "$boxes")" >"$S/ctl"
echo
echo "load $(cut -d' ' -f1 /proc/loadavg) at the end"
