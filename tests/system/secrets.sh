#!/bin/bash
# Keys and secrets: which one counts, what is shown of them, and that none is
# in any file, log, event or process of ours.
set -u
# shellcheck source=tests/lib.sh
. "$(dirname "$0")/../lib.sh"

# each is looked for everywhere, at the end of each part
declare -A key=(
    [user_anthropic]=sk-ant-USER-9f8e7d6c5b4a-ua01
    [project_anthropic]=sk-ant-PROJ-1a2b3c4d5e6f-pa02
    [user_openai]=sk-USER-00ff11ee22dd-uo03
    [user_openrouter]=sk-or-v1-USER-a0b1c2d3-ur04
    [project_github]=ghp_PROJ0123456789abcdefpg05
    [user_e2b]=e2b_USER_0123456789abcdef_ue06
    [env_token]=ENVTOKEN-77aa88bb99cc-et07
    [env_openai]=sk-ENV-0a1b2c3d4e5f-eo08
    [secret]=swordfish-SECRET-5566-se09
    [gone]=sk-ant-GONE-deadbeef0000-go10
    [phrase]=correct-horse-PASSPHRASE-ph11
    [phrase2]=battery-staple-PASSPHRASE-ph12
)
printf '%s\n' "${key[@]}" >"$T/needles"
# the same in hexadecimal and base64 (all three phases), as a fool would hide it
python3 - "$T/needles" <<'END'
import base64, sys
lines = open(sys.argv[1]).read().split()
with open(sys.argv[1], "a") as f:
    for l in lines:
        print(l.encode().hex(), file=f)
        for pad in 0, 1, 2:
            b = base64.b64encode(b"x" * pad + l.encode()).decode()
            print(b[4:-4], file=f)
END

# ours: the processes of courier outside of a sandbox
procs() {
    pgrep -f "courierfs .*$T/|courier-sandboxd .*$T/|courier-touch"
    pgrep -x courierfs; pgrep -x courier-touch; pgrep -x courier-sandbox
    pgrep -x bwrap
}
# nowhere WHAT: no needle in any file of the data directory, any text that
# the tree shows, any process
nowhere() {
    local hit p
    hit=$(grep -rlaFf "$T/needles" "$D" "$T/start" 2>/dev/null | head -n 3)
    is "$1: in no file" "$hit" ''
    if mountpoint -q "$M"; then
        hit=$(grep -rlaFf "$T/needles" "$M" 2>/dev/null | head -n 3)
        is "$1: nowhere in the tree" "$hit" ''
    fi
    hit='' seen=0
    for p in $(procs | sort -u); do
        # another suite's, or out of reach for this user
        grep -qzF "$T/" "/proc/$p/cmdline" "/proc/$p/mountinfo" 2>/dev/null || continue
        [ -r "/proc/$p/environ" ] && seen=$((seen + 1))
        if cat "/proc/$p/environ" "/proc/$p/cmdline" 2>/dev/null | tr '\0' '\n' |
            grep -qaFf "$T/needles"; then
            hit+=" $(tr '\0' ' ' <"/proc/$p/cmdline" | head -c 100)"
        fi
    done
    is "$1: in no process" "$hit" ''
}

export ANTHROPIC_AUTH_TOKEN=${key[env_token]} OPENAI_API_KEY=${key[env_openai]}
start --backend local
unset ANTHROPIC_AUTH_TOKEN OPENAI_API_KEY
printf 'command = sh\nformat = text\nkeys = anthropic|anthropic_token, openai\n' \
    >"$M/tools/probe"
printf 'tool = probe\nlearn = off\n' >"$P/config"
said() {
    ask "$1" "$2" >/dev/null
    jq -rs '[.[] | select(.role == "assistant")] | last | .content' \
        "$S/$1/messages.jsonl"
}
makes() {
    wr "$S/ctl" "create name=$1
" | grep -vx OK
    wait_for "$1" running >/dev/null || bad "$1: $(cat "$S/$1/reason")"
}
# sha of what the agent has: so that the test itself writes no key anywhere
hash() { printf %s "$1" | sha256sum | cut -c1-16; }
has() { said "$1" "printf %s \"\$$2\" | sha256sum | cut -c1-16"; }

# ---- which one counts ----
makes a
is "the environment's, where none is stored" "$(has a OPENAI_API_KEY)" \
    "$(hash "${key[env_openai]}")"
is 'the alternative that is there' "$(has a ANTHROPIC_AUTH_TOKEN)" \
    "$(hash "${key[env_token]}")"
