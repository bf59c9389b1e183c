#!/bin/bash
# Whatever is refused says why, in words: one new line of errors, with the path
# of what it was about, in the project's errors as well; a command also in its
# ctl, a document in NAME.rejected.
. "$(dirname "$0")/../lib.sh"
start
mkdir "$M/projects/other"
mk one
mk two
mk off
echo kill >"$S/off/ctl"
wait_for off ended >/dev/null
echo pause >"$S/two/ctl"
wait_for two paused >/dev/null
mkdir "$S/draft"
printf '[step a]\ntool = shell\n' >"$P/workflows/w"

# refused WHAT PATH WORDS COMMAND...: the last line of errors is about PATH
refused() {
    local what=$1 path=$2 words=$3 before last
    shift 3
    before=$(cksum <"$M/errors")
    if "$@" >/dev/null 2>&1; then bad "$what: succeeded"; return; fi
    soon 5 sh -c "[ \"\$(cksum <$M/errors)\" != '$before' ]" ||
        { bad "$what: errors has no line"; return; }
    last=$(tail -n 1 "$M/errors")
    is "$what: its path" "$(cut -f 2 <<<"$last")" "$path"
    like "$what: its words" "$(cut -f 3 <<<"$last")" "$words"
    unlike "$what: said twice" "$(cut -f 3 <<<"$last")" '(^|: )([a-z]+): \2:'
    yes "$what: the path is one" test -e "$M/$(dirname "$path")"
    case $path in
    projects/web/*) is "$what: the project's errors" "$(tail -n 1 "$P/errors")" "$last" ;;
    esac
}
put() { printf '%b' "$2" >"$1"; }
w=projects/web s=$w/sandboxes

# names
refused 'a name' $s/.x 'only letters' mkdir "$S/.x"
refused 'a name at the root' projects/.x 'only letters' mkdir "$M/projects/.x"
refused 'mkdir' $w/x 'no directory' mkdir "$P/x"
refused 'mkdir at the root' x 'no directory' mkdir "$M/x"
refused 'mkdir in a sandbox' $s/one/x 'no directory' mkdir "$S/one/x"
refused 'mkdir of a run' $w/runs/x 'mkdir' mkdir "$P/runs/x"
refused 'a file' $s/x 'no file' put "$S/x" x
refused 'ln' $w/x 'symlink' ln -s a "$P/x"
refused 'ln in sandboxes' $s/x 'symlink' ln -s a "$S/x"
# objects
refused 'rmdir at work' $s/one 'end or pause it first' rmdir "$S/one"
refused 'rmdir of a project' $w 'live sandboxes' rmdir "$P"
refused 'mv to another' $s/off 'another' mv "$S/off" "$M/projects/other/sandboxes/"
refused 'mv out' $s/off 'moved there' mv "$S/off" "$P/off"
refused 'mv over one' $s/off 'there already|is there' \
    python3 -c 'import os, sys; os.rename(*sys.argv[1:])' "$S/off" "$S/draft"
refused 'mv of a view' $s/one/status 'renamed' mv "$S/one/status" "$S/one/x"
refused 'mv of ctl' $s/ctl 'renamed' mv "$S/ctl" "$S/x"
# commands
refused 'a verb' $s/one/ctl 'unknown command' put "$S/one/ctl" 'frob\n'
refused 'start' $s/off/ctl "^start: 'off' is killed: it has ended" put "$S/off/ctl" 'start\n'
refused 'exec' $s/draft/ctl "is a draft: start it first" put "$S/draft/ctl" 'exec id\n'
refused 'timeout' $s/two/ctl "is paused: resume it first" put "$S/two/ctl" 'timeout 1h\n'
refused 'several' $s/ctl "^pause one nope: there is no sandbox 'nope'" put "$S/ctl" 'pause one nope\n'
refused 'message to a paused one' $s/two/message "^'two' is paused: resume it first" put "$S/two/message" hi
like 'and in its ctl' "$(cat "$S/two/ctl")" "Z error message: 'two' is paused"
refused 'message to an ended one' $s/off/message "^'off' is killed" put "$S/off/message" hi
refused 'a message too long' $s/one/message '1 MiB' sh -c "head -c 1100000 /dev/zero | tr '\0' x >$S/one/message"
refused 'a run' $w/runs/ctl "no workflow 'no'" put "$P/runs/ctl" 'create workflow=no\n'
refused 'expires' $s/one/expires '1m to 4h' touch -d '+9 hours' "$S/one/expires"
refused 'expires of an ended one' $s/off/expires 'has ended' put "$S/off/expires" '1h\n'
refused 'learnings' $w/learnings/ctl 'unknown command' put "$P/learnings/ctl" 'frob\n'
refused 'root' ctl 'unknown command' put "$M/ctl" 'frob\n'
# documents
refused 'a key' $w/config "unknown key 'tol'" put "$P/config" 'tol = shell\n'
like 'beside it' "$(cat "$P/config.rejected")" "unknown key 'tol'"
refused 'a state' $s/one/config "tool can't be changed after the start" put "$S/one/config" 'tool = pi\n'
like 'beside it, the newest' "$(cat "$S/one/config.rejected")" "tool can't be changed"
is 'with the text' "$(tail -n 1 "$S/one/config.rejected")" 'tool = pi'
refused 'the prompt' $s/one/prompt 'start' put "$S/one/prompt" x
refused 'a workflow' $w/workflows/w 'line 2' put "$P/workflows/w" '[step a]\nx = 1\n'
refused 'a key of nothing' keys/no 'keys are' put "$M/keys/no" x
refused 'versions' $w/learnings/versions/9.md '.' put "$P/learnings/versions/9.md" x
# what a VM doesn't have is told by the errno alone
echo killall >"$M/ctl"
for n in one two; do wait_for $n ended >/dev/null; done
refused 'twice' $s/one/ctl "has ended" put "$S/one/ctl" 'resume\n'
# one that is being ended
mk last
echo 'sleep 30' >"$S/last/message"
echo kill >"$S/last/ctl"
if ! rmdir "$S/last" 2>/dev/null; then
    soon 5 grep -q "'last' is being ended" "$P/errors" || bad 'being ended'
    ok
fi
wait_for last ended >/dev/null
yes 'rmdir after wait/ended' rmdir "$S/last"
