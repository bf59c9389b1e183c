#!/bin/bash
# What courier costs, as a table: against the least FUSE file system
# (minfs.c), E2B's SDK, jq. Ratios hold across machines, figures don't.
#
#   BIN=build tests/bench/bench.sh           some minutes
#   BENCH_FULL=1 ...                         more of everything
#
# COURIER_CACHE as for tests/peers, which installs the SDK.
set -u
cd "$(dirname "$0")/../.." || exit 2
BIN=$(cd "${BIN:-build}" && pwd) || exit 2
full=${BENCH_FULL:-}
boxes=${full:+50} boxes=${boxes:-10}
many=${full:+10000} many=${many:-1000}
records=${full:+100000} records=${records:-10000}
peers=${COURIER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/courier-tests}/peers
export LC_ALL=C.UTF-8
unset E2B_API_KEY E2B_DOMAIN E2B_API_URL E2B_SANDBOX_URL ANTHROPIC_API_KEY \
    ANTHROPIC_AUTH_TOKEN OPENAI_API_KEY OPENROUTER_API_KEY GITHUB_TOKEN
T=$(mktemp -d "${TMPDIR:-/var/tmp}/courier-bench.XXXXXX") || exit 2
M=$T/mnt D=$T/data F=$T/minfs U=$T/minfs0 P=$T/mnt/projects/web
S=$P/sandboxes
mkdir "$M" "$D" "$F" "$U"

# shellcheck disable=SC2329
finish() {
    trap - EXIT
    mountpoint -q "$M" && echo 'shutdown all' >"$M/ctl"
    fusermount3 -uzq "$F"
    fusermount3 -uzq "$U"
    for _ in $(seq 300); do mountpoint -q "$M" || break; sleep 0.1; done
    pkill -TERM -f "courier-sandboxd .*$T/" && sleep 1
    fusermount3 -uzq "$M"
    rm -rf "$T"
}
trap finish EXIT
trap 'exit 130' INT TERM