is 'keys/ shows the stored ones only' "$(ls "$M/keys")" ''
printf '  %s \n\n' "${key[user_openai]}" >"$M/keys/openai"
is "the user's wins over it" "$(has a OPENAI_API_KEY)" \
    "$(hash "${key[user_openai]}")"
echo "${key[user_anthropic]}" >"$M/keys/anthropic"
is 'stored wins over the environment' \
    "$(has a ANTHROPIC_API_KEY) $(has a ANTHROPIC_AUTH_TOKEN)" \
    "$(hash "${key[user_anthropic]}") $(hash '')"
echo "${key[project_anthropic]}" >"$P/keys/anthropic"
is "the project's wins" "$(has a ANTHROPIC_API_KEY)" \
    "$(hash "${key[project_anthropic]}")"
printf %s "${key[secret]}" >"$P/secrets/DB_PASS"
is 'a secret' "$(has a DB_PASS)" "$(hash "${key[secret]}")"
echo "${key[user_openrouter]}" >"$M/keys/openrouter"
echo "${key[project_github]}" >"$P/keys/github"
is 'what the tool does not need it does not get' \
    "$(has a OPENROUTER_API_KEY) $(has a E2B_API_KEY)" "$(hash '') $(hash '')"
echo "${key[gone]}" >"$M/keys/anthropic_token"
rm "$M/keys/anthropic_token"

# ---- what is shown ----
is 'the last four' "$(cat "$M/keys/openai")" '****uo03'
is 'of a project, too' "$(cat "$P/keys/anthropic")" '****pa02'
is 'of a secret' "$(cat "$P/secrets/DB_PASS")" '****se09'
is 'its size is true' "$(stat -c %s "$P/secrets/DB_PASS")" \
    "$(wc -c <"$P/secrets/DB_PASS")"
echo short-one >"$P/secrets/SHORT"
is 'a short one not at all' "$(cat "$P/secrets/SHORT")" '****'
is 'mode' "$(stat -c %a "$M/keys/openai")" 600
is 'ls' "$(ls "$M/keys") $(ls "$P/keys")" 'anthropic
openai
openrouter anthropic
github'
is 'no other name' "$(wr "$M/keys/antropic" x)" EINVAL
is 'nothing empty' "$(wr "$M/keys/openai" '
')" EINVAL
is 'nor two words' "$(wr "$M/keys/openai" 'sk-a sk-b')" EINVAL
is 'the old one holds' "$(cat "$M/keys/openai")" '****uo03'
is 'no name of a variable' "$(wr "$P/secrets/A-B" x)" EINVAL
cp -r "$M/keys" "$T/copy" && is 'a copy has the hints' \
    "$(cat "$T/copy/openai")" '****uo03'

