#!/bin/bash
# Every verb in every state: the table of 7.1, row by row, through the
# sandbox's own ctl and through sandboxes/ctl. A refused verb is EBUSY and
# changes nothing of the record; one that is so already is ok and changes
# nothing; the others do what they say.
cd "$(dirname "$0")/../.." && . tests/lib.sh || exit 2

# one write without a process: OK or the errno's name
w() {
    local e
    if e=$({ printf '%s' "$2" >"$1"; } 2>&1); then
        echo OK
    else
        case $e in
        *"Device or resource busy"*) echo EBUSY ;;
        *"Invalid argument"*) echo EINVAL ;;
        *"No such file"*) echo ENOENT ;;
        *"not permitted"*) echo EPERM ;;
        *"File exists"*) echo EEXIST ;;
        *"Permission denied"*) echo EACCES ;;
        *) echo "${e##*: }" ;;
        esac
    fi
}
# at STATE: the directory of a sandbox in that state
declare -A at
record() {
    cat "$1/info.json" "$1/events" "$1/messages" "$1/config" "$1/expires"
}
gone() { [ ! -e "$1" ]; }

# refused STATE VERB...: EBUSY, and nothing has changed
refused() {
    local d=${at[$1]} v before
    before=$(record "$d")
    for v in "${@:2}"; do
        is "$1: $v" "$(w "$d/ctl" "$v"$'\n')" EBUSY
        like "$1: $v is told in ctl" "$(grep -v '^# [a-z]' "$d/ctl" | tail -n 2)" \
            "error ${v%% *}.*: .*'${d##*/}' is "
    done
    is "$1: nothing has changed" "$(record "$d")" "$before"
}
# already STATE VERB...: ok, and nothing has changed
already() {
    local d=${at[$1]} v before
    before=$(record "$d")
    for v in "${@:2}"; do
        is "$1: $v" "$(w "$d/ctl" "$v"$'\n')" OK
    done
    is "$1: nothing has changed" "$(record "$d")" "$before"
}
status() { cat "$1/status" 2>/dev/null; }
stat_is() { [ "$(status "$1")" = "$2" ]; }
# does STATE-OF-DIR DIR VERB: accepted
does() { is "$1: $3" "$(w "$2/ctl" "$3"$'\n')" OK; }

git init -q -b main "$T/repo"
echo hello >"$T/repo/f"
git -C "$T/repo" add f
git -C "$T/repo" -c user.name=t -c user.email=t@localhost commit -qm one
git clone -q --bare "$T/repo" "$T/r.git"

start
all=(start 'message x' interrupt 'interrupt all' pause resume 'timeout 10m'
    kill 'kill now' push pr learn 'exec true' delete restore purge 'purge now')

### how each state is reached
for n in run run2 pau pau2 pau3 pau4 kil kil2 kil3; do
    is "create $n" "$(w "$S/ctl" "create name=$n tool=shell"$'\n')" OK
done
is "create with a repository" "$(w "$S/ctl" "create name=rep tool=shell pr=off repo=$T/r.git"$'\n')" OK
is "create one that fails" "$(w "$S/ctl" $'create name=err tool=shell repo=/nowhere/at/all\n')" OK
for n in run run2 pau pau2 pau3 pau4 kil kil2 kil3; do
    is "$n runs" "$(wait_for $n running)" running
done
for n in pau pau2 pau3 pau4; do w "$S/$n/ctl" $'pause\n' >/dev/null; done
for n in kil kil2 kil3; do w "$S/$n/ctl" $'kill now\n' >/dev/null; done
for n in pau pau2 pau3 pau4; do is "$n is paused" "$(wait_for $n paused)" paused; done
for n in kil kil2 kil3; do is "$n is killed" "$(wait_for $n ended)" killed; done
is "err is error" "$(wait_for err ended)" error
like "and says why" "$(cat "$S/err/reason")" nowhere
is "rep runs" "$(wait_for rep running)" running
mkdir "$S/dra" "$S/dra2" "$S/dra3" "$S/tdra"
at[draft]=$S/dra at[running]=$S/run at[paused]=$S/pau at[killed]=$S/kil at[error]=$S/err

### draft
refused draft 'message x' 'message <<' interrupt 'interrupt all' pause resume \
    'timeout 10m' push pr learn 'exec true' 'exec <<' restore purge 'purge now'
is "draft: message" "$(w "$S/dra/message" x)" EBUSY
does draft "$S/dra2" kill
yes "draft: kill discards it" gone "$S/dra2"
yes "and not to the trash" gone "$P/trash/dra2"
does draft "$S/dra3" 'kill now'
yes "draft: kill now discards it" gone "$S/dra3"
does draft "$S/tdra" delete
yes "draft: delete" test -d "$P/trash/tdra"

