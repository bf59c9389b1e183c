#!/bin/bash
# Keys and secrets (§9): set, shown, deleted; which level wins; where the
# plain text must not be: logs, errors, events, arguments, environments, the
# database.
cd "$(dirname "$0")/../.." && . tests/lib.sh || exit 2
start
K=sk-proj-KEYKEY0123456789abcdWXYZ
G=ghp_TOKTOK0123456789abcdefABCD

is "set" "$(wr "$M/keys/openai" "  $K "$'\n')" OK
is "read" "$(cat "$M/keys/openai")" "****WXYZ"
is "its size" "$(stat -c %s "$M/keys/openai")" "$(wc -c <"$M/keys/openai")"
is "listed" "$(ls "$M/keys")" openai
is "a short one" "$(wr "$M/keys/github" short)" OK
is "shows nothing" "$(cat "$M/keys/github")" "****"
is "set over" "$(wr "$M/keys/github" "$G")" OK
is "read" "$(cat "$M/keys/github")" "****ABCD"
is "the project's" "$(wr "$P/keys/openai" "$K-project-PPPP")" OK
is "read" "$(cat "$P/keys/openai")" "****PPPP"
is "another name" "$(wr "$M/keys/azure" x)" EINVAL
is "an empty one" "$(wr "$M/keys/anthropic" $'  \n')" EINVAL
is "two lines" "$(wr "$M/keys/anthropic" $'one\ntwo\n')" EINVAL
no "isn't there" test -e "$M/keys/anthropic"
is "a secret" "$(wr "$P/secrets/DB_PASS" "hunter2-the-password-SECR")" OK
unlike "never readable" "$(cat "$P/secrets/DB_PASS")" 'hunter2|password'
cp -r "$M" "$T/all" 2>/dev/null
is "a copy of it all has none" "$(grep -rlE 'KEYKEY|TOKTOK|hunter2' "$T/all" | wc -l)" 0

# used: in the VM's environment, nowhere else
mk a
is "the secret is in the environment" "$(ask a 'echo "[${DB_PASS}]" | tr a-z A-Z')" completed
like "of the agent" "$(cat "$S/a/messages")" 'HUNTER2-THE-PASSWORD'
none() { # none WHAT FILES...
    is "no key in $1" "$(grep -lE 'KEYKEY|TOKTOK|hunter2' "${@:2}" 2>/dev/null | head -n 3)" ""
}
none "errors" "$M/errors" "$P/errors"
none "events" "$M/events" "$P/events" "$S/a/events"
none "info.json" "$S/a/info.json" "$M/status" "$S/a/setup.log"
none "the log" "$D/log"
none "the database" "$D"/*.db "$D"/*.db-wal
for p in $(pid) $(pgrep -f "courier-sandboxd .*$T/") $(pgrep -f "bwrap .*$T/"); do
    is "no key in the arguments of $(cat "/proc/$p/comm" 2>/dev/null)" "$(tr '\0' '\n' <"/proc/$p/cmdline" | grep -cE 'KEYKEY|TOKTOK|hunter2')" 0
    is "nor the environment" "$(tr '\0' '\n' 2>/dev/null <"/proc/$p/environ" | grep -cE 'KEYKEY|TOKTOK|hunter2')" 0
done
# refused lines are quoted without them
wr "$S/ctl" "create name=x tool=shell frob=$K"$'\n' >/dev/null
wr "$S/ctl" "$K"$'\n' >/dev/null
wr "$S/a/ctl" "kill $G"$'\n' >/dev/null
wr "$M/ctl" "shutdown $G"$'\n' >/dev/null
wr "$P/config" "budget = $G"$'\n' >/dev/null
wr "$P/config" "$K = 1"$'\n' >/dev/null
wr "$P/config" "timeout = $K"$'\n' >/dev/null
wr "$P/env" "$K"$'\n' >/dev/null
wr "$M/rates" "$K"$'\n' >/dev/null
wr "$M/tools/t" "frob = $K"$'\n' >/dev/null
none "errors of refused lines" "$M/errors" "$P/errors" "$M/status"
none "the ctls" "$S/ctl" "$S/a/ctl" "$M/ctl"
none "the log" "$D/log"

# removed
is "rm" "$(eno unlink "$P/keys/openai")" OK
no "gone" test -e "$P/keys/openai"
is "the user's is there" "$(cat "$M/keys/openai")" "****WXYZ"
is "rm of a secret" "$(eno unlink "$P/secrets/DB_PASS")" OK
is "nothing listed" "$(ls "$P/secrets" "$P/keys" | grep -v : | xargs)" ""
is "not in versions" "$(ls -a "$M/keys" | grep -c versions)" 0
is "mkdir among keys" "$(eno mkdir "$M/keys/d")" EPERM

# a restart, and another key file
wr "$M/ctl" $'shutdown\n' >/dev/null
unmounted() { ! mountpoint -q "$M"; }
yes "ends" soon 20 unmounted
is "the key file is closed" "$(stat -c %a "$D/vault.key")" 600
yes "starts" mount_
is "still set" "$(cat "$M/keys/openai")" "****WXYZ"

# without a key, and with one the provider refuses: which level it was
is "backend e2b without a key" "$(wr "$S/ctl" $'create name=n tool=shell backend=e2b\n')" EACCES
like "in words" "$(tail -n 1 "$M/errors")" 'E2B|e2b'
is "claude without a key" "$(wr "$S/ctl" $'create name=n tool=claude\n')" EACCES
like "in words" "$(tail -n 1 "$M/errors")" '[Aa]nthropic'
no "nothing was made" test -e "$S/n"
