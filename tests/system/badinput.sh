#!/bin/bash
# Bad input at the doors of documents: config, prompts, names, sizes. Each is
# one sentence, the right errno, nothing changed, nothing left behind.
cd "$(dirname "$0")/../.." && . tests/lib.sh || exit 2
start
mkdir "$S/d"
same() { cat "$1" 2>/dev/null; }

### config: every key with a good value and with bad ones
good() { is "config: $1" "$(wr "${2:-$P/config}" "$1"$'\n')" OK; }
bad_() {
    local f=${2:-$P/config} was
    was=$(cat "$f")
    is "bad config: $1" "$(wr "$f" "$1"$'\n')" EINVAL
    is "the old one holds: $1" "$(cat "$f")" "$was"
    like "and why: $1" "$(head -n 2 "$f.rejected")" 'line [0-9]+: .'
    like "with the text: $1" "$(cat "$f.rejected")" "$(sed 's/[][\\.*^$+?(){}|]/./g' <<<"$1")"
}
for l in 'backend = auto' 'backend = local' 'tool = shell' 'template = base' 'model = x' 'thinking = high' \
    'timeout = 1m' 'timeout = 4h' 'timeout = 900' 'on_timeout = pause' 'salvage_ahead = 10s' 'salvage_ahead = 10m' \
    'when_done = kill' 'turn_timeout = 30s' 'memory = 256' 'memory = 8192' 'cpu = 1' 'cpu = 8' 'repo = /tmp/x' \
    'base = main' 'branch = a/b' 'sync = off' 'pr = draft' 'pr_labels = a, b' 'git_name = A B' 'git_email = a@b.c' \
    'setup = make -j2 # all' 'learn = off' 'budget = 2.50' 'network = off' 'network = allow=a.b,c.d' \
    'github_api = http://127.0.0.1:9000' 'discovery_prompt = x' '# only a comment' ''; do
    good "$l"
done
for l in 'backend = moon' 'tool = nobody' 'timeout = 59s' 'timeout = 14401' 'timeout = 1d' 'timeout = ' 'timeout = -5m' \
    'timeout = 1h30' 'on_timeout = die' 'salvage_ahead = 9s' 'salvage_ahead = 11m' 'when_done = maybe' 'turn_timeout = never' \
    'memory = 255' 'memory = 8193' 'memory = 1G' 'memory = 1e3' 'cpu = 0' 'cpu = 9' 'cpu = 1.5' 'branch = a b' 'branch = -x' \
    'branch = a..b' 'branch = x.lock' 'branch = HEAD' 'sync = always' 'pr = yes' 'learn = on' 'budget = free' 'budget = -1' 'network = wifi' \
    'frobnicate = 1' 'timeout' '= 5' 'timeout: 5m' 'max_active = 3' 'local_bind = /' 'github_api = ftp://x'; do
    bad_ "$l"
done
good 'timeout = 5m'
no "a good one takes .rejected away" test -e "$P/config.rejected"
for l in 'max_active = 3' 'tool = shell'; do good "$l" "$M/config"; done
for l in 'max_active = 0' 'max_active = many' 'local_bind = relative' "local_bind = $D" "local_bind = $M" "local_bind = $T" \
    "local_bind = /" 'local_bind = /nowhere/at/all'; do
    bad_ "$l" "$M/config"
done
is "comments and order survive" "$(wr "$P/config" $'# one\n\ntimeout = 5m\n# three\nmemory=300\n'; cat "$P/config")" \
    $'OK\n# one\n\ntimeout = 5m\n# three\nmemory=300'
