#!/bin/bash
# .files/ with many files and large ones: what is fetched ahead is right, is
# not old, and makes tools bearably quick.
. "$(dirname "$0")/../lib.sh"

start
mk one
F=$S/one/files
vm() { ask one "$1" >/dev/null; }
run() { echo "exec $1" >"$S/one/ctl"; } # beside, and not waited for
# quick WHAT MS COMMAND...: succeeds, and in that time; three times as long
# where other suites have the processors
quick() {
    local w=$1 limit=$(($2 * 3)) t=${EPOCHREALTIME/./}
    shift 2
    if ! timeout 120 "$@" >"$T/out" 2>&1; then
        bad "$w: failed: $(head -c 200 "$T/out")"
        return
    fi
    t=$(((${EPOCHREALTIME/./} - t) / 1000))
    [ -z "${SHOW_TIMES:-}" ] || echo "$w: $t ms"
    if [ $t -le "$limit" ]; then ok; else bad "$w took $t ms"; fi
}
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'

vm 'mkdir repo && cd repo && git init -q . && for i in $(seq 100); do
mkdir -p d$i/s; for j in $(seq 25); do echo "$i.$j line" >d$i/s/f$j; echo "$i.$j" >d$i/g$j; done; done
git add -A; git -c user.name=a -c user.email=a@b commit -qm all; git gc -q
mkdir ../many; cd ../many; for i in $(seq 1000); do echo "$i content" >f$i; done; chmod +x f1 f2
: >empty; head -c 70000 /dev/urandom >middle; sha256sum * >../sums'
sleep 1.1

# ---- a repository of 5000 files ----

quick "git status, the first time" 25000 git -C "$F/repo" status --short
is "is clean" "$(cat "$T/out")" ""
quick "git status again" 8000 git -C "$F/repo" status --short
vm 'echo other >repo/d7/s/f3; echo new >repo/d9/new'
is "git status knows at once what a turn did" "$(git -C "$F/repo" status --short)" $' M d7/s/f3\n?? d9/new'
quick "git diff" 8000 git -C "$F/repo" diff --stat
like "and shows it" "$(cat "$T/out")" '1 insertion.*1 deletion'
quick "grep -r" 20000 grep -rc line --exclude-dir=.git "$F/repo/"
is "finds all" "$(grep -c ':1$' "$T/out")" 2499
is "find sees all" "$(find "$F/repo/" -path '*/.git' -prune -o -type f -print | wc -l)" 5001
quick "ls -lR" 10000 ls -lR "$F/repo/"
is "lists all" "$(grep -c '^-.* [fg][0-9]*$' "$T/out")" 5000

# ---- many files out and in ----

quick "cp -r of 1000 files out" 15000 cp -r "$F/many" "$T/many"
yes "are right" sh -c "cd '$T/many' && sha256sum --quiet -c '$F/sums'"
quick "tar out" 15000 tar -C "$F" -cf "$T/many.tar" many
is "without a complaint" "$(cat "$T/out")" ""
mkdir "$T/tar" && tar -C "$T/tar" -xf "$T/many.tar"
yes "is right" diff -r "$T/many" "$T/tar/many"
quick "cp -r in" 30000 cp -r "$T/many" "$F/many2"
vm 'diff -r many many2 && stat -c %a many2/f1 >res'
is "is right in the VM, and executable" "$(cat "$F/res" | cut -c1)" 7
quick "rsync -a in" 60000 rsync -a "$T/many/" "$F/many3/"
sleep 0.5
vm 'diff -r many many3 >res && stat -c "%Y %a" many3/f1 many3/f9 >>res'
is "is right, with times and modes" "$(cut -c1-14 "$F/res")" \
    "$(stat -c '%Y 755' "$T/many/f1"; stat -c '%Y 644' "$T/many/f9")"
quick "rsync -a again" 8000 rsync -ai "$T/many/" "$F/many3/"
is "sends nothing" "$(grep -v '^\.d' "$T/out")" ""
quick "rsync -a out" 15000 rsync -a "$F/many/" "$T/back/"
yes "is right too" diff -r "$T/many" "$T/back"
quick "rsync -a out again" 8000 rsync -ai "$F/many/" "$T/back/"
is "sends nothing either" "$(cat "$T/out")" ""
quick "rm -r" 30000 rm -r "$F/many2" "$F/many3"

# ---- nothing of it is old ----

vm 'for i in $(seq 40); do echo old$i >r$i; done'
cat "$F"/r[1-9]* >/dev/null
vm 'for i in $(seq 40); do echo new$i >r$i; done'
is "after a turn all is new" "$(cat "$F"/r[1-9]* | grep -c new)" 40
run 'for i in $(seq 40); do echo nex$i >r$i; done'
timeout 10 cat "$S/one/exec/last/wait/exited" >/dev/null
is "after a command, too" "$(cat "$F"/r[1-9]* | grep -c nex)" 40
run 'sleep 1; rm r1 r2; mkdir r1; echo x >r1/in; ln -s r3 r2; echo longer than before >r4'
cat "$F"/r[1-9]* >/dev/null
yes "a file that became a directory" soon 3 grep -q x "$F/r1/in"
yes "and one a symlink" soon 3 test -L "$F/r2"
is "reads as that" "$(cat "$F/r2")" nex3
yes "one that grew" soon 3 grep -q '^longer than before$' "$F/r4"
# while it is being changed, each answer is one that was true
vm 'cat >flip.sh <<END
while :; do printf aaaaaaaa >.f && mv .f flip; printf bbbb >.f && mv .f flip; done
END
printf bbbb >flip'
run 'timeout 3 sh flip.sh'
sleep 0.5
for _ in $(seq 60); do cat "$F/flip"; echo; done 2>/dev/null |
    grep -avxE 'aaaaaaaa|bbbb|' >"$T/odd"
