#!/bin/bash
# Repositories: in by clone, out by push; what the tree shows of it.
set -u
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/repo.bash"
start

# ---- a bare repository by its path ----
remote r
echo "repo = $T/r.git" >"$P/config"
make one >/dev/null
make own git_name=Ann git_email=ann@example.org sync=end
make off sync=off
make pushy sync=end
is 'a sandbox with a repository starts' "$(up one)" running
is 'branch by default' "$(cat "$S/one/branch")" courier/one
like 'setup.log has the clone' "$(cat "$S/one/setup.log")" 'git clone .*r\.git'
is 'no diff yet' "$(cat "$S/one/diff")" ''
is 'a turn' "$(ask one 'pwd; git branch --show-current; echo 1 >f')" completed
like 'the agent is in the clone, on the branch' "$(cat "$S/one/messages")" \
    '/home/user/project'
like 'on the branch' "$(cat "$S/one/messages")" '^courier/one'
soon 20 at r rev-parse -q --verify courier/one
is 'after the turn the remote has it' "$(at r show courier/one:f)" 1
is 'the commit names the sandbox' "$(tip r courier/one)" \
    'courier: work of sandbox one'
is "it is of this user's name" \
    "$(at r log -1 --format='%an <%ae>' courier/one)" \
    'Mo User <mo@example.org>'
soon 10 grep -q '^+1' "$S/one/diff"
like 'diff shows it' "$(cat "$S/one/diff")" '^\+\+\+ b/f'
ask one 'echo 2 >f; git commit -qam "my own words"' >/dev/null
soon 20 sh -c "git -C $T/r.git log -1 --format=%s courier/one | grep -q own"
is "the agent's commit arrives as it is" "$(tip r courier/one)" 'my own words'
like 'the end says where it is' "$(kill_ one)" \
    '^killed by user; pushed courier/one [0-9a-f]{12}$'
is 'main is as it was' "$(tip r main)" first
is 'nothing in salvage' "$(ls "$S/one/salvage")" ''
is 'info.json has the branch' "$(jq -r .git.branch "$S/one/info.json")" \
    courier/one

# ---- sync ----
up own >/dev/null
ask own 'echo x >x' >/dev/null
ask own 'true' >/dev/null
no 'sync = end pushes nothing after a turn' at r rev-parse -q --verify \
    courier/own
like 'but at the end' "$(kill_ own)" 'pushed courier/own'
is 'git_name, git_email' "$(at r log -1 --format='%an <%ae>' courier/own)" \
    'Ann <ann@example.org>'
up off >/dev/null
ask off 'echo secret >s; git add s; git commit -qm s; echo u >u' >/dev/null
like 'sync = off: files' "$(kill_ off)" \
    'not pushed \(sync = off\): work is in salvage/ \(commits.bundle\)'
no 'sync = off pushes nothing' at r rev-parse -q --verify courier/off
yes 'what came home is a bundle that git takes' git -C "$T/r.git" fetch -q \
    "$S/off/salvage/commits.bundle" courier/off:from-off
is 'with the work' "$(at r show from-off:u)" u
up pushy >/dev/null
ask pushy 'echo p >p' >/dev/null
is 'push is a verb' "$(ctl pushy push)" OK
soon 20 at r rev-parse -q --verify courier/pushy
is 'that pushes' "$(at r show courier/pushy:p)" p
ctl pushy kill >/dev/null

# ---- names ----
for b in 'a b' -x refs/heads/y ../z a..b '@{1}' x.lock 'a~1' 'a^' 'a:b' \
    'a?b' $'a\tb' /a a/ a//b .a @; do
    is "branch=$b is refused at once" \
        "$(wr "$S/ctl" "create bad tool=shell \"branch=$b\"
")" EINVAL
done
no 'and nothing was made' test -e "$S/bad"
at r branch courier/again main
make again
up again >/dev/null
is 'a name that is taken there gets a number' "$(cat "$S/again/branch")" \
    courier/again-2