is "the last of two wins" "$(wr "$S/d/config" $'timeout = 5m\ntimeout = 6m\n'; jq -r '.config.timeout.value' "$S/d/info.json")" $'OK\n6m'
is "no newline at the end" "$(wr "$P/config" 'timeout = 7m')" OK
is "CRLF" "$(wr "$P/config" $'timeout = 8m\r\nmemory = 300\r\n')" OK
is "a NUL" "$(printf 'timeout = 8m\0\n' >"$T/x"; cp "$T/x" "$P/config" 2>&1 | grep -c Invalid)" 1
is "not UTF-8" "$(printf 'model = \377\n' >"$T/x"; cp "$T/x" "$P/config" 2>&1 | grep -c Invalid)" 1
is "echo >> of a bad line fails in the write" "$( (echo frob = 1 >>"$P/config") 2>&1 | grep -c 'Invalid argument')" 1
is "and the old one holds" "$(cat "$P/config")" $'timeout = 8m\r\nmemory = 300\r'
no "sed -i of a bad one fails" sed -i 's/.*/timeout = 9h/' "$P/config"
like "the old one" "$(cat "$P/config")" 'timeout = 8m'
is "nothing is left" "$(ls -A "$P" | grep -vE '^(config(\.rejected)?|status|board|events|errors|usage|usage\.(jsonl|csv)|ctl|system-prompt\.md|CLAUDE\.md|env|secrets|keys|personas|workflows|skills|commands|home|sandboxes|by-status|runs|learnings|trash|attempts)$')" ""

### sizes
head -c 1048577 /dev/zero | tr '\0' '#' >"$T/big"
no "a document above 1 MiB" cp "$T/big" "$P/CLAUDE.md"
like "is EFBIG" "$(cp "$T/big" "$P/CLAUDE.md" 2>&1)" 'File too large'
is "nothing changed" "$(cat "$P/CLAUDE.md")" ""
head -c 1048576 "$T/big" >"$T/fits"
yes "one of 1 MiB" cp "$T/fits" "$P/CLAUDE.md"
yes "is whole" cmp "$T/fits" "$P/CLAUDE.md"
no "a prompt above 1 MiB" cp "$T/big" "$S/d/prompt"
yes "home takes 2 MB" cp "$T/big" "$P/home/big"
yes "whole" cmp "$T/big" "$P/home/big"
head -c 16777217 /dev/zero >"$T/huge"
no "not 16 MiB and one" cp "$T/huge" "$P/home/huge"
is "truncate beyond" "$(eno truncate "$P/CLAUDE.md" 2000000)" EFBIG

### env and secrets
good 'A=1' "$P/env"
is "env: lines" "$(wr "$P/env" $'A=1\n# c\nB_2=two words\n\n')" OK
for l in '1A=1' 'A B=1' 'A' '=x'; do
    is "bad env: $l" "$(wr "$P/env" "$l"$'\n')" EINVAL
done
is "a secret" "$(wr "$P/secrets/TOKEN" "s3cret-value-of-it"$'\n')" OK
unlike "is never read" "$(cat "$P/secrets/TOKEN")" 's3cret-value'
for n in 1A A-B a.b 'x y'; do
    is "a secret's name: $n" "$(wr "$P/secrets/$n" x)" EINVAL
done

### after start
mk r
is "prompt of a running one" "$(wr "$S/r/prompt" x)" EBUSY
is "keys that can't change" "$(wr "$S/r/config" $'tool = shell\nmemory = 512\n')" EBUSY
is "keys that can" "$(wr "$S/r/config" $'tool = shell\non_timeout = pause\n')" OK
is "its config" "$(cat "$S/r/config")" $'tool = shell\non_timeout = pause'

### files where none belong
for f in "$M/projects/x.txt" "$S/x.txt" "$P/by-status/x" "$P/trash/x" "$S/d/pr/x" "$S/d/salvage/x" "$S/d/exec/x"; do
    is "no file: ${f#"$M"/}" "$(wr "$f" x)" EPERM
done
is "a scratch name in a project" "$(wr "$P/notes.txt" x)" OK
is "an unknown key" "$(wr "$P/keys/nobody" x)" EINVAL
for n in a/../b .x 'x y' x.lock; do
    is "mkdir project '$n'" "$(eno mkdir "$M/projects/$n" | sed 's/ENOENT/EINVAL/')" EINVAL
done
is "personas: a bad name" "$(wr "$P/personas/a b" x)" EINVAL
is "tools: a bad one" "$(wr "$M/tools/mine" $'command = x\nformat = xml\n')" EINVAL
no "it isn't there" test -e "$M/tools/mine"
is "rates: a bad one" "$(wr "$M/rates" $'nonsense here\n')" EINVAL
