#!/bin/bash
# Every way to die: where the work is afterwards.
set -u
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/repo.bash"
start
remote r
echo "repo = $T/r.git" >"$P/config"

host() { # METHOD PATH [BODY]: the local host's own API
    curl -sS -m 10 --unix-socket "$D/host/host.sock" -X "$1" \
        -H "X-API-KEY: $(val_env E2B_API_KEY)" \
        ${3:+-H 'Content-Type: application/json' -d "$3"} "http://localhost$2"
}
val_env() { sed -n "s/^$1=//p" "$T/env"; }
vm() { jq -r .provider_id "$S/$1/info.json"; }
down() { kill "$1" "$2" && soon 20 sh -c "! kill -0 $2"; }
again() { # the daemon is started again
    fusermount3 -uz "$M" 2>/dev/null
    mount_ || bad "courierfs does not start again: $(cat "$T/start")"
}
row() { jq -r .id "$S/$1/info.json"; }
db() { sqlite3 -cmd '.timeout 5000' "$D/courier.db" "$1"; }

began=$SECONDS
make slow timeout=1m sync=end "prompt='echo slow >s'"

# ---- kill now: what was pushed stays, the rest goes ----
make now
up now >/dev/null
ask now 'echo 1 >n' >/dev/null
soon 20 at r rev-parse -q --verify courier/now
ask now 'sleep 0.1; (sleep 1; echo 2 >n) & disown' >/dev/null
ctl now 'kill now' >/dev/null
ended now >/dev/null
is 'kill now: the last sync is on the remote' "$(at r show courier/now:n)" 1
is 'its reason' "$(cat "$S/now/reason")" 'killed by user'

# ---- states of a repository, each saved by a kill ----
for n in detached merging stash branches others odd ign huge nogit; do
    make $n sync=end
done
up detached >/dev/null
ask detached 'git checkout -q --detach; echo d >d; git add d
git commit -qm off; echo e >e' >/dev/null
like 'a detached HEAD' "$(kill_ detached)" 'pushed courier/detached'
is 'has what was committed' "$(at r show courier/detached:d)" d
is 'and what was not' "$(at r show courier/detached:e)" e

up merging >/dev/null
ask merging 'git checkout -qb x; echo x >a; git commit -qam x
git checkout -q courier/merging; echo y >a; git commit -qam y
git merge -q x; echo more >m; git status | head -3' >/dev/null
like 'in the middle of a merge' "$(kill_ merging)" 'pushed courier/merging'
like 'the conflict is as it was' "$(at r show courier/merging:a)" '<<<<<<<'
is 'and what lay beside' "$(at r show courier/merging:m)" more
is 'the other branch came, too' "$(at r show x:a)" x

up stash >/dev/null
ask stash 'echo s >a; git stash -q' >/dev/null
like 'a stash' "$(kill_ stash)" 'pushed courier/stash-stash'
is 'has the work' "$(at r show courier/stash-stash:a)" s

up branches >/dev/null
ask branches 'git checkout -q main 2>/dev/null || git checkout -qb main
echo m >m; git add m; git commit -qm m; git checkout -qb side
echo s >s; git add s; git commit -qm s' >/dev/null
r=$(kill_ branches)
is 'commits on main never move main' "$(tip r main)" first
is 'the branch it was on arrives' "$(at r show courier/branches:s)" s
like 'those of main come home' "$r" \
    'not pushed \(commits on main\): work is in salvage/ \(commits.bundle\)'

up others >/dev/null
ask others 'mkdir -p ~/a/lib ~/b/lib; for d in ~/a/lib ~/b/lib; do
(cd $d && git init -q && echo $d >own && git add own &&
git -c user.name=x -c user.email=x commit -qm own && echo u >u); done' \
    >/dev/null
r=$(kill_ others)
like 'other repositories come home' "$r" \
    '/home/user/a/lib: not pushed .*a-lib-commits.bundle'
is 'each under its name' "$(ls "$S/others/salvage" | tr '\n' ' ')" \
    'a-lib-commits.bundle b-lib-commits.bundle '
