#!/bin/bash
# Hostile repositories and agents: nothing of theirs runs on the host, nothing
# of the host comes out, and what they say about themselves is checked.
set -u
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/repo.bash"
start
evil="touch $T/pwned"
remote r
at r config receive.denyCurrentBranch ignore

# ---- a repository of this machine whose settings and hooks are traps ----
git clone -q "$T/r.git" "$T/trap"
for h in pre-receive update post-receive post-update reference-transaction \
    post-checkout pre-commit post-commit pre-push push-to-checkout \
    proc-receive fsmonitor-watchman pre-auto-gc post-index-change; do
    printf '#!/bin/sh\n%s-%s\n' "$evil" $h >"$T/trap/.git/hooks/$h"
    chmod +x "$T/trap/.git/hooks/$h"
done
(cd "$T/trap" && printf '* filter=evil diff=evil merge=evil\n' >.gitattributes &&
    echo t >t && git -c core.hooksPath=/dev/null add . &&
    git -c core.hooksPath=/dev/null commit -qm traps &&
    git config filter.evil.clean "$evil-clean" &&
    git config filter.evil.smudge "$evil-smudge" &&
    git config filter.evil.process "$evil-process" &&
    git config diff.evil.textconv "$evil-textconv" &&
    git config diff.evil.command "$evil-diff" &&
    git config diff.external "$evil-external" &&
    git config merge.evil.driver "$evil-merge" &&
    git config core.fsmonitor "$evil-fsmonitor" &&
    git config core.sshCommand "$evil-ssh" &&
    git config core.pager "$evil-pager" &&
    git config core.editor "$evil-editor" &&
    git config gpg.program "$evil-gpg" &&
    git config commit.gpgSign true &&
    git config credential.helper "!$evil-credential" &&
    git config uploadpack.packObjectsHook "$evil-pack" &&
    git config core.alternateRefsCommand "$evil-alternate" &&
    git config remote.origin.uploadpack "$evil-upload" &&
    git config include.path "$T/include")
printf '[core]\n\thooksPath = %s/trap/.git/hooks\n' "$T" >"$T/include"
rm -f "$T"/pwned*
make trap repo="$T/trap" "prompt='echo 1 >f; echo 2 >>t'"
up trap >/dev/null
is 'a repository of traps works' "$(timeout 60 cat "$S/trap/wait/done")" \
    completed
soon 20 grep -q '^+' "$S/trap/diff"
like 'its diff' "$(cat "$S/trap/diff")" '^\+1'
ctl trap 'pr title=x' >/dev/null
like 'its end' "$(kill_ trap)" '(pushed|work is on) courier/trap'
is 'nothing of it ran here' "$(ls "$T" | grep pwned)" ''
is 'the branch has it' "$(git -C "$T/trap" -c core.fsmonitor=false \
    cat-file -p courier/trap:f)" 1

# ---- names that a shell would love ----
printf 'repo = %s\nsync = end\n' "$T/r.git" >"$P/config"
make names
up names >/dev/null
ask names "for b in 'a;touch \$HOME/x' '\$(touch\${IFS}x)' '\`id\`' \"q'q\" \\
'a|b' 'a&b' '\$HOME' '!x' '#y' '(z)' '-n' 'ünïcode' 'a\"b' '%s%n'; do
git branch -- \"\$b\" 2>/dev/null && git checkout -q \"\$b\" -- 2>/dev/null &&
git commit -q --allow-empty -m \"on \$b\"; done; git branch | cat
git checkout -q courier/names; echo 1 >f" >/dev/null
r=$(kill_ names)
like 'branches with shell characters' "$r" 'pushed courier/names'
is 'nothing ran' "$(ls "$T" | grep -c pwned)" 0
is 'one line' "$(wc -l <"$S/names/reason")" 1
like 'they arrive by their names' "$(at r branch --format='%(refname:short)')" \
    '^\$\(touch\$\{IFS\}x\)$'

