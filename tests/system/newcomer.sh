#!/bin/bash
# What a newcomer types: the commands of README.md's example, and those at the
# head of the mount's own README, as they stand there. Stand-ins: a script for
# Claude Code, a repository on this machine, a small GitHub.
. "$(dirname "$0")/../lib.sh"
export HOME=$T/home PATH=$BIN:$PATH TERM=xterm
unset XDG_DATA_HOME XDG_CONFIG_HOME
mkdir -p "$HOME" "$T/me" "$T/gh"
M=$HOME/courier P=$M/projects/web S=$P/sandboxes
D=$HOME/.local/share/courier
git config --global user.name New
git config --global user.email new@localhost
git init -q -b main "$T/seed"
git -C "$T/seed" commit -q --allow-empty -m one
git clone -q --bare "$T/seed" "$T/me/web.git"
python3 "$HERE/git/github.py" --state "$T/gh" --token ghp_... >"$T/url" 2>/dev/null &
disown
soon 20 test -s "$T/url" || bad 'the small GitHub does not start'

# the commands of README.md: $ at the head of an indented line
sed -n '/^## What it looks like/,/^## Why/s/^    \$ //p' "$HERE/../README.md" >"$T/cmds"
[ "$(wc -l <"$T/cmds")" -ge 12 ]
is 'README has commands' $? 0

# what can't be as it stands there
prepare() {
    # a daemon of root keeps its record elsewhere
    [ -z "$root" ] || export COURIER_DATA=$D
    sed -i "s|https://github.com/me/web|$T/me/web.git|
        s|^tail -f|timeout 5 tail -f|; s|^watch |timeout 3 watch |" "$T/cmds"
}
# after the mount is there: no model, but a script that works as one would
stand_ins() {
    cat >"$M/tools/claude" <<'END'
command = p=$(cat); echo "I see to it: $p"; echo "$p" >> login.c; git add -A; git commit -qm "Fix the login"
continue = p=$(cat); echo "And to that: $p"; echo "$p" >> logout.c; git add -A; git commit -qm "Fix the logout"
format = text
END
    sed -i '/^keys/d' "$M/tools/claude"
    echo "github_api = $(cat "$T/url")" >"$M/config"
    echo 'learn = off' >>"$M/config"
}
prepare
# one shell for them all, as `cd` must last; each command's output by itself
{
    n=0
    while read -r line; do
        n=$((n + 1))
        printf '{ %s\n} >%s/%02d.out 2>%s/%02d.err; echo $? >%s/%02d.rc\n' \
            "$line" "$T" $n "$T" $n "$T" $n
        case $line in *courierfs*) echo stand_ins ;; esac
    done <"$T/cmds"
} >"$T/all.sh"
export -f stand_ins
export T M
timeout 120 bash "$T/all.sh" </dev/null
is 'all of them' $? 0
cd / || exit 1
n=0
while read -r line; do
    n=$((n + 1))
    f=$T/$(printf %02d $n)
    case $line in
    timeout*) want=124 ;;
    grep*) want=1 ;; # none has failed
    *) want=0 ;;
    esac
    is "$line" "$(cat "$f.rc")" $want
    is "$line: says no error" "$(cat "$f.err")" ''
    case $line in
    *courierfs*) like 'mounted' "$(cat "$f.out")" \
        "^courier: mounted on $HOME/courier, data in $D, backend local \(no E2B key\)" ;;
    *tail*) like 'the conversation' "$(cat "$f.out")" '^I see to it: Fix the login bug, add a test' ;;
    *wait/done*) is 'the turn' "$(cat "$f.out")" completed ;;
    *wait/ok*) is 'the second turn' "$(cat "$f.out")" completed ;;
    *pr_url*) like 'a pull request' "$(tr '\n' ' ' <"$f.out")" '^created https?://.*/me/web/pull/1 ' ;;
    *seq*) is 'ten' "$(ls -d "$S"/try-* | wc -l)" 10 ;;
    *board*) like 'the board' "$(cat "$f.out")" 'try-10' ;;
    esac
done <"$T/cmds"
like 'the second message' "$(cat "$S/fix-login/messages")" 'And to that: And the same for logout'

# ---- what the mount's README says to try, as it stands ----
sed -n '/^Try this/,/^The tool shell/s/^    //p' "$M/README" |
    sed "s|/projects/web\$|/projects/try|" >"$T/try"
like 'there are commands' "$(wc -l <"$T/try")" '^1[0-2]$'
is 'they name this mount' "$(head -n 1 "$T/try")" "P=$M/projects/try"
timeout 60 bash -e "$T/try" >"$T/o" 2>"$T/e" </dev/null
is 'they work' "$?" 0
is 'without an error' "$(cat "$T/e")" ''
like 'the answer' "$(cat "$T/o")" '^Linux '
is 'in the trash' "$(ls "$M/projects/try/trash")" one

# ---- an agent whose program isn't there ----
printf 'command = no-such-claude -p\nformat = claude\nkeys = anthropic\n' >"$M/tools/claude"
echo 'create gone tool=claude prompt=Hello' >"$S/ctl"
is 'it fails' "$(timeout 60 cat "$S/gone/wait/done")" failed
like 'and says what to do' "$(cat "$S/gone/error")" \
    'no-such-claude: not found .no such program in the sandbox: set template, or local_path'
echo killall >"$M/ctl"