ctl again kill >/dev/null
at r branch old/work main
make goes branch=old/work
up goes >/dev/null
ask goes 'echo g >g' >/dev/null
like 'a branch asked for goes on' "$(kill_ goes)" 'pushed old/work'
is 'there' "$(at r show old/work:g)" g
make under branch=old
is 'a branch that the others forbid' "$(ended under)" error
like 'says why' "$(cat "$S/under/error")" "has a branch 'old/work'"
remote c
at c branch courier main
make clash repo="$T/c.git"
up clash >/dev/null
is 'with a branch courier in the way' "$(cat "$S/clash/branch")" courier-clash
like 'it is told' "$(cat "$S/clash/setup.log")" "has a branch 'courier'"
ask clash 'echo 1 >c' >/dev/null
like 'and works' "$(kill_ clash)" 'pushed courier-clash'
is 'there is it' "$(at c show courier-clash:c)" 1

# ---- base ----
(git clone -q "$T/c.git" "$T/w" && cd "$T/w" && git checkout -qb dev &&
    echo d >d && git add d && git commit -qm dev && git push -q origin dev)
make based repo="$T/c.git" base=dev
up based >/dev/null
ask based 'cat d; echo 2 >d' >/dev/null
like 'base' "$(kill_ based)" 'pushed courier-based'
like 'the diff is against it' "$(cat "$S/based/diff")" '^\+2'
unlike 'and has nothing else' "$(cat "$S/based/diff")" 'b/c$'
make nobase repo="$T/c.git" base=none
is 'a base that is not there' "$(ended nobase)" error
like 'says so' "$(cat "$S/nobase/error")" "no branch 'none'"

# ---- repositories with a work tree; file:// ----
git clone -q "$T/c.git" "$T/tree"
make tree repo="$T/tree"
make url repo="file://$T/c.git"
make here repo="$T/tree" branch=main
up tree >/dev/null
ask tree 'echo t >t; echo changed >a' >/dev/null
soon 20 git -C "$T/tree" rev-parse -q --verify courier/tree
is 'the branch arrives' "$(git -C "$T/tree" show courier/tree:t)" t
is 'the work tree is not touched' \
    "$(git -C "$T/tree" status --short; cat "$T/tree/a")" one
up here >/dev/null
ask here 'echo h >h' >/dev/null
r=$(kill_ here)
like 'a branch that is checked out gets one beside it' "$r" \
    'pushed main-[0-9a-f]{8}'
like 'the reason says why' "$r" 'checked out'
is 'main stays' "$(git -C "$T/tree" log -1 --format=%s main)" first
is 'the work is there' \
    "$(git -C "$T/tree" show "$(grep -oE 'main-[0-9a-f]{8}' <<<"$r" |
        head -1):h")" h
up url >/dev/null
ask url 'echo u >u' >/dev/null
like 'file://' "$(kill_ url)" 'pushed courier-url'
is 'arrives' "$(at c show courier-url:u)" u
is 'the box can only read it' \
    "$(ask tree "touch '$T/tree/evil' && echo wrote")" failed
no 'nothing was written' test -e "$T/tree/evil"
ctl tree kill >/dev/null

# ---- a linked work tree, a shallow clone; what can't be cloned says why ----
for n in 1 2; do
    git -C "$T/tree" -c user.name=x -c user.email=x@x commit -q \
        --allow-empty -m "more $n"
done
git -C "$T/tree" worktree add -q "$T/linked" -b side
git clone -q --depth=1 "file://$T/tree" "$T/shallow"
git clone -q -s "$T/tree" "$T/borrows"
git init -q --object-format=sha256 "$T/sha256"
mkdir "$T/fake"
cp "$T/linked/.git" "$T/fake"
sed -i 's/linked$/other/' "$T/fake/.git"
make linked repo="$T/linked"
make shallow repo="$T/shallow"
make borrows repo="$T/borrows"
make sha256 repo="$T/sha256"
make fake repo="$T/fake"
up linked >/dev/null
up shallow >/dev/null
ask linked 'git log --format=%s | head -n 1; echo 1 >l' >/dev/null
like 'a linked work tree is cloned' "$(cat "$S/linked/messages")" '^more 2'
like 'and the work comes back' "$(kill_ linked)" 'pushed courier/linked'
is 'to its repository' "$(git -C "$T/tree" show courier/linked:l)" 1
is 'what it begins from' "$(jq -r .git.base "$S/linked/info.json")" side
ask shallow 'echo 1 >l' >/dev/null
ask shallow 'echo 2 >l' >/dev/null
like 'a shallow clone takes it, too' "$(kill_ shallow)" 'pushed courier/shallow'
is 'all of it' "$(git -C "$T/shallow" show courier/shallow:l)" 2
like 'and its diff is of the work' "$(cat "$S/shallow/diff")" '^\+2'
unlike 'only' "$(cat "$S/shallow/diff")" 'b/a$'
is 'borrowed objects' "$(ended borrows)" error
like 'say so' "$(cat "$S/borrows/error")" 'local_bind can show them'
is 'a format that is not known' "$(ended sha256)" error
like 'says so at once' "$(cat "$S/sha256/error")" 'objectformat'
is 'a .git that names what is not its own' "$(ended fake)" error
for n in linked shallow; do
    git -C "$T/tree" worktree remove --force "$T/$n" 2>/dev/null