build() {
    local cc="${CC:-gcc} -std=gnu17 -O2 -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64"
    # shellcheck disable=SC2046
    $cc -DFUSE_USE_VERSION=314 tests/bench/minfs.c -o "$T/minfs.bin" \
        $(pkg-config --cflags --libs fuse3) &&
        $cc -Ibackend -I. tests/bench/probe.c "$BIN"/obj/backend/agents/*.o \
            "$BIN"/obj/backend/base/*.o -o "$T/probe" -lm -pthread \
            $(pkg-config --cflags --libs jansson libcurl)
}
now() { echo $((${EPOCHREALTIME/./} / 1000)); }
# ms COMMAND...: how long it takes
ms() {
    local t=${EPOCHREALTIME/./}
    "$@" >/dev/null || echo "failed: $*" >&2
    echo $(((${EPOCHREALTIME/./} - t) / 1000))
}
# best NAME VALUE: keeps the least in NAME: what others do meanwhile on this
# machine makes things slower, never faster
best() {
    local had=${!1:-}
    if [ -z "$had" ] || awk -v a="$2" -v b="$had" 'BEGIN { exit !(a < b) }'; then
        printf -v "$1" %s "$2"
    fi
}
row() { printf '%-44s %14s %14s %14s\n' "$@"; }
over() { awk -v a="$1" -v b="$2" 'BEGIN { if (b > 0) printf "%.2f", a / b; else print "-" }'; }
pid() { awk '$1 == "pid" { print $2 }' "$M/status"; }
rss() { awk '/^VmRSS/ { printf "%.1f", $2 / 1024 }' "/proc/$1/status"; }
cpu() { awk '{ print ($14 + $15) * 10 }' "/proc/$1/stat"; } # ms
mount_() { timeout 120 "$BIN/courierfs" --data "$D" --backend local "$M" >/dev/null; }
umount_() {
    local p
    p=$(pid)
    echo shutdown >"$M/ctl"
    while kill -0 "$p" 2>/dev/null; do sleep 0.02; done
}

build || exit 1
echo "$(nproc) CPUs, $(uname -sm), load $(cut -d' ' -f1 /proc/loadavg) at the start"
mount_ || exit 1
rest=$(rss "$(pid)")
mkdir "$P"

echo
row 'the tree' courier 'minfs' ratio
"$T/minfs.bin" "$many" "$F" &
"$T/minfs.bin" "$many" "$U" 0 &
t=$(now)
for i in $(seq 1000); do mkdir "$S/$(printf 's%05d' "$i")"; done
t=$(($(now) - t))
row 'mkdir of a draft, on disk (µs)' "$t" - -
if [ "$many" -gt 1000 ]; then
    umount_
    sqlite3 "$D/courier.db" "CREATE TEMP TABLE c AS SELECT * FROM sandbox WHERE name = 's00001';
        WITH RECURSIVE n(i) AS (SELECT 1001 UNION ALL SELECT i + 1 FROM n WHERE i < $many)
        INSERT INTO sandbox(project, name, status, reason, agent, created)
        SELECT project, printf('s%05d', i), status, reason, agent, created FROM c, n"
    mount_ || exit 1
fi
# tree FS PATH-OF-DIRECTORY: stat, cat, ls -l, grep
tree() {
    local t
    read -r t _ <<<"$("$T/probe" stat "$2/s00500/status" 4000)"
    best "$1_stat" "$t"
    read -r t _ <<<"$("$T/probe" cat "$2/s00500/status" 2000)"
    best "$1_cat" "$t"
    best "$1_ls" "$(ms ls -l "$2")"
    best "$1_grep" "$(ms sh -c "grep -c draft $2/s*/status")"
}
for _ in 1 2 3 4 5; do tree m "$F"; tree u "$U"; tree c "$S"; done
# shellcheck disable=SC2154
{
    row 'stat status (µs)' "$c_stat" "$u_stat" "$(over "$c_stat" "$u_stat")"
    row '  minfs, a second believed by the kernel' '' "$m_stat" "$(over "$c_stat" "$m_stat")"
    row 'cat status: open, read, close (µs)' "$c_cat" "$u_cat" "$(over "$c_cat" "$u_cat")"
    row '  minfs, a second believed' '' "$m_cat" "$(over "$c_cat" "$m_cat")"
    row "ls -l of $many (ms)" "$c_ls" "$u_ls" "$(over "$c_ls" "$u_ls")"
    row '  minfs, a second believed' '' "$m_ls" "$(over "$c_ls" "$m_ls")"
    row "grep -c over $many statuses (ms)" "$c_grep" "$u_grep" "$(over "$c_grep" "$u_grep")"
    row '  minfs, a second believed' '' "$m_grep" "$(over "$c_grep" "$m_grep")"
}
fusermount3 -uq "$F"; fusermount3 -uq "$U"
with=$(rss "$(pid)")

echo
row 'start, until the tree answers' courier '' ''
umount_
row "with $((many + 0)) sandboxes in the record (ms)" "$(ms mount_)" '' ''
umount_
cp "$D/courier.db" "$T/keep.db"
sqlite3 "$D/courier.db" "CREATE TEMP TABLE c AS SELECT * FROM sandbox WHERE name = 's00001';
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $records)
    INSERT INTO sandbox(project, name, status, reason, agent, created)
    SELECT project, printf('t%06d', i), status, reason, agent, created FROM c, n"
row "with $((many + records)) (ms)" "$(ms mount_)" '' ''
umount_
rm -f "$D"/courier.db*
mv "$T/keep.db" "$D/courier.db"
mount_ || exit 1
umount_
rm -rf "$D"
mkdir "$D"
mount_ || exit 1
mkdir "$P"

echo
row 'sandboxes on the local host' courier 'SDK in node' ratio
n=20
# the host is up before either begins
echo 'create warm tool=shell' >"$S/ctl"
cat "$S/warm/wait/running" >/dev/null
t=$(now)
for i in $(seq $n); do echo "create b$i tool=shell" >"$S/ctl"; done
acc=$(($(now) - t))
timeout 120 cat $(seq -f "$S/b%g/wait/running" $n) >/dev/null
t=$(($(now) - t))
sdk=-
if [ -d "$peers/node_modules/e2b" ]; then
    ln -s "$peers/node_modules" "$T/node_modules"
    cat >"$T/sdk.mjs" <<'END'