is "no mixture" "$(cat "$T/odd")" ""

# ---- two who make the same ----

# behind the daemon's back, and done when this returns
. "$M/local.env"
box=$(jq -r .provider_id "$S/one/info.json")
token=$(curl -s -H "X-API-Key: $E2B_API_KEY" -H 'Content-Type: application/json' \
    -d '{"timeout":600}' "$E2B_API_URL/sandboxes/$box/connect" | jq -r .envdAccessToken)
behind() {
    curl -s -f -H "X-Access-Token: $token" -H "E2b-Sandbox-Id: $box" \
        -H 'E2b-Sandbox-Port: 49983' -H "Content-Type: $2" --data-binary "$3" \
        "$E2B_SANDBOX_URL/$1" >/dev/null || bad "curl $1"
}
put() { behind "files?path=$1" application/octet-stream "$2"; }

ls "$F/" >/dev/null
put made vm
echo more >>"$F/made"
is "what the VM made a moment ago is not lost" "$(cat "$F/made")" vmmore
ls "$F/" >/dev/null
put made2 vm
behind filesystem.Filesystem/MakeDir application/json '{"path":"lock2"}'
is "O_EXCL sees it" "$(eno open "$F/made2" $((0301)))" EEXIST
is "and mkdir" "$(eno mkdir "$F/lock2")" EEXIST
echo a >"$F/ren1"
echo b >"$F/ren2"
mv -n "$F/ren1" "$F/ren2" 2>/dev/null
is "mv -n keeps what is there" "$(cat "$F/ren2" "$F/ren1")" $'b\na'

# ---- reads are whole ----

head -c 12345678 /dev/urandom >"$T/big"
cp "$T/big" "$F/big"
for bs in 100000 65537 1000003 4096; do
    dd if="$F/big" of="$T/dd" bs=$bs 2>"$T/err"
    like "dd bs=$bs has one short record at most" "$(head -n 1 "$T/err")" '\+[01] '
    yes "and is right" cmp "$T/big" "$T/dd"
done
is "in any order" "$(python3 - "$F/big" "$T/big" <<'END'
import os, random, sys
random.seed(7)
a, b = (os.open(p, os.O_RDONLY) for p in sys.argv[1:])
size = os.fstat(b).st_size
for _ in range(300):
    off, n = random.randrange(size + 5000), random.choice([1, 511, 4096, 70000, 300000, 900000])
    if os.pread(a, n, off) != os.pread(b, n, off):
        sys.exit("wrong at %d+%d" % (off, n))
print("right")
END
)" right
vm 'sleep 1; sha256sum big >res'
is "and in the VM" "$(cut -d' ' -f1 "$F/res")" "$(sha256sum <"$T/big" | cut -d' ' -f1)"

# ---- times, sizes, modes ----

touch -d '2001-02-03 04:05:06.5 UTC' "$F/big"
is "touch -d" "$(stat -c %Y "$F/big")" 981173106
sleep 0.5
vm 'stat -c %.1Y big >res'
is "in the VM, too" "$(cat "$F/res")" 981173106.5
chmod +x "$F/res"
sleep 0.3
vm 'test -x res && echo yes >res2; test -x big || echo no >>res2'
is "chmod" "$(cat "$F/res2")" $'yes\nno'
cp -p "$T/many/f1" "$F/kept"
touch -r "$T/many/f1" "$F/kept2"
mv "$F/kept" "$F/kept3"
sleep 0.5
vm 'stat -c "%Y %A" kept3 kept2 >res'
is "cp -p, touch -r, and mv at once" "$(cut -c1-14 "$F/res")" \
    "$(stat -c '%Y -rwx' "$T/many/f1" | cut -c1-14; stat -c '%Y -rw' "$T/many/f1" | cut -c1-14)"
touch -d @1000000000 "$F/kept2" && echo later >"$F/kept2"
sleep 0.5
vm 'test kept2 -nt big && cat kept2 >res'
is "a later write has a later time" "$(cat "$F/res")" later
is "fstat of who writes" "$(python3 - "$F/w" <<'END'
import os, sys
f = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
os.write(f, b"12345")
print(os.fstat(f).st_size)
END
)" 5

# ---- a VM without the programs, a directory that can't be listed ----

vm 'mkdir -p bin closed; echo seen >closed/x; chmod 311 closed; mkdir nt; for i in $(seq 30); do echo $i >nt/f$i; done
sed -i "1iexport PATH=/nowhere" .profile 2>/dev/null || echo "export PATH=/nowhere" >.profile'
is "by name" "$(cat "$F/closed/x")" seen
is "and again" "$(cat "$F/closed/x" "$F/closed/x" "$F/closed/x")" $'seen\nseen\nseen'
is "but not listed" "$(ls "$F/closed/" 2>&1 | grep -c 'Permission denied')" 1
is "small files without tar" "$(cat "$F"/nt/* | wc -l)" 30

# ---- beside others ----

before=$(awk '/VmHWM/ { print $2 }' "/proc/$(pid)/status")
if [ "$before" -lt 150000 ]; then ok; else bad "the daemon needs $before kB"; fi
for i in 1 2 3 4 5; do
    run 'i=0; while [ $i -lt 400 ]; do i=$((i+1)); echo line $i; sleep 0.02; done'
done
quick "cp while others print" 20000 cp "$F/big" "$T/again"
yes "is right" cmp "$T/big" "$T/again"
quick "and the tree answers" 500 cat "$S/one/status"
