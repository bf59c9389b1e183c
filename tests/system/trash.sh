#!/bin/bash
# The trash (§4-§6): rmdir, mv, .2, restore under another name, purge; of
# sandboxes and projects; by-status; renames.
cd "$(dirname "$0")/../.." && . tests/lib.sh || exit 2
start
here() { ls "$1" | grep -vx ctl | sort | xargs; }
active() { val "$P/status" active; }

mkdir "$S/a" "$S/b" "$S/c"
echo 'echo hi' >"$S/a/prompt"
is "rmdir" "$(eno rmdir "$S/a")" OK
no "hidden" test -e "$S/a"
is "not listed" "$(here "$S")" "b c"
is "not counted" "$(val "$P/status" draft)" 2
is "not by status" "$(here "$P/by-status/draft")" "b c"
unlike "not on the board" "$(cat "$M/board")" $'\ta\t'
is "in the trash" "$(ls "$P/trash")" a
is "whole" "$(cat "$P/trash/a/prompt")" "echo hi"
yes "with its ctl" test -f "$P/trash/a/ctl"
is "and its status" "$(cat "$P/trash/a/status")" draft
is "its name is free" "$(eno mkdir "$S/a")" OK
is "a second deletion" "$(eno rmdir "$S/a")" OK
is "is NAME.2" "$(ls "$P/trash" | xargs)" "a a.2"
mkdir "$S/a"
is "a third" "$(eno rename "$S/a" "$P/trash/a")" OK
is "is NAME.3" "$(ls "$P/trash" | xargs)" "a a.2 a.3"
mkdir "$S/a"
is "restore of a taken name" "$(eno rename "$P/trash/a" "$S/a")" EEXIST
is "by ctl, too" "$(wr "$P/trash/a/ctl" $'restore\n')" EEXIST
like "in words" "$(cat "$P/trash/a/ctl")" "error restore: .*'a'"
is "restore under another name" "$(eno rename "$P/trash/a" "$S/other")" OK
is "it is the first" "$(cat "$S/other/prompt")" "echo hi"
is "restore of NAME.2 by mv" "$(eno rename "$P/trash/a.2" "$S/a.2")" OK
is "rmdir of it" "$(eno rmdir "$S/a")" OK
is "restore by ctl" "$(wr "$P/trash/a/ctl" $'restore\n')" OK
yes "a is back" test -d "$S/a"
is "purge" "$(eno rmdir "$P/trash/a.3")" OK
is "the trash is empty" "$(ls "$P/trash")" ""
is "names that aren't there" "$(eno rmdir "$S/nobody")$(eno rmdir "$P/trash/nobody")$(eno rename "$S/nobody" "$S/x")" ENOENTENOENTENOENT
is "mkdir in the trash" "$(eno mkdir "$P/trash/x")" EPERM
is "a file in the trash" "$(wr "$P/trash/x" x)" EPERM

### renames
is "mv" "$(eno rename "$S/b" "$S/bb")" OK
is "the new name" "$(here "$S")" "a a.2 bb c other"
is "events tell it" "$(grep -c '"sandbox":"bb"' "$M/events" | sed 's/^[1-9].*/some/')" some
is "over another" "$(eno rename "$S/bb" "$S/c")" EEXIST
is "mv -T over another" "$(mv -T "$S/bb" "$S/c" 2>/dev/null; echo $?)" 1
is "to a bad name" "$(eno rename "$S/bb" "$S/x.lock")" EINVAL
is "to itself" "$(eno rename "$S/bb" "$S/bb")" OK
mkdir "$M/projects/two"
is "between projects" "$(eno rename "$S/bb" "$M/projects/two/sandboxes/bb")" EPERM
is "to another's trash" "$(eno rename "$S/bb" "$M/projects/two/trash/bb")" EPERM
is "into by-status" "$(eno rename "$S/bb" "$P/by-status/draft/nn")" EPERM
is "to nowhere" "$(eno rename "$S/bb" "$M/bb")" EPERM
is "out of the mount" "$(mv "$S/bb" "$T/" 2>/dev/null; [ -d "$S/bb" ] && echo there)" there
rm -rf "$T/bb"