import { Sandbox } from 'e2b'
const n = +process.argv[2]
await (await Sandbox.create()).kill()
const t = Date.now()
const all = await Promise.all(Array.from({ length: n }, () => Sandbox.create()))
console.log(Date.now() - t)
await Promise.all(all.map(s => s.kill()))
END
    sdk=$(set -a; . "$M/local.env"; cd "$T" && timeout 120 node sdk.mjs $n)
fi
row "create $n: a shell loop, until accepted (ms)" $acc - -
row "create $n: until all run (ms)" $t "$sdk" "$(over $t "$sdk")"
echo "kill now $(seq -f 'b%g' -s ' ' $n)" >"$S/ctl"
timeout 120 cat $(seq -f "$S/b%g/wait/ended" $n) >/dev/null
echo 'exec true' >"$S/warm/ctl"
timeout 60 cat "$S/warm/exec/last/wait/exited" >/dev/null
for i in 1 2 3 4 5; do
    t=$(now)
    echo true >"$S/warm/message"
    cat "$S/warm/wait/done" >/dev/null
    echo $(($(now) - t))
done | sort -n >"$T/turns"
row 'a turn that does nothing, to its end (ms)' "$(sed -n 3p "$T/turns")" - -

echo
row 'a line printed in the VM is read after (ms)' median 'p99' ''
stamp() {
    local m p
    echo 'for i in $(seq 220); do date +%s%N; sleep 0.02; done' >"$S/warm/message"
    read -r m p <<<"$(timeout 60 "$T/probe" stamps "$S/warm/follow/$1" "$2")"
    row "follow/$1$3" "$(awk -v x="$m" 'BEGIN { printf "%.1f", x / 1000 }')" \
        "$(awk -v x="$p" 'BEGIN { printf "%.1f", x / 1000 }')" ''
    timeout 60 cat "$S/warm/wait/done" >/dev/null
}
stamp log 200 ''
# what was there before is no news: a new sandbox for the second file
echo kill now >"$S/warm/ctl"; cat "$S/warm/wait/ended" >/dev/null; rmdir "$S/warm"
echo 'create warm tool=shell' >"$S/ctl"; cat "$S/warm/wait/running" >/dev/null
stamp messages 200 ''

echo
row 'memory of courierfs (MiB)' courier '' ''
row 'at rest, nothing in the record' "$rest" '' ''
row "after ls -l, grep over $many" "$with" '' ''
for i in $(seq "$boxes"); do
    echo "create w$i tool=shell network=off memory=256 prompt='while :; do echo a line of output that an agent might print; sleep 0.1; done'" >"$S/ctl"
done
timeout 300 cat $(seq -f "$S/w%g/wait/running" "$boxes") >/dev/null
sleep 5
c=$(cpu "$(pid)")
sleep 10
c=$((($(cpu "$(pid)") - c) / 100))
row "with $boxes sandboxes streaming" "$(rss "$(pid)")" '' ''
row '  its processor time (% of one)' "$c" '' ''
read -r a b <<<"$("$T/probe" cat "$S/w1/status" 2000)"
row '  cat status meanwhile: median, p99 (µs)' "$a" "$b" ''
echo "kill now $(seq -f 'w%g' -s ' ' "$boxes")" >"$S/ctl"

echo
row 'parsers (MiB/s)' courier 'jq -c .type' ratio
for f in claude codex opencode pi; do
    : >"$T/in"
    # captured streams that are JSON from end to end, many times
    for g in tests/agents/data/$f/*.jsonl; do
        jq -c .type "$g" >/dev/null 2>&1 && cat "$g" >>"$T/in"
    done
    [ -s "$T/in" ] || continue
    while [ "$(stat -c %s "$T/in")" -lt 16000000 ]; do
        cp "$T/in" "$T/in2"
        cat "$T/in2" "$T/in2" >"$T/in"
    done
    a=$("$T/probe" parse $f "$T/in" 30)
    b=$(ms jq -c .type "$T/in")
    b=$(over $(($(stat -c %s "$T/in") / 1049)) "$b")
    row "$f" "$a" "$b" "$(over "$a" "$b")"
done
echo
echo "load $(cut -d' ' -f1 /proc/loadavg) at the end"
