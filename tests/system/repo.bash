# shellcheck shell=bash
# For suites with repositories: sourced after lib.sh.
export HOME=$T/home GIT_CONFIG_NOSYSTEM=1
unset XDG_CONFIG_HOME
mkdir -p "$HOME"
git config --global user.name 'Mo User'
git config --global user.email mo@example.org
git config --global init.defaultBranch main
git config --global advice.detachedHead false
git config --global protocol.file.allow always
chmod 755 "$T"

# remote NAME: a bare repository $T/NAME.git with one commit on main
remote() {
    git init -q --bare -b main "$T/$1.git"
    git clone -q "$T/$1.git" "$T/seed" 2>/dev/null
    (cd "$T/seed" && echo one >a && git add a && git commit -qm first &&
        git push -q origin HEAD:main)
    rm -rf "$T/seed"
}
# at NAME ARGS...: git in a bare remote
at() { git -C "$T/$1.git" "${@:2}"; }
# tip NAME BRANCH: the subject of its last commit
tip() { at "$1" log -1 --format=%s "$2" -- 2>/dev/null; }
# make NAME [key=value]...: created, not waited for
make() {
    local n=$1
    shift
    wr "$S/ctl" "create name=$n tool=shell $*
" | grep -vx OK
}
up() { timeout 60 cat "$S/$1/wait/running" 2>/dev/null; }
ended() { timeout 60 cat "$S/$1/wait/ended" 2>/dev/null; }
ctl() { wr "$S/$1/ctl" "$2
"; }
# kill_ NAME: its reason, once it has ended
kill_() {
    ctl "$1" kill >/dev/null
    ended "$1" >/dev/null
    cat "$S/$1/reason"
}
