# clone: repo base branch name email dir site bound shallow
# May be run again after a crash anywhere: a marker tells that it was done.
mkdir -p -- "$dir/.git" 2>"$tmp/err" || die "$(words "$tmp/err")"
cd -- "$dir" || die "no directory $dir"
if command -v flock >/dev/null; then
    exec 9>.git/courier-clone-lock
    flock -w 600 9 || die "another clone into $dir is still running"
fi

globally() {
    GIT_CONFIG_GLOBAL=$HOME/.gitconfig git config --global "$@"
}

# the agent's own git commands work like ours
configure_user() {
    touch ~/.gitconfig
    local helper=$HOME/.courier/git-credential
    if [ -n "$site" ]; then
        globally --unset-all "credential.$site.helper"
        globally --add "credential.$site.helper" ""
        globally --add "credential.$site.helper" "$helper"
    fi
    if [ -n "$bound" ]; then
        globally --get-all safe.directory | grep -qxF -- "$repo" ||
            globally --add safe.directory "$repo"
        globally --get-all safe.directory | grep -qxF -- "$repo/.git" ||
            globally --add safe.directory "$repo/.git"
    fi
    [ -z "$name" ] || globally --get user.name >/dev/null ||
        globally user.name "$name"
    [ -z "$email" ] || globally --get user.email >/dev/null ||
        globally user.email "$email"
}

configure_repo() {
    g config remote.origin.url "$repo"
    g config --replace-all remote.origin.fetch \
        '+refs/heads/*:refs/remotes/origin/*'
    g config push.default current
    g config push.autoSetupRemote true
    [ -z "$name" ] || g config user.name "$name"
    [ -z "$email" ] || g config user.email "$email"
}

# a path as a line that excludes just that
exclude() {
    local line
    line=/$(printf %s "$1" | sed 's/[][\\*?!# ]/\\&/g')
    grep -qxF -- "$line" .git/info/exclude || printf '%s\n' "$line" \
        >>.git/info/exclude
}

# where else an agent looks for a file whose place the repository has taken
at_home() {
    case $1 in
    CLAUDE.md) printf '%s\n' .claude/CLAUDE.md ;;
    AGENTS.md)
        printf '%s\n' .codex/AGENTS.md .config/opencode/AGENTS.md \
            .pi/agent/AGENTS.md
        ;;
    *) printf '%s\n' "$1" ;;
    esac
}

# the project's instructions and skills, where the repository has no own
place_ours() {
    local from=$HOME/.courier/project f to
    [ -d "$from" ] || return 0
    (cd "$from" && find . -type f -print0) | while IFS= read -r -d '' f; do
        f=${f#./}
        if [ ! -L "${f%%/*}" ] && [ ! -e "$f" ] && [ ! -L "$f" ]; then
            exclude "$f"
            mkdir -p -- "$(dirname -- "$f")" && mv -- "$from/$f" "$f"
            continue
        fi
        at_home "$f" | while IFS= read -r to; do
            to=$HOME/$to
            [ -e "$to" ] || {
                mkdir -p -- "$(dirname -- "$to")" && cp -- "$from/$f" "$to"
            }
        done
    done
    rm -rf -- "$from"
}

# what courier puts beside the work is not part of it, unless the repository
# has files of that name itself
exclude_ours() {
    local f
    mkdir -p .git/info
    touch .git/info/exclude
    for f in CLAUDE.md AGENTS.md .claude/ .codex/ .opencode/ .pi/ \
        .system-prompt.txt .courier/; do
        [ -z "$(g ls-files -- "$f" | head -c 1)" ] || continue
        grep -qxF "/$f" .git/info/exclude || echo "/$f" >>.git/info/exclude
    done
    # home/project/... has been here before the clone
    g ls-files -z -o --exclude-standard | while IFS= read -r -d '' f; do
        exclude "$f"
    done
    place_ours
}

has() {
    awk -F'\t' -v r="refs/heads/$1" '$2 == r { f = 1 } END { exit !f }' \
        "$tmp/refs"
}

fetch() {
    local specs=() b
    if [ -n "$shallow" ]; then
        for b in "$base" "$branch"; do
            [ -z "$b" ] || ! has "$b" ||
                specs+=("+refs/heads/$b:refs/remotes/origin/$b")
        done
        g fetch -q --depth=50 origin "${specs[@]}" 2>"$tmp/err"
    else
        g fetch -q --update-shallow origin 2>"$tmp/err"
    fi || die "$(words "$tmp/err")"
}

# the commit to start from, left in $from
start_point() {
    if [ -n "$base" ]; then
        has "$base" || die "the remote has no branch $base"
        from=refs/remotes/origin/$base
    else
        g fetch -q origin HEAD 2>"$tmp/err" || die "$(words "$tmp/err")"
        from=$(g rev-parse FETCH_HEAD)
    fi
}

check_out() {
    local how
    if [ -n "$branch" ] && has "$branch"; then
        how=(--track -B "$branch" "refs/remotes/origin/$branch")
    else
        start_point
        if [ -n "$branch" ]; then
            how=(--no-track -B "$branch" "$from")
        elif [ -n "$base" ]; then
            how=(--track -B "$base" "$from")
        else
            how=(--detach "$from")
        fi
    fi
    g checkout -q -f "${how[@]}" 2>"$tmp/err" || die "$(words "$tmp/err")"
}

clone() {
    find .git -name '*.lock' -delete
    g init -q --template= . 2>"$tmp/err" || die "$(words "$tmp/err")"
    configure_repo
    g ls-remote --symref origin >"$tmp/refs" 2>"$tmp/err" ||
        die "$(words "$tmp/err")"
    head=$(sed -n 's#^ref: refs/heads/\(.*\)\tHEAD$#\1#p' "$tmp/refs")
    if ! [ -s "$tmp/refs" ] || ! grep -q '^[0-9a-f]' "$tmp/refs"; then
        [ -z "$base" ] || die "the remote has no branch $base: it is empty"
        g symbolic-ref HEAD "refs/heads/${branch:-${head:-main}}"
        return
    fi
    [ -z "$head" ] || ! has "$head" || {
        g symbolic-ref refs/remotes/origin/HEAD "refs/remotes/origin/$head"
        base=${base:-$head}
    }
    fetch
    check_out
    [ ! -f .gitmodules ] || g submodule -q update --init --recursive \
        >"$tmp/out" 2>"$tmp/err" ||
        printf 'note\tsubmodules: %s\n' "$(words "$tmp/err")"
}

configure_user
if [ ! -e .git/courier-clone ]; then
    clone
    exclude_ours
    : >.git/courier-clone || die "no space for the repository"
fi
printf 'cloned\t%s\t%s\n' "$(g rev-parse -q --verify HEAD || echo -)" \
    "$(g symbolic-ref -q --short HEAD || echo -)"