### running
at[running]=$S/run
refused running delete restore purge 'purge now'
is "running: rmdir" "$(eno rmdir "$S/run")" EBUSY
is "running: mv to the trash" "$(eno rename "$S/run" "$P/trash/run")" EBUSY
already running start resume
is "running: message" "$(w "$S/run/ctl" $'message echo one-$((1+1))\n')" OK
is "running: message <<" "$(w "$S/run/ctl" $'message <<\necho two-$((1+1))\n')" OK
is "running: file message" "$(w "$S/run/message" 'echo three-$((1+1))')" OK
is "running: all are done" "$(wait_for run done)" completed
is "in the order written" "$(grep -xE '(one|two|three)-2' "$S/run/messages" | xargs)" \
    "one-2 two-2 three-2"
is "running: interrupt of nothing" "$(w "$S/run/ctl" $'interrupt\n')" OK
does running "$S/run" 'timeout 10m'
t=$(($(date -d "$(cat "$S/run/expires")" +%s) - $(date +%s)))
yes "running: timeout, from now ($t)" test "$t" -ge 590 -a "$t" -le 600
is "and its mtime" "$(stat -c %Y "$S/run/expires")" "$(date -d "$(cat "$S/run/expires")" +%s)"
does running "$S/run" 'exec echo from-exec'
yes "running: exec" soon 20 grep -q from-exec "$S/run/exec/1/stdout"
is "running: exec <<" "$(w "$S/run/ctl" $'exec <<\necho more-exec\n')" OK
yes "running: exec << does" soon 20 grep -q more-exec "$S/run/exec/2/stdout"
is "push without a repository" "$(w "$S/run/ctl" $'push\n')" EINVAL
does running "$S/run" learn
does running "$S/rep" push
does running "$S/rep" pr
does running "$S/rep" 'pr title="two words"'
does running "$S/run" pause
is "running: pause" "$(wait_for run paused)" paused
does paused "$S/run" resume
is "paused: resume" "$(wait_for run running)" running
does running "$S/run" kill
is "running: kill" "$(wait_for run ended)" killed
does running "$S/run2" 'kill now'
is "running: kill now" "$(wait_for run2 ended)" killed
is "the reason" "$(cat "$S/run2/reason")" "killed by user"

### paused
refused paused start 'message x' 'message <<' interrupt 'interrupt all' \
    'timeout 10m' push pr learn 'exec true' 'exec <<' restore purge 'purge now'
is "paused: message" "$(w "$S/pau/message" x)" EBUSY
is "paused: touch expires" "$(eno utime "$S/pau/expires")" EBUSY
is "paused: expires is empty" "$(cat "$S/pau/expires")" ""
already paused pause
does paused "$S/pau2" kill
is "paused: kill" "$(wait_for pau2 ended)" killed
does paused "$S/pau3" 'kill now'
is "paused: kill now" "$(wait_for pau3 ended)" killed
does paused "$S/pau4" delete
yes "paused: delete" stat_is "$P/trash/pau4" paused

### killed and error
for st in killed error; do
    refused $st start 'message x' 'message <<' interrupt 'interrupt all' pause resume \
        'timeout 10m' push 'exec true' 'exec <<' restore purge 'purge now'
    is "$st: message" "$(w "${at[$st]}/message" x)" EBUSY
    is "$st: rmdir of trash" "$(eno rmdir "$P/trash")" EPERM
    already $st kill 'kill now'
done
is "error: expires" "$(w "$S/err/expires" $'30m\n')" EBUSY
does killed "$S/kil" learn
does error "$S/err" learn
does error "$S/err" pr
does killed "$S/kil2" delete
yes "killed: delete" stat_is "$P/trash/kil2" killed
is "killed: rmdir" "$(eno rmdir "$S/kil3")" OK

### trash: of a draft, a killed and a paused one
for n in tdra kil2 pau4; do
    at[trash]=$P/trash/$n
    refused trash start 'message x' 'message <<' interrupt 'interrupt all' pause \
        resume 'timeout 10m' kill 'kill now' push pr learn 'exec true' 'exec <<'
    is "trash $n: message" "$(w "$P/trash/$n/message" x)" EBUSY
    already trash delete
done
does trash "$P/trash/tdra" restore
is "restored draft" "$(status "$S/tdra")" draft
does trash "$P/trash/kil2" restore
is "restored" "$(status "$S/kil2")" killed
does trash "$P/trash/kil3" purge
yes "purged" soon 10 gone "$P/trash/kil3"
does trash "$P/trash/pau4" restore
is "restored paused" "$(status "$S/pau4")" paused
does paused "$S/pau4" resume
is "and can be resumed" "$(wait_for pau4 running)" running
does running "$S/pau4" pause
is "paused again" "$(wait_for pau4 paused)" paused
does paused "$S/pau4" delete
does trash "$P/trash/pau4" purge
yes "purged with its VM" soon 60 gone "$P/trash/pau4"
does paused "$S/pau" delete
does trash "$P/trash/pau" 'purge now'
yes "purged now with its VM" soon 30 gone "$P/trash/pau"

### creating: max_active holds them there
is "rep pushes" "$(wait_for rep done)" completed
w "$S/rep/ctl" $'kill now\n' >/dev/null
is "rep is ended" "$(wait_for rep ended)" killed
mk one
echo 'max_active = 1' >"$M/config"
for n in cre cre2 cre3; do
    is "create $n" "$(w "$S/ctl" "create name=$n tool=shell"$'\n')" OK
