#!/bin/bash
# real.sh [CLI...]: the real agent CLIs against a fake model server, run with
# courier's own command lines and read by its parsers. Needs node and npm.
# BUILD names the build directory (default: build).
set -u
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
build=${BUILD:-$top/build}
clis=${*:-claude codex opencode pi}
passed=0 failed=0

# shellcheck source=tests/agents/clis.sh
. "$here/clis.sh"
# shellcheck disable=SC2086
install_clis $clis || exit 0

run=$build/agent-run
mkdir -p "$build"
# shellcheck disable=SC2046
if ! ${CC:-gcc} -std=gnu17 -O1 -g -D_GNU_SOURCE -DCOURIER_VERSION='"test"' \
    -I"$top" -I"$top/backend" "$here/run.c" "$top"/backend/agents/*.c \
    "$top"/backend/base/*.c $(pkg-config --cflags --libs jansson) -lm \
    -o "$run"; then
    echo "agent-run doesn't compile"
    exit 1
fi

tmp=$(mktemp -d "${TMPDIR:-/var/tmp}/agents-real.XXXXXX")
server=
finish() {
    [ -n "$server" ] && kill "$server" 2>/dev/null
    rm -rf "$tmp"
}
trap finish EXIT
trap 'exit 130' INT TERM

# the fixtures name files of the project
mkdir "$tmp/fixtures"
for f in "$here"/fixtures/*.json; do
    sed "s|/home/user/project|$tmp/project|" "$f" >"$tmp/fixtures/${f##*/}"
done
start_model "$tmp/fixtures" || exit 1

# where a CLI finds the model; $1: the port
configure() {
    configure_home "$HOME" "$1"
    export ANTHROPIC_BASE_URL="http://127.0.0.1:$1"
}

# turn CLI PROMPT [ARGUMENTS of agent-run command]: one turn, its events in
# $tmp/events. $limit: seconds
turn() {
    local cli=$1 prompt=$2 code
    shift 2
    case $cli in opencode | pi) set -- model=fake/fake-1 "$@" ;; esac
    (
        cd "$tmp/project" || exit
        eval "export COURIER_TEST=1 $("$run" env "$cli")"
        export PATH="$cache/node_modules/.bin:$PATH"
        printf '%s' "$prompt" |
            timeout -s KILL "$limit" sh -c "$("$run" command "$cli" "$@")"
    ) >"$tmp/out" 2>"$tmp/err"
    code=$?
    [ $code = 137 ] && code=SIG9
    "$run" parse "$cli" "$tmp/out" "$tmp/err" $code >"$tmp/events"
    session=$(awk '/^session/ { print $NF; exit }' "$tmp/events")
}

# want NAME PATTERN...: the events have a line for each pattern
want() {
    local name=$1 pattern
    shift
    for pattern; do
        if ! grep -qE -- "$pattern" "$tmp/events"; then
            failed=$((failed + 1))
            echo "FAILED $name: no line is like: $pattern"
            sed 's/^/    /' "$tmp/events"
            head -c 500 "$tmp/err" | sed 's/^/    stderr: /'
            return
        fi
    done
    passed=$((passed + 1))
    echo "ok $name"
}

check_cli() {
    local cli=$1
    export HOME=$tmp/$cli ANTHROPIC_API_KEY=sk-fake-0 OPENAI_API_KEY=sk-fake-0
    export CLAUDE_CODE_MAX_RETRIES=1 OPENCODE_DISABLE_MODELS_FETCH=1
    unset XDG_CONFIG_HOME XDG_DATA_HOME XDG_CACHE_HOME
    rm -rf "$tmp/project"
    mkdir -p "$HOME" "$tmp/project"
    git -C "$tmp/project" init -q 2>/dev/null
    configure "$port"
    limit=150
    printf 'Be "brief".\n\nrhyme-marker\n' >"$HOME/system prompt.md"

    turn "$cli" "x [[system]]" "system=$HOME/system prompt.md"
    want "$cli: system prompt" '^text The system prompt has come' '^end ok'
    turn "$cli" "Say hi [[plain]]"
    want "$cli: plain reply" '^session ' '^text Hello from the fake model' \
        '^usage in=1000 out=20 ' '^end ok'
    first=$session
    turn "$cli" "And then? [[followup]]" "session=$first"
    want "$cli: follow-up in the same session" "^session .*$first\$" \
        '^text Continuing' '^end ok'
    turn "$cli" "Run it [[bash]]" thinking=high
    want "$cli: command" '^tool name=[A-Za-z]+ id=.* echo hello-from-bash' \
        '^result ok .*hello-from-bash Linux' '^end ok'
    turn "$cli" "Write it [[write]]"
    want "$cli: file" '^tool .*hello.txt' '^result ok' '^end ok'
    turn "$cli" "x [[utf8]]"
    want "$cli: characters" '^text é 你好 🚀👩‍💻 ok$' '^end ok'
    turn "$cli" "$(head -c 300000 /dev/zero | tr '\0' 'x') [[plain]]"
    want "$cli: a prompt of 300 kB" '^text Hello' '^end ok'
    turn "$cli" "x [[plain]]" session=00000000-0000-4000-8000-000000000000
    want "$cli: unknown session" '^end failed \(session\) no such session'
    turn "$cli" "x [[err401]]"
    want "$cli: 401" '^end failed \(key\) invalid .* key'
    turn "$cli" "x [[err429]]"
    want "$cli: 429" '^end failed \(rate\) rate limited'
    configure 9
    [ "$cli" = codex ] && limit=20
    turn "$cli" "x [[plain]]"
    want "$cli: dead endpoint" '^(error|note) .*cannot reach|^note cannot' \
        '^end failed'
}

for cli in $clis; do
    check_cli "$cli"
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
