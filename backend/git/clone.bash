# clone: repo base branch name email dir site bound shallow
# May be run again after a crash anywhere: a marker tells that it was done.
mkdir -p -- "$dir/.git" 2>"$tmp/err" || die "$(words "$tmp/err")"
cd -- "$dir" || die "no directory $dir"
if command -v flock >/dev/null; then
    exec 9>.git/courier-clone-lock
    flock -w 600 9 || die "another clone into $dir is still running"
fi

# a value as git's configuration files have it
quoted() {
    local v=${1//\\/\\\\}
    v=${v//\"/\\\"} v=${v//$'\n'/\\n}
    printf '"%s"' "$v"
}

globally() {
    GIT_CONFIG_GLOBAL=$HOME/.gitconfig git config --global "$@"
}

# the agent's own git commands work like ours
configure_user() {
    local helper=$HOME/.courier/git-credential line has_name='' has_email=''
    local -A safe=()
    : >>~/.gitconfig
    while IFS= read -r -d '' line; do
        case ${line%%$'\n'*} in
        user.name) has_name=yes ;;
        user.email) has_email=yes ;;
        safe.directory) safe[x${line#*$'\n'}]=yes ;;
        credential.*.helper)
            [ "${line%%$'\n'*}" != "credential.$site.helper" ] ||
                globally --unset-all "credential.$site.helper"
            ;;
        esac
    done < <(globally -z -l)
    {
        [ -z "$site" ] || printf '[credential %s]\n\thelper =\n\thelper = %s\n' \
            "$(quoted "$site")" "$(quoted "$helper")"
        for line in "$repo" "$repo/.git"; do
            [ -z "$bound" ] || [ -n "${safe[x$line]:-}" ] ||
                printf '[safe]\n\tdirectory = %s\n' "$(quoted "$line")"
        done
        [ -z "$name" ] || [ -n "$has_name" ] ||
            printf '[user]\n\tname = %s\n' "$(quoted "$name")"
        [ -z "$email" ] || [ -n "$has_email" ] ||
            printf '[user]\n\temail = %s\n' "$(quoted "$email")"
    } >"$tmp/more"
    [ -s "$tmp/more" ] || return 0
    [ ! -s ~/.gitconfig ] || echo >>~/.gitconfig
    cat -- "$tmp/more" >>~/.gitconfig
}

configure_repo() {
    # one that was cut off left them, maybe others
    if [[ $(<.git/config) = *'[remote "origin"]'* ]]; then
        g config --remove-section remote.origin 2>/dev/null
        g config --remove-section push 2>/dev/null
        [ -z "$name" ] || g config --unset-all user.name 2>/dev/null
        [ -z "$email" ] || g config --unset-all user.email 2>/dev/null
    fi
    {
        cat .git/config
        printf '[remote "origin"]\n\turl = %s\n' \
            "$(quoted "$repo")"
        printf '\tfetch = +refs/heads/*:refs/remotes/origin/*\n'
        printf '[push]\n\tdefault = current\n\tautoSetupRemote = true\n'
        [ -z "$name$email" ] || printf '[user]\n'
        [ -z "$name" ] || printf '\tname = %s\n' "$(quoted "$name")"
        [ -z "$email" ] || printf '\temail = %s\n' "$(quoted "$email")"
    } >"$tmp/config" && cp -- "$tmp/config" .git/courier-config &&
        mv -- .git/courier-config .git/config
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
    local ours=(CLAUDE.md AGENTS.md .claude/ .codex/ .opencode/ .pi/
        .system-prompt.txt .courier/)
    local -A theirs=()
    while IFS= read -r -d '' f; do
        theirs[${f%%/*}]=yes
    done < <(g ls-files -z -- "${ours[@]}")
    for f in "${ours[@]}"; do
        [ -n "${theirs[${f%/}]:-}" ] || grep -qxF "/$f" .git/info/exclude ||
            echo "/$f" >>.git/info/exclude
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