git init -q "$T/look"
yes 'as bundles' git -C "$T/look" fetch -q \
    "$S/others/salvage/b-lib-commits.bundle" 'refs/heads/*:refs/heads/*'

up odd >/dev/null
ask odd "mkdir -p 'd i r'; echo 1 >'d i r/a b'; echo 2 >\$'new\\nline'
echo 3 >\$'\\xff\\xfe'; echo 4 >-x; echo 5 >\$'tab\\there'; ln -s /etc/passwd l
echo 6 >:x" >/dev/null
like 'odd names' "$(kill_ odd)" 'pushed courier/odd'
is 'all of them' "$(at r ls-tree -rz courier/odd | tr -dc '\0' | wc -c)" 8
is 'a newline in it' "$(at r show $'courier/odd:new\nline')" 2
is 'no UTF-8' "$(at r show $'courier/odd:\xff\xfe')" 3
is 'a link is a link' \
    "$(at r ls-tree courier/odd l | cut -c1-6)" 120000
unlike 'the reason is one line of text' "$(cat "$S/odd/reason")" $'\xff'

up ign >/dev/null
ask ign 'echo "*.o" >.gitignore; echo o >x.o; echo c >x.c' >/dev/null
like 'ignored files' "$(kill_ ign)" 'pushed courier/ign'
is 'stay behind' "$(at r ls-tree --name-only courier/ign | tr '\n' ' ')" \
    '.gitignore a x.c '

up huge >/dev/null
ask huge 'truncate -s 97M big; echo small >small' >/dev/null
r=$(kill_ huge)
like 'a huge file: the rest is pushed' "$r" 'pushed courier/huge'
is 'there' "$(at r show courier/huge:small)" small
like 'it comes home as a file' "$r" 'salvage/ \(untracked.tar\)'
is 'whole' "$(tar tf "$S/huge/salvage/untracked.tar")" big

up nogit >/dev/null
ask nogit 'rm -rf ~/project/.git; echo 1 >x' >/dev/null
like 'a repository that its agent removed' "$(kill_ nogit)" '^killed by user$'

# ---- the remote's branch went on; the remote went away ----
make moved sync=end
make away sync=end
up moved >/dev/null
ask moved 'echo 1 >f; git add f; git commit -qm one' >/dev/null
ctl moved push >/dev/null
soon 20 at r rev-parse -q --verify courier/moved
at r update-ref refs/heads/courier/moved "$(at r commit-tree -p courier/moved \
    -m theirs 'courier/moved^{tree}')"
ask moved 'echo 2 >f' >/dev/null
r=$(kill_ moved)
like 'a branch that has other commits' "$r" 'pushed courier-moved-[0-9a-f]{8}'
like 'says why' "$r" 'has commits there'
is 'keeps them' "$(tip r courier/moved)" theirs
is 'ours are beside' "$(at r show "$(grep -oE 'courier-moved-[0-9a-f]{8}' \
    <<<"$r" | head -1):f")" 2
up away >/dev/null
ask away 'echo 1 >f; git add f; git commit -qm kept; echo 2 >u' >/dev/null
mv "$T/r.git" "$T/elsewhere.git"
like 'the remote is gone' "$(kill_ away)" \
    'not pushed .*: work is in salvage/ \(commits.bundle\)'
mv "$T/elsewhere.git" "$T/r.git"
yes 'the bundle has it' git -C "$T/r.git" fetch -q \
    "$S/away/salvage/commits.bundle" courier/away:courier/away
is 'all of it' "$(at r show courier/away:u)" 2