done

# ---- setup ----
printf 'A=from-env\n' >"$P/env"
make set 'setup="echo got $A >made; echo said; echo err >&2"'
make fail 'setup="echo out; echo broken pipe dream >&2; exit 3"'
up set >/dev/null
like 'setup runs in the clone' "$(cat "$S/set/setup.log")" '^said$'
like 'its exit code' "$(tail -n 1 "$S/set/setup.log")" 'exit code 0'
ask set 'cat made' >/dev/null
like 'with the environment' "$(cat "$S/set/messages")" '^got from-env'
is 'a setup that fails' "$(ended fail)" error
like 'ends in error with its words' "$(cat "$S/fail/error")" \
    'setup exited 3: broken pipe dream$'
is 'tried once' "$(grep -c '^out' "$S/fail/setup.log")" 1
ctl set kill >/dev/null

# ---- repositories that are not there, not readable, empty, headless ----
make gone repo="$T/nothing.git"
is 'no repository' "$(ended gone)" error
like 'says where' "$(cat "$S/gone/error")" 'nothing.git'
if [ -n "$root" ]; then
    remote closed
    chmod 700 "$T/closed.git"
    make closed repo="$T/closed.git"
    is 'one that the sandbox may not read' "$(ended closed)" error
    like 'says so' "$(cat "$S/closed/error")" 'may not read .*closed.git'
fi
git init -q --bare -b main "$T/empty.git"
make empty repo="$T/empty.git"
up empty >/dev/null
ask empty 'echo e >e' >/dev/null
like 'an empty repository' "$(kill_ empty)" 'pushed courier/empty'
is 'gets its first branch' "$(at empty show courier/empty:e)" e
remote headless
at headless update-ref --no-deref HEAD "$(at headless rev-parse main)"
make headless repo="$T/headless.git"
up headless >/dev/null
ask headless 'echo h >h' >/dev/null
like 'a detached HEAD at the remote' "$(kill_ headless)" \
    'pushed courier/headless'
for r in relative/path 'ext::sh -c touch%20/tmp/x' 'https://u:p@h/x' -x; do
    is "repo=$r is refused at once" "$(wr "$S/ctl" \
        "create bad tool=shell \"repo=$r\"
")" EINVAL
done

# ---- submodules ----
remote sub
git clone -q "$T/c.git" "$T/super"
(cd "$T/super" && git submodule -q add "$T/sub.git" lib 2>/dev/null &&
    git commit -qm sub && git push -q origin main)
make super repo="$T/c.git" network=off
up super >/dev/null
ask super 'echo 1 >own; ls lib' >/dev/null
like 'with a submodule' "$(kill_ super)" 'pushed courier-super'
is 'the link stays' "$(at c ls-tree courier-super lib | cut -c1-6)" 160000

# ---- when_done, killall ----
make done1 when_done=kill "prompt='echo q >q'"
is 'when_done = kill' "$(ended done1)" killed
like 'its reason' "$(cat "$S/done1/reason")" \
    'prompt done; pushed courier/done1'
is 'the work is there' "$(at r show courier/done1:q)" q
make all1 sync=end
make all2 sync=end
up all1 >/dev/null
up all2 >/dev/null
ask all1 'echo 1 >k' >/dev/null
ask all2 'echo 2 >k' >/dev/null
is killall "$(wr "$P/ctl" 'killall
')" OK
ended all1 >/dev/null
ended all2 >/dev/null
is 'saves one' "$(at r show courier/all1:k)" 1
is 'and the other' "$(at r show courier/all2:k)" 2
like 'each says how' "$(cat "$S/all2/reason")" '^killall; pushed courier/all2'

is 'no bundle stays behind' "$(find "$D/salvage" -name '*.bundle' |
    grep -vc "/$(jq -r .id "$S/off/info.json")/")" 0
