# save: home branch meant message push fresh
# Nothing of the agent's own state is disturbed: where HEAD is on a branch the
# work is committed on it; in the middle of a merge or rebase, or detached, a
# commit of the same content is made beside it (refs/courier/snapshot).
big=95 # MiB: an untracked file above it would have the push refused

# It runs after each turn, and each process costs the sandbox some ms: what
# one call of git can tell is not asked of two.

# every repository below home, inner ones first
find_repositories() {
    mapfile -d '' -t repositories < <(exec find "$home" -name .git -print0 \
        -prune -o \( -path "$home/.*" -o -name node_modules \) -prune \
        2>/dev/null)
    repositories=("${repositories[@]%/.git}")
    [ ${#repositories[@]} -le 1 ] || mapfile -d '' -t repositories < <(
        printf '%s\0' "${repositories[@]}" | sort -z -r)
}

# where it keeps its data (gitdir), whether it has a work tree (bare, and
# what git must be told); fails if git can't read it
read_kind() {
    local out inside=false is_bare=false
    if out=$(g rev-parse --absolute-git-dir --is-bare-repository \
        --is-inside-work-tree 2>"$tmp/err"); then
        inside=${out##*$'\n'} out=${out%$'\n'*}
        is_bare=${out##*$'\n'} gitdir=${out%$'\n'*}
    else
        gitdir=$(g rev-parse --absolute-git-dir 2>"$tmp/err"; echo x)
        gitdir=${gitdir%$'\n'x}
    fi
    if [ "$is_bare" = true ] && [ -e .git/index ]; then
        quiet+=(--work-tree="$PWD")
    elif [ "$inside" != true ]; then
        bare=yes
    fi
    [ -d "$gitdir" ]
}

# its remote (the origin, else the first by name) and the remote's URL; who
# commits, where nobody is configured
read_config() {
    local line key value name first=''
    local -A urls=()
    who=(-c user.name=courier -c user.email=courier@localhost)
    while IFS= read -r -d '' line; do
        key=${line%%$'\n'*} value=${line#*$'\n'}
        case $key in
        user.name) [ -z "$value" ] || who[1]=user.name=$value ;;
        user.email) [ -z "$value" ] || who[3]=user.email=$value ;;
        remote.?*.*)
            name=${key#remote.} name=${name%.*}
            [ -n "$first" ] && [[ ! $name < $first ]] || first=$name
            [ "$key" != "remote.$name.url" ] || urls[$name]=$value
            ;;
        esac
    done < <(g config -z --get-regexp '^(user[.](name|email)|remote[.].*)$')
    remote=$first
    [ -z "${urls[origin]:-}" ] || remote=origin
    url=
    [ -z "$remote" ] || url=${urls[$remote]:-}
}

# its branches (heads: "COMMIT NAME"), what remotes have (on_remote), where
# HEAD is (current, head), our earlier snapshot (previous)
read_refs() {
    local sha ref more
    heads=() on_remote=() current='' head='' previous='' stash='' usual=''
    while read -r sha ref more; do
        case $ref in
        refs/heads/*)
            heads+=("$sha ${ref#refs/heads/}")
            [[ $more != '*'* ]] || current=${ref#refs/heads/} head=$sha
            ;;
        refs/stash) stash=$sha ;;
        refs/courier/snapshot) previous=$sha ;;
        refs/remotes/*)
            on_remote[$sha]=1
            [ "$ref" != "refs/remotes/$remote/HEAD" ] || usual=$more
            ;;
        esac
    done < <(g for-each-ref --format='%(objectname) %(refname) %(HEAD)%(symref)' \
        refs/heads refs/stash refs/courier/snapshot refs/remotes)
    [ -z "$current" ] || return 0
    # detached, or without a commit yet
    current=$(g symbolic-ref -q HEAD)
    current=${current#refs/heads/}
    head=$(g rev-parse -q --verify HEAD)
}

under_way() {
    local f
    for f in MERGE_HEAD CHERRY_PICK_HEAD REVERT_HEAD BISECT_LOG \
        rebase-merge rebase-apply; do
        [ ! -e "$gitdir/$f" ] || return 0
    done
    return 1
}

# a git that was killed left its lock; one that runs is given a moment
clear_lock() {
    local i
    for i in 1 2; do
        [ -e "$gitdir/index.lock" ] || return 0
        sleep 0.5
    done
    rm -f -- "$gitdir/index.lock"
}

# what is not to be added, as pathspecs: other repositories inside this one,
# and large files that nobody added
write_pathspecs() {
    local r f
    printf '.\0' >"$tmp/spec"
    for r in "${repositories[@]}"; do
        [[ $r == "$dir"/* ]] || continue
        r=${r#"$dir"/}
        g check-ignore -q -- "./$r" && continue
        g --literal-pathspecs ls-files -s -- "$r" 2>/dev/null |
            grep -q '^160000' ||
            printf ':(exclude,literal)%s\0' "$r" >>"$tmp/spec"
    done
    while IFS= read -r -d '' f; do
        f=${f#./}
        [ -z "$(g --literal-pathspecs ls-files -- "$f" | head -c 1)" ] ||
            continue
        g check-ignore -q -- "./$f" && continue
        printf ':(exclude,literal)%s\0' "$f" >>"$tmp/spec"
        note="$note; left out as too large: $(field "$f")"
    done < <(find . -name .git -prune -o -type f -size +${big}M -print0)
}

add_all() {
    g add -A --ignore-errors --pathspec-from-file="$tmp/spec" \
        --pathspec-file-nul 2>"$tmp/err" && return
    note="$note; $(words "$tmp/err")"
    added=no
}

is_staged() {
    if [ -n "$head" ]; then
        ! g diff --cached --quiet --no-ext-diff 2>/dev/null
    else
        [ -n "$(g ls-files | head -c 1)" ]
    fi
}

commit_here() {
    local committed=
    add_all
    if is_staged; then
        printf '%s\n' "$message" |
            g "${who[@]}" commit -q --no-verify -F - >"$tmp/out" 2>&1 || {
            failure=$(words "$tmp/out")
            return 1
        }
        committed=yes
    fi
    # a save that was given up may have got so far just now: HEAD as it is
    tip=$(g rev-parse -q --verify HEAD)
    [ -z "$committed" ] || made=$tip
}

# the same without moving HEAD or touching the index
commit_beside() {
    local tree parents=() p old=$previous
    [ ! -e "$gitdir/index" ] || cp -- "$gitdir/index" "$tmp/index"
    export GIT_INDEX_FILE=$tmp/index
    add_all
    tree=$(g write-tree 2>"$tmp/err") || failure=$(words "$tmp/err")
    unset GIT_INDEX_FILE
    rm -f -- "$tmp/index"
    [ -n "$tree" ] || return 1
    tip=$(g rev-parse -q --verify HEAD)
    [ "$tree" != "$(g rev-parse -q --verify 'HEAD^{tree}')" ] || return 0
    [ -z "$tip" ] || parents=(-p "$tip")
    if [ -e "$gitdir/MERGE_HEAD" ]; then
        while read -r p; do
            parents+=(-p "$p")
        done <"$gitdir/MERGE_HEAD"
    fi
    if [ -n "$old" ] && [ "$(g rev-parse "$old^{tree}")" = "$tree" ] &&
        [ "$(g rev-parse -q --verify "$old^1")" = "$tip" ]; then
        tip=$old
        return 0
    fi
    tip=$(printf '%s\n' "$message" |
        g "${who[@]}" commit-tree "$tree" "${parents[@]}" 2>"$tmp/err") || {
        failure=$(words "$tmp/err")
        return 1
    }
    made=$tip
    g update-ref refs/courier/snapshot "$tip"
}

# main, master and the remote's default are for people, unless asked for
is_protected() {
    [ "$1" != "$branch" ] || return 1
    case $1 in main | master) return 0 ;; esac
    [ "$usual" = "refs/remotes/$remote/$1" ]
}

is_new() { # no remote is known to have it
    [ -z "${on_remote[$1]:-}" ] || return 1
    [ "$1" != "$made" ] || return 0
    [ -n "$(g rev-list -n 1 "$1" --not --remotes 2>/dev/null)" ]
}

push_large_files() { # --no-verify skips the hook that would do it
    [ -e .gitattributes ] && grep -qs 'filter=lfs' .gitattributes &&
        g lfs version >/dev/null 2>&1 || return 0
    within 600 lfs push "$remote" "$1" >/dev/null 2>&1
}

try_push() { # COMMIT BRANCH [OPTION]
    within 300 push -q --no-verify ${3:+"$3"} "$remote" \
        "$1:refs/heads/$2" >"$tmp/out" 2>&1
}

tell_pushed() { # BRANCH COMMIT: the first few by name
    if ((++told <= 8)); then
        pushed="$pushed, $1 ${2:0:12}"
    fi
}

push_one() { # COMMIT BRANCH
    local other=$2 why
    [ "$2" != "$branch" ] || other=${meant:-$branch}
    other=${other//\//-}-${1:0:8}
    push_large_files "$1"
    if try_push "$1" "$2"; then
        tell_pushed "$2" "$1"
        return 0
    fi
    why=$(grep -v '^To ' "$tmp/out" >"$tmp/why"; words "$tmp/why")
    failure=$why
    grep -q 'rejected\]' "$tmp/out" || return 1
    # what is there is our own earlier commit beside HEAD: it gives way
    if [ -n "$previous" ] && [ "$2" = "$branch" ] &&
        try_push "$1" "$2" "--force-with-lease=refs/heads/$2:$previous"; then
        tell_pushed "$2" "$1"
    # the branch there has other commits, or may not be written: beside it
    elif try_push "$1" "$other"; then
        tell_pushed "$other" "$1"
        note="$note; $2 was refused: $why"
    else
        return 1
    fi
    failure=''
}

# what a remote had may be gone: somebody removed or reset the branch
look_again() {
    [ -n "$fresh" ] && [ -n "$remote" ] || return 0
    within 60 fetch -q --prune --no-tags "$remote" \
        "+refs/heads/*:refs/remotes/$remote/*" >/dev/null 2>&1
    read_refs
}

# "COMMIT BRANCH" of all that no remote has, the current one first
list_new() {
    local ref sha b
    if [ -n "$tip" ] && is_new "$tip"; then
        b=$current
        if [ -z "$b" ] || [ "$b" = "$meant" ] || is_protected "$b"; then
            b=$branch
        fi
        echo "$tip $b"
    fi
    for ref in "${heads[@]}"; do
        sha=${ref%% *} b=${ref#* }
        [ "$b" != "$current" ] && [ "$sha" != "$tip" ] && is_new "$sha" ||
            continue
        if [ "$b" = "$meant" ]; then
            b=$branch
        elif is_protected "$b"; then
            b=$branch-$b
        fi
        echo "$sha $b"
    done
    [ -z "$stash" ] || ! is_new "$stash" || echo "$stash $branch-stash"
}

push_all() {
    local sha b
    while read -r sha b; do
        push_one "$sha" "$b" || return 1
    done <"$tmp/new"
    [ "$tip" = "$previous" ] || [ -z "$previous" ] ||
        under_way || g update-ref -d refs/courier/snapshot "$previous"
}

report() { # RESULT WORDS
    local where=$url rest=${url#*//}
    # without the name and the password
    rest=${rest%%/*}
    [[ $url != *//* || $rest != *@* ]] || where=${url/"${rest%%@*}@"/}
    printf '%s\t%s\t%s\t%s\n' "$(field "${where:--}")" "$(field "$dir")" "$1" \
        "$(field "$2")"
}

save() {
    note='' failure='' pushed='' made='' tip='' added=yes bare='' told=0
    remote='' url='' quiet=("${plain[@]}")
    cd -- "$dir" 2>/dev/null || return
    if ! read_kind; then
        report failed "$(words "$tmp/err")"
        return
    fi
    read_config
    read_refs
    clear_lock
    [ -n "$bare" ] || write_pathspecs
    if [ -n "$bare" ]; then
        tip=$head
    elif under_way || { [ -z "$current" ] && [ -n "$head" ]; }; then
        commit_beside
    else
        commit_here
    fi
    if [ -n "$failure" ]; then
        report failed "$failure$note"
        return
    fi
    look_again
    list_new >"$tmp/new"
    if [ ! -s "$tmp/new" ]; then
        if [ $added = no ]; then
            report failed "${note#; }"
        else
            report nothing "${note#; }"
        fi
    elif [ -z "$remote" ]; then
        report commit-only "it has no remote$note"
    elif [ -z "$push" ]; then
        report commit-only "$(head -n 1 "$tmp/new" |
            sed 's/^\([0-9a-f]\{12\}\)[0-9a-f]* \(.*\)$/\2 \1/')$note"
    elif push_all; then
        [ "$told" -le 8 ] || note=", and $((told - 8)) more$note"
        report pushed "${pushed#, }$note"
    else
        report failed "$failure$note"
    fi
}

declare -A on_remote=()
find_repositories
for dir in "${repositories[@]:0:200}"; do
    save 9<&-
done
exit 0