# ---- mistakes that quote a key ----
wr "$M/ctl" "set ${key[user_openai]}
" >/dev/null
wr "$S/ctl" "create name=x tool=${key[user_anthropic]}
" >/dev/null
wr "$P/config" "modle = ${key[user_openai]}
" >/dev/null
wr "$P/env" "OPENAI-KEY=${key[user_openai]}
" >/dev/null
rm -f "$P"/*.rejected
like 'they were refused' "$(wc -l <"$M/errors")" '^[4-9]$'
is 'no key is quoted' "$(grep -cFf "$T/needles" "$M/errors" "$S/ctl" \
    "$M/ctl" | grep -v ':0$')" ''
nowhere 'while a sandbox runs'
ask a 'sleep 20' >/dev/null &
soon 10 grep -q working "$S/a/agent"
wr "$S/a/ctl" 'exec sleep 20
' >/dev/null
sleep 0.5
nowhere 'during a turn'
# the daemon, its helper, the host, a sandbox or two; a plain user may not even
# look at the first ones
[ -z "$root" ] || [ "$seen" -ge 4 ] || bad "only $seen processes were looked at"
echo interrupt >"$S/a/ctl"
wait $!
echo 'kill now' >"$S/a/ctl"
wait_for a ended >/dev/null

# ---- the daemon dies ----
kill -9 "$(pid)"
sleep 0.3
fusermount3 -uz "$M" 2>/dev/null
nowhere 'after a crash'
mount_ --backend local || bad 'no start after a crash'
makes b
is 'the stored ones are there' "$(has b ANTHROPIC_API_KEY)" \
    "$(hash "${key[project_anthropic]}")"
is "the environment's is gone" "$(rm "$M/keys/openai"
    wr "$S/b/message" x)" OK
is 'a turn without it fails' "$(wait_for b 'done')" failed
like 'which key, and where to put it' "$(cat "$S/b/error")" \
    "needs a key: openai .*keys/openai"
is 'a new one is refused' "$(wr "$S/ctl" 'create name=c
')" EACCES
wr "$S/b/ctl" 'kill now
' >/dev/null
wait_for b ended >/dev/null
down() {
    local p
    p=$(pid)
    kill "$p"
    soon 20 sh -c "! kill -0 $p" || bad 'it does not end'
}

# ---- the key file ----
echo "${key[user_openai]}" >"$M/keys/openai"
down
is 'the key file is ours alone' "$(stat -c %a "$D/vault.key")" 600
cp "$D/vault.key" "$T/vault.old"
is 'rotation' "$("$BIN/courierfs" --data "$D" --rotate-key)" \
    "courier: the keys in $D have a new master key"
no 'it is another' cmp -s "$D/vault.key" "$T/vault.old"
is 'none is left beside' "$(echo "$D"/vault.key*)" "$D/vault.key"
mount_ --backend local || bad 'no start after the rotation'
is 'the hints' "$(cat "$M/keys/openai")" '****uo03'
makes d
is 'and keys' "$(has d OPENAI_API_KEY)" "$(hash "${key[user_openai]}")"
no 'not while it is in use' "$BIN/courierfs" --data "$D" --rotate-key
like 'in words' "$("$BIN/courierfs" --data "$D" --rotate-key 2>&1)" 'in use'
wr "$S/d/ctl" 'kill now
' >/dev/null
wait_for d ended >/dev/null
down
cp "$D/vault.key" "$T/vault.new"
cp "$T/vault.old" "$D/vault.key"
mount_ --backend local || bad 'no start with a wrong key file'
wr "$S/ctl" 'create name=e
' >/dev/null
wait_for e running 20 >/dev/null
ask e true >/dev/null
like 'a wrong key file is said' "$(cat "$S/e/error" "$S/ctl" "$M/errors")" \
    "can't be opened.*set it again"
wr "$S/e/ctl" 'kill now
' >/dev/null
down
cp "$T/vault.new" "$D/vault.key"
chmod 644 "$D/vault.key"
no 'one that others can read' mount_ --backend local
like 'in words' "$(cat "$T/start")" 'chmod 600'
chmod 600 "$D/vault.key"

# ---- a passphrase ----
is 'from a key file to a passphrase' "$(COURIER_NEW_PASSPHRASE=${key[phrase]} \
    "$BIN/courierfs" --data "$D" --rotate-key)" \
    "courier: the keys in $D have a new master key"
no 'without it' mount_ --backend local
like 'in words' "$(cat "$T/start")" 'needs a passphrase'
no 'with another' env COURIER_PASSPHRASE=wrong "$BIN/courierfs" --data "$D" \
    --backend local "$M"
like 'in words, too' "$(COURIER_PASSPHRASE=wrong "$BIN/courierfs" --data "$D" \
    --backend local "$M" 2>&1)" 'passphrase is wrong'
no 'nothing is mounted' mountpoint -q "$M"
export COURIER_PASSPHRASE=${key[phrase]}
mount_ --backend local || bad "no start with the passphrase: $(cat "$T/start")"
unset COURIER_PASSPHRASE
is 'with it' "$(cat "$P/secrets/DB_PASS")" '****se09'
makes f
is 'keys open' "$(has f DB_PASS)" "$(hash "${key[secret]}")"
nowhere 'with a passphrase'
wr "$S/f/ctl" 'kill now
' >/dev/null
wait_for f ended >/dev/null
down
is 'another passphrase' "$(COURIER_PASSPHRASE=${key[phrase]} \
    COURIER_NEW_PASSPHRASE=${key[phrase2]} \
    "$BIN/courierfs" --data "$D" --rotate-key)" \
    "courier: the keys in $D have a new master key"
no 'the old one is none any more' env COURIER_PASSPHRASE="${key[phrase]}" \
    "$BIN/courierfs" --data "$D" --backend local "$M"
export COURIER_PASSPHRASE=${key[phrase2]}
mount_ --backend local || bad "no start with the new one: $(cat "$T/start")"
unset COURIER_PASSPHRASE
makes g
is 'with the new one' "$(has g DB_PASS)" "$(hash "${key[secret]}")"
wr "$S/g/ctl" 'kill now
' >/dev/null
wait_for g ended >/dev/null
down
nowhere 'at the end'