done
like "it says what it waits for" "$(sleep 0.2; cat "$S/cre/reason")" max_active
at[creating]=$S/cre
refused creating pause resume push pr learn 'exec true' 'exec <<' delete restore \
    purge 'purge now'
already creating start interrupt 'interrupt all'
is "creating: message" "$(w "$S/cre/ctl" $'message echo first-$((1+1))\n')" OK
is "creating: file message" "$(w "$S/cre/message" 'echo second-$((1+1))')" OK
does creating "$S/cre" 'timeout 20m'
does creating "$S/cre2" kill
is "creating: kill" "$(wait_for cre2 ended)" killed
does creating "$S/cre3" 'kill now'
is "creating: kill now" "$(wait_for cre3 ended)" killed
is "it never ran" "$(jq -r .times.running "$S/cre3/info.json")" null
is "active is one" "$(val "$P/status" active)" 1
w "$S/one/ctl" $'kill now\n' >/dev/null
is "room: it runs" "$(wait_for cre running)" running
is "its messages are done" "$(wait_for cre done)" completed
is "in order" "$(grep -xE '(first|second)-2' "$S/cre/messages" | xargs)" "first-2 second-2"
t=$(($(date -d "$(cat "$S/cre/expires")" +%s) - $(date +%s)))
yes "with the timeout set before ($t)" test "$t" -ge 1100 -a "$t" -le 1200
wr "$M/config" "" >/dev/null

### the same by name, all or none
mkdir "$S/n1" "$S/n2" "$S/n3"
is "pause drafts" "$(w "$S/ctl" $'pause n1 n2\n')" EBUSY
is "delete, one name unknown" "$(w "$S/ctl" $'delete n1 nobody n2\n')" ENOENT
yes "none is deleted" test -d "$S/n1"
is "delete two" "$(w "$S/ctl" $'delete n1 n2\n')" OK
yes "both are" test ! -e "$S/n1" -a ! -e "$S/n2"
is "restore two" "$(w "$S/ctl" $'restore n1 n2\n')" OK
yes "both are back" test -d "$S/n1" -a -d "$S/n2"
is "restore what is not there" "$(w "$S/ctl" $'restore n1\n')" ENOENT
is "delete again" "$(w "$S/ctl" $'delete n1 n2\n')" OK
is "purge two" "$(w "$S/ctl" $'purge n1 n2\n')" OK
yes "both are gone" test ! -e "$P/trash/n1" -a ! -e "$P/trash/n2"
is "no name" "$(w "$S/ctl" $'kill\n')" EINVAL
for v in "${all[@]}"; do
    case $v in start | kill* | pause | resume | delete | restore | purge*) ;; *)
        is "sandboxes/ctl: $v" "$(w "$S/ctl" "$v n3"$'\n')" EINVAL ;;
    esac
done
is "start by name" "$(w "$S/ctl" $'start n3\n')" OK
is "n3 runs" "$(wait_for n3 running)" running
mk n4
is "pause two" "$(w "$S/ctl" $'pause n3 n4\n')" OK
is "n3" "$(wait_for n3 paused)" paused
is "n4" "$(wait_for n4 paused)" paused
is "resume two" "$(w "$S/ctl" $'resume n3 n4\n')" OK
is "n3" "$(wait_for n3 running)" running
is "n4" "$(wait_for n4 running)" running

### control is in order among itself
is "pause resume pause" "$(w "$S/n3/ctl" $'pause\nresume\npause\n')" OK
is "pause and a timeout" "$(w "$S/n4/ctl" $'pause\ntimeout 2h\n')" OK
is "n4 is paused" "$(wait_for n4 paused)" paused
yes "no job is left" soon 20 grep -qx 'jobs 0' "$M/status"
is "the last pause counts" "$(status "$S/n3")" paused
is "resume pause resume" "$(w "$S/n3/ctl" $'resume\npause\nresume\n')" OK
yes "no job is left" soon 20 grep -qx 'jobs 0' "$M/status"
is "the last resume counts" "$(status "$S/n3")" running

### a kill is final at once
is "kill with work waiting" "$(w "$S/n3/ctl" $'message sleep 600\nmessage echo never-$((1+1))\nkill\n')" OK
is "it ends" "$(wait_for n3 ended)" killed
no "the second was never done" grep -q never-2 "$S/n3/messages"
is "told as not delivered" "$(grep -c 'not delivered: sandbox ended' "$S/n3/messages")" "$(
    grep -q 'sleep 600' "$S/n3/messages" && grep -c 'not delivered' "$S/n3/messages")"
like "the last one is" "$(tail -n 2 "$S/n3/messages")" "#[0-9]+ error  not delivered: sandbox ended"
is "killall" "$(w "$M/ctl" $'killall\n')" OK
for n in cre n4; do is "$n ends" "$(wait_for $n ended)" killed; done
is "the reason" "$(cat "$S/cre/reason")" killall
is "nothing is active" "$(val "$P/status" active)" 0
is "local.env names no VM without record" "$(val "$P/status" running)" 0