# ---- an agent that prepares what courier will run in there ----
make agent
make courierdir
make liar
make dirs
up agent >/dev/null
ask agent 'git config core.hooksPath .hooks; mkdir .hooks
for h in pre-commit commit-msg pre-push post-commit; do
printf "#!/bin/sh\necho ran >>~/ran\nexit 1\n" >.hooks/$h; chmod +x .hooks/$h
done
echo "* filter=x" >.gitattributes; git config filter.x.clean "false"
git config filter.x.required true; git config core.fsmonitor "sleep 99"
git config commit.gpgSign true; git config gpg.program false
git config alias.push "!false"; git config alias.commit "!false"
git config core.editor "sleep 99"; git config user.useConfigOnly true
echo "echo aliased; exit 1" >>~/.bashrc; echo "exit 1" >>~/.profile
echo 1 >f' >/dev/null
r=$(kill_ agent)
like 'settings that break git: the work is somewhere' "$r" \
    'pushed courier/agent|work is in salvage/'
w=$(at r show courier/agent:f 2>/dev/null ||
    grep -ah "^+1" "$S/agent/salvage/worktree.patch" 2>/dev/null ||
    tar xOf "$S/agent/salvage/untracked.tar" f)
like 'whole' "$w" '^\+?1$'

up courierdir >/dev/null
ask courierdir 'rm -rf ~/.courier; ln -s /etc ~/.courier
git remote set-url origin /nowhere; echo 1 >f; git add f; git commit -qm f' \
    >/dev/null
r=$(kill_ courierdir)
like 'a link in the place of our directory' "$r" \
    'salvage/ \(commits.bundle\)|pushed courier/courierdir|not saved'
is 'nothing but regular files came' \
    "$(find "$D/salvage" ! -type f ! -type d)" ''

up liar >/dev/null
ask liar 'mkdir -p ~/project/../x; cd ~/x; git init -q
git config user.name x; git config user.email x
printf "%s\n" "x	/home/user/project	pushed	main 123456789012" >"$(printf "a\nb")"
mkdir "$(printf "t\tab")" "$(printf "new\nline")" "$(printf "esc\033[2J")"
for d in t* new* esc*; do (cd "$d" && git init -q && echo "$d" >in &&
git add in && git -c user.name=x -c user.email=x commit -qm in); done
git add "$(printf "a\nb")"; git commit -qm lies' >/dev/null
r=$(kill_ liar)
is 'directories with odd names: one line' "$(wc -l <"$S/liar/reason")" 1
unlike 'no escape sequence' "$r" $'\x1b'
like 'each came home' "$(ls "$S/liar/salvage" | tr '\n' ' ')" \
    'x-commits.bundle .*x-esc.*x-new.*x-t-ab-commits.bundle'

up dirs >/dev/null
ask dirs 'rm -rf .git; echo "gitdir: /etc" >.git; mkdir ~/l
ln -s /etc ~/l/.git; mkdir ~/m; mkfifo ~/m/.git; mkdir ~/n
ln -s / ~/n/root; cd ~/n; git init -q; mkfifo pipe; echo 1 >f' >/dev/null
r=$(kill_ dirs)
is 'what looks like a repository and is none' "$(cat "$S/dirs/status")" killed
no 'nothing of /etc comes out' sh -c \
    "cat '$S/dirs/salvage/'* | grep -aq root:x:"
is 'main was never touched' "$(tip r main)" first

# ---- an agent that says it has pushed: over a remote that can be asked ----
mkdir "$T/srv"
remote h
mv "$T/h.git" "$T/srv"
git -C "$T/srv/h.git" config http.receivepack true
python3 "$HERE/git/smart-http" --root "$T/srv" >"$T/url" 2>/dev/null &
soon 20 test -s "$T/url"
make fake "repo=$(cat "$T/url")/h.git" network=host pr=off
up fake >/dev/null
ask fake 'git config remote.origin.pushurl ~/copy.git
git init -q --bare ~/copy.git; echo 1 >f; git add f; git commit -qm f' \
    >/dev/null
r=$(kill_ fake)
like 'a push that went elsewhere' "$r" \
    'the remote does not have what was pushed.*salvage/ \(commits.bundle\)|pushed courier/fake'
if [[ $r == *'pushed courier/fake'* ]]; then
    is 'arrived' "$(git -C "$T/srv/h.git" show courier/fake:f)" 1
else
    yes 'the bundle has it' git -C "$T/srv/h.git" fetch -q \
        "$S/fake/salvage/commits.bundle" courier/fake
fi
