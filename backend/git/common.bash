# What the three scripts share. Values come before this as variables, quoted.
# Runs in the sandbox as its user; nothing here may run a hook.
set -u
export LC_ALL=C GIT_TERMINAL_PROMPT=0
export GIT_SSH_COMMAND="${GIT_SSH_COMMAND:-ssh -o BatchMode=yes \
-o ConnectTimeout=20 -o StrictHostKeyChecking=accept-new}"
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_OBJECT_DIRECTORY CDPATH

die() {
    printf '%s\n' "$*" >&2
    exit 1
}

command -v git >/dev/null || die "git is not installed in this sandbox"
# when the disk is full, memory may still do
tmp=$(mktemp -d 2>/dev/null || mktemp -d -p /dev/shm) ||
    die "no temporary directory can be made"
trap 'rm -rf -- "$tmp"' EXIT

# A repository may belong to another user (one bound from the host does), and
# what git starts for the other end of a path looks at the global file only.
printf '[include]\n\tpath = ~/.config/git/config\n[include]\n' \
    >"$tmp/gitconfig"
printf '\tpath = ~/.gitconfig\n[safe]\n\tdirectory = *\n' >>"$tmp/gitconfig"
export GIT_CONFIG_GLOBAL=$tmp/gitconfig

quiet=(-c core.hooksPath=/dev/null -c commit.gpgSign=false -c gc.auto=0
    -c maintenance.auto=false -c core.fsmonitor=false
    -c http.lowSpeedLimit=100 -c http.lowSpeedTime=60
    -c advice.addIgnoredFile=false -c advice.addEmbeddedRepo=false
    -c advice.pushUpdateRejected=false)

plain=("${quiet[@]}")

g() {
    git "${quiet[@]}" "$@"
}

# in a directory with a .git: 0 if there is a work tree. One that calls itself
# bare, and has an index, has one
is_tree() {
    quiet=("${plain[@]}")
    [ ! -e .git/index ] || ! g rev-parse --is-bare-repository 2>/dev/null |
        grep -qx true || quiet+=(--work-tree="$PWD")
    [ "$(g rev-parse --is-inside-work-tree 2>/dev/null)" = true ]
}

# what git said, as one line without names and passwords of URLs
words() {
    tr '\n\t\r' '   ' <"$1" | sed 's#//[^/@ ]*@#//#g; s/  */ /g; s/ $//' |
        tail -c 400
}

# a name as one field of a line
field() {
    local s=${1//\\/\\\\}
    s=${s//$'\t'/\\t}
    s=${s//$'\r'/\\r}
    printf '%s' "${s//$'\n'/\\n}"
}

within() { # SECONDS COMMAND...: a limit where timeout(1) exists
    local s=$1
    shift
    if command -v timeout >/dev/null; then
        timeout -k 5 "$s" git "${quiet[@]}" "$@"
    else
        g "$@"
    fi
}