# ---- an agent that crashes; a VM that vanishes ----
make crash
make gone
up crash >/dev/null
is 'an agent that crashes' "$(ask crash 'echo 1 >c; kill -9 $$')" failed
soon 20 at r rev-parse -q --verify courier/crash
is 'its work is on the remote' "$(at r show courier/crash:c)" 1
ctl crash kill >/dev/null
up gone >/dev/null
ask gone 'echo 1 >g' >/dev/null
soon 20 at r rev-parse -q --verify courier/gone
cat "$M/local.env" >"$T/env"
host DELETE "/sandboxes/$(vm gone)" >/dev/null
is 'a VM that vanishes' "$(ended gone)" error
like 'is told' "$(cat "$S/gone/reason")" 'VM is gone'
is 'its work is where the last turn put it' "$(at r show courier/gone:g)" 1

# ---- the daemon dies in the middle of a kill ----
k=0
for after in 0.01 0.08 0.2 0.4; do
    k=$((k + 1))
    make die$k sync=end
done
for k in 1 2 3 4; do
    up die$k >/dev/null
    ask die$k "echo $k >f" >/dev/null
done
k=0
for after in 0.01 0.08 0.2 0.4; do
    k=$((k + 1))
    ctl die$k kill >/dev/null
    sleep $after
    down -9 "$(pid)"
    again
    is "killed $after s into a kill" "$(ended die$k)" killed
    is 'the work is there' "$(at r show courier/die$k:f)" $k
done

# ---- the daemon is away at the deadline ----
make absent sync=end
make sleeper sync=end on_timeout=pause
up absent >/dev/null
up sleeper >/dev/null
ask absent 'echo 1 >f' >/dev/null
cat "$M/local.env" >"$T/env"
a=$(vm absent) b=$(vm sleeper) i=$(row absent) j=$(row sleeper)
down -TERM "$(pid)"
for v in "$a" "$b"; do
    host POST "/sandboxes/$v/timeout" '{"timeout":1}' >/dev/null
done
paused() { host GET "/sandboxes/$1" | jq -e '.state == "paused"'; }
soon 20 paused "$a" || bad 'the host does not pause it'
soon 20 paused "$b"
db "UPDATE sandbox SET expires=(strftime('%s','now')-5)*1000
    WHERE id IN($i,$j)"
again
is 'the deadline passed without the daemon' "$(ended absent)" killed
like 'its reason' "$(cat "$S/absent/reason")" \
    '^timeout; pushed courier/absent'
is 'its work' "$(at r show courier/absent:f)" 1
is 'one that is to pause is paused' \
    "$(timeout 20 cat "$S/sleeper/wait/paused")" paused

# ---- purge of a paused one ----
ctl sleeper kill >/dev/null
make pure sync=end
make stays sync=off
for n in pure stays; do
    up $n >/dev/null
    ask $n 'echo 1 >f' >/dev/null
    ctl $n pause >/dev/null
    timeout 20 cat "$S/$n/wait/paused" >/dev/null
    rmdir "$S/$n"
done
rmdir "$P/trash/pure"
yes 'purged' soon 20 sh -c "! test -e '$P/trash/pure'"
is 'after its work was pushed' "$(at r show courier/pure:f)" 1
rmdir "$P/trash/stays"
yes 'work that came home as files only' soon 20 \
    grep -q killed "$P/trash/stays/status"
like 'keeps it in the trash' "$(cat "$P/trash/stays/reason")" \
    '^not purged yet; not pushed .*salvage/ \(commits.bundle\)'
yes 'the files are there' test -s "$P/trash/stays/salvage/commits.bundle"
id=$(jq -r .id "$P/trash/stays/info.json")
yes 'and on the disk' test -d "$D/salvage/$id"
rmdir "$P/trash/stays"
yes 'a second purge removes it' soon 10 sh -c "! test -e '$P/trash/stays'"
yes 'with its files' soon 10 sh -c "! test -e '$D/salvage/$id'"

# ---- the timeout that began with the suite ----
left=$((62 - (SECONDS - began)))
is 'a timeout' "$(timeout $((left > 20 ? left : 20)) \
    cat "$S/slow/wait/ended")" killed
like 'saves first' "$(cat "$S/slow/reason")" '^timeout; pushed courier/slow'
is 'the work' "$(at r show courier/slow:s)" slow
is 'main was never touched' "$(tip r main)" first
