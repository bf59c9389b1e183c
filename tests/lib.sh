# shellcheck shell=bash
# What the system tests share. A suite sources this, calls start (or mounts by
# itself), checks with ok/is/like/..., and ends by itself: the exit trap
# unmounts, kills and removes everything, and prints 'N passed, N failed'.
#
# BIN: the directory of the built programs (default: build).

# the system's own programs first: some users' python3 is a wrapper that takes
# a second to find it
PATH=/usr/bin:/bin:$PATH
BIN=$(cd "${BIN:-build}" && pwd) || exit 2
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export LC_ALL=C.UTF-8 BIN HERE
# shellcheck source=tests/sweep.bash
. "$HERE/sweep.bash"
unset E2B_API_KEY E2B_DOMAIN E2B_API_URL E2B_SANDBOX_URL ANTHROPIC_API_KEY \
    ANTHROPIC_AUTH_TOKEN OPENAI_API_KEY OPENROUTER_API_KEY GITHUB_TOKEN \
    GITHUB_API_URL COURIER_DATA COURIER_PASSPHRASE
T=$(mktemp -d "${TMPDIR:-/var/tmp}/courier-test.XXXXXX") || exit 2
M=$T/mnt D=$T/data
mkdir -p "$M" "$D"
# what it begins is known by it
export COURIER_TEST=$T
# whoever runs the suites looks after it, should this one not come to that
[ -z "${COURIER_RUN:-}" ] || : >"$COURIER_RUN/dirs/${T//\//:}"
P=$M/projects/web S=$P/sandboxes
passed=0 failed=0
[ "$(id -u)" = 0 ] && root=1 || root=

ok() { passed=$((passed + 1)); }
bad() {
    failed=$((failed + 1))
    printf 'FAILED: %s (line %s)\n' "$*" "${BASH_LINENO[1]}"
}
# is WHAT ACTUAL EXPECTED
is() { if [ "$2" = "$3" ]; then ok; else bad "$1: got '$2', want '$3'"; fi; }
# like WHAT ACTUAL EXTENDED-REGEXP
like() {
    if grep -qE -- "$3" <<<"$2"; then ok; else bad "$1: '$2' is not like '$3'"; fi
}
unlike() {
    if grep -qE -- "$3" <<<"$2"; then bad "$1: '$2' is like '$3'"; else ok; fi
}
# yes/no WHAT COMMAND...
yes() {
    local w=$1
    shift
    if "$@" >"$T/out" 2>&1; then ok; else bad "$w: failed: $* ($(head -c 200 "$T/out"))"; fi
}
no() {
    local w=$1
    shift
    if "$@" >/dev/null 2>&1; then bad "$w: succeeded: $*"; else ok; fi
}
# pause SECONDS: as sleep, but no process is made for it: what looks again and
# again would take a good part of the machine
exec {never}<> <(:)
pause() { read -rt "$1" -u "$never" _ || :; }
# soon SECONDS COMMAND...: until it succeeds. It looks less often the longer it
# waits: looking is work, too
soon() {
    local end=$((${EPOCHREALTIME/./} + $1 * 1000000)) ms=30 __t
    shift
    while ! "$@" >/dev/null 2>&1; do
        [ "${EPOCHREALTIME/./}" -lt "$end" ] || return 1
        printf -v __t 0.%03d $ms
        pause "$__t"
        ms=$((ms < 200 ? ms * 5 / 4 : ms))
    done
}
# wr FILE TEXT: one write(2), then close; prints OK or the errno's name
wr() {
    python3 -c '
import errno, os, sys
try:
    fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    data = sys.argv[2].encode("utf-8", "surrogateescape")
    while data:
        data = data[os.write(fd, data):]
    os.close(fd)
    print("OK")
except OSError as e:
    print(errno.errorcode.get(e.errno, e.errno))
' "$1" "$2"
}
# eno CALL ARGS...: the errno name of os.CALL(args), or OK
eno() {
    python3 -c '
import errno, os, sys
args = [int(a) if a.isdigit() else a for a in sys.argv[2:]]
try:
    getattr(os, sys.argv[1])(*args)
    print("OK")
except OSError as e:
    print(errno.errorcode.get(e.errno, e.errno))
' "$@"
}
val() { awk -v k="$2" '$1 == k { $1 = ""; sub(/^ /, ""); print; exit }' "$1"; }
pid() { val "$M/status" pid; }

mount_() { timeout 60 "$BIN/courierfs" --data "$D" "$@" "$M" >"$T/start" 2>&1; }
# start: mounted, with project web
start() {
    if ! mount_ "$@"; then
        bad "courierfs does not start: $(cat "$T/start")"
        exit 1
    fi
    mkdir "$P" || exit 1
}
# mk NAME [key=value]...: a running sandbox of tool shell
mk() {
    local n=$1
    shift
    wr "$S/ctl" "create name=$n tool=shell $*
" >/dev/null
    timeout 60 cat "$S/$n/wait/running" >/dev/null
}
# ask NAME SCRIPT: one turn, its outcome
ask() { printf '%s' "$2" >"$S/$1/message" && timeout 120 cat "$S/$1/wait/done"; }
wait_for() { timeout "${3:-${WAIT:-60}}" cat "$S/$1/wait/$2" 2>/dev/null; }

finish() {
    local rc=$? p
    trap - EXIT
    set +e
    pkill -CONT -f "courierfs .*$T/" # one that a test has stopped
    if mountpoint -q "$M"; then
        p=$(pid 2>/dev/null)
        [ -n "$p" ] && kill "$p" 2>/dev/null && soon 10 sh -c "! kill -0 $p"
    fi
    if [ "$failed" != 0 ] && [ -s "$D/log" ]; then
        echo "--- the daemon's log ends:"
        tail -n 15 "$D/log"
    fi
    sweep "$T"
    if [ "$rc" != 0 ] && [ "$failed" = 0 ]; then
        failed=1
        echo "FAILED: the suite ended early (exit $rc)"
    fi
    echo "$passed passed, $failed failed"
    [ "$failed" = 0 ]
    exit $?
}
trap finish EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