### rm -r loses nothing
rm -rf "$S/bb" 2>"$T/e"
is "rm -r stops" "$(grep -c 'not permitted' "$T/e" | sed 's/^[1-9].*/some/')" some
yes "the sandbox is there" test -d "$S/bb" -o -d "$P/trash/bb"
is "its record is there" "$(cat "$S/bb/status" "$P/trash/bb/status" 2>/dev/null)" draft

### living ones
mk l
is "rmdir of a running one" "$(eno rmdir "$S/l")" EBUSY
is "active" "$(active)" 1
like "told in words" "$(tail -n 1 "$M/errors")" "'l'"
is "by status" "$(here "$P/by-status/running")" l
is "its link" "$(readlink "$P/by-status/running/l")" "../../sandboxes/l"
yes "leads there" test "$(cat "$P/by-status/running/l/status")" = running
is "all six" "$(ls "$P/by-status" | xargs)" "creating draft error killed paused running"
is "rename of a running one" "$(eno rename "$S/l" "$S/l2")" OK
is "goes on" "$(ask l2 'echo renamed-$((1+1))')" completed
is "by status, renamed" "$(here "$P/by-status/running")" l2
wr "$S/l2/ctl" $'pause\n' >/dev/null
is "paused" "$(wait_for l2 paused)" paused
is "rmdir of a paused one" "$(eno rmdir "$S/l2")" OK
is "nothing is paused" "$(val "$P/status" paused)" 0
is "restored" "$(eno rename "$P/trash/l2" "$S/l3")" OK
is "paused" "$(val "$P/status" paused)" 1
is "it can be resumed" "$(wr "$S/l3/ctl" $'resume\n')" OK
is "and runs" "$(wait_for l3 running)" running
is "with its history" "$(grep -c '^renamed-2' "$S/l3/messages")" 1

### projects
is "rmdir of a project at work" "$(eno rmdir "$P")" EBUSY
like "in words" "$(tail -n 1 "$M/errors")" "web|live|running"
wr "$P/ctl" $'killall\n' >/dev/null
is "l3 ends" "$(wait_for l3 ended)" killed
is "now it goes" "$(eno rmdir "$P")" OK
is "in the trash" "$(ls "$M/trash")" web
is "not in projects" "$(ls "$M/projects")" two
is "whole" "$(cat "$M/trash/web/sandboxes/l3/status")" killed
is "mkdir of that name" "$(eno mkdir "$P")" OK
is "empty" "$(here "$S")" ""
is "deleted, too" "$(eno rmdir "$P")" OK
is "is NAME.2" "$(ls "$M/trash" | xargs)" "web web.2"
is "back under another name" "$(eno rename "$M/trash/web" "$M/projects/three")" OK
is "with its sandboxes" "$(cat "$M/projects/three/sandboxes/other/prompt")" "echo hi"
is "renamed" "$(eno rename "$M/projects/three" "$M/projects/web")" OK
is "two names" "$(ls "$M/projects" | xargs)" "two web"
is "purge of a project" "$(eno rmdir "$M/trash/web.2")" OK
is "trash is empty" "$(ls "$M/trash")" ""
is "not of the root" "$(eno rmdir "$M/projects")" EPERM
is "events" "$(jq -r .event "$M/events" | sort -u | grep -xE 'created|deleted|restored|purged' | xargs)" "created deleted purged restored"

### it all holds after a restart
mkdir "$S/z" && rmdir "$S/z"
wr "$M/ctl" $'shutdown\n' >/dev/null
unmounted() { ! mountpoint -q "$M"; }
yes "ended" soon 20 unmounted
yes "started" mount_
is "in the trash still" "$(ls "$P/trash")" z
is "the others, too" "$(here "$S")" "$(here "$S")"
