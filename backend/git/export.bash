# export: dir branch meant out max
# A repository that can't be read any more comes home as its files.
tree=yes broken=
# The repository's own refs are left alone: the bundle is made of a throw-away
# one that shares its objects.
(umask 077 && mkdir -p -- "$out") 2>"$tmp/err" || die "$(words "$tmp/err")"
rm -f -- "$out/commits.bundle" "$out/worktree.patch" "$out/untracked.tar"
cd -- "$dir" 2>"$tmp/err" || die "$(words "$tmp/err")"
is_tree || tree=no
objects=$(g rev-parse --path-format=absolute --git-path objects 2>/dev/null) ||
    broken=yes
tip=$(g rev-parse -q --verify HEAD)
snapshot=$(g rev-parse -q --verify refs/courier/snapshot)
if [ -n "$snapshot" ] &&
    [ "$(g rev-parse -q --verify "$snapshot^1")" = "$tip" ]; then
    tip=$snapshot
fi
empty=$(g hash-object -t tree /dev/null)

bounded() { # FILE COMMAND...: its output, given up beyond max bytes
    local f=$1
    shift
    if ! (ulimit -f $((max / 1024)) && exec "$@") >"$out/$f" 2>"$tmp/err"
    then
        rm -f -- "$out/$f"
        printf 'left-out\t-\t%s: %s\n' "$f" "$(words "$tmp/err")"
    elif [ ! -s "$out/$f" ]; then
        rm -f -- "$out/$f"
    fi
}

there() {
    g --git-dir="$tmp/there" "$@"
}

make_bundle() {
    local sha ref b not new
    [ -n "$tip" ] || return 0
    git init -q --bare --template= "$tmp/there" || return 1
    cp -- "$(g rev-parse --git-path shallow)" "$tmp/there/" 2>/dev/null
    export GIT_OBJECT_DIRECTORY=$objects
    g for-each-ref --format='%(objectname) %(refname)' refs/heads \
        refs/stash >"$tmp/refs"
    mapfile -t not < <(g for-each-ref --format='^%(objectname)' \
        refs/remotes | sort -u | head -n 1000)
    there update-ref "refs/heads/$branch" "$tip" || return
    while read -r sha ref; do
        b=${ref#refs/heads/}
        b=${b/#refs\/stash/$branch-stash}
        [ "$sha" != "$tip" ] || continue
        [ "$b" != "$branch" ] && [ "$b" != "$meant" ] || b=$branch-local
        [ -z "$(g rev-list -n 1 "$sha" "${not[@]}")" ] ||
            there update-ref "refs/heads/$b" "$sha"
    done <"$tmp/refs"
    new=$(there rev-list -n 1 --branches "${not[@]}") || return
    if [ -n "$new" ]; then
        bounded commits.bundle git "${quiet[@]}" --git-dir="$tmp/there" \
            bundle create -q - --branches "${not[@]}"
        [ -e "$out/commits.bundle" ]
    fi
}

# against an index that is the tip's, not the agent's
make_index() {
    export GIT_INDEX_FILE=$tmp/index
    g read-tree "${tip:-$empty}" 2>/dev/null || broken=yes
}

make_patch() {
    [ -z "$broken" ] || return 0
    bounded worktree.patch git "${quiet[@]}" diff --binary --no-ext-diff \
        --no-textconv --no-color "${tip:-$empty}" --
}

# files that neither the tip has nor a rule ignores, while they fit
make_tar() {
    local size name total=0 n=0
    if [ -n "$broken" ]; then
        find . -name .git -prune -o \( -type f -o -type l \) -printf '%P\0'
    else
        g ls-files -o --exclude-standard -z
    fi >"$tmp/others" 2>/dev/null
    : >"$tmp/take"
    while IFS= read -r -d '' name; do
        size=${name%% *} name=${name#* }
        [[ $name != */ ]] || continue
        if ((total + size + 1024 > max)); then
            ((n++ >= 50)) ||
                printf 'left-out\t%s\t%s\n' "$size" "$(field "$name")"
            continue
        fi
        ((total += size + 1024))
        printf '%s\0' "$name" >&3
    done 3>"$tmp/take" < <(xargs -0 -r stat --printf='%s %n\0' -- \
        <"$tmp/others" 2>/dev/null)
    [ -s "$tmp/take" ] || return 0
    tar --no-recursion --null --verbatim-files-from -T "$tmp/take" \
        -cf "$out/untracked.tar" 2>"$tmp/err"
}

[ -n "$broken" ] || make_bundle || broken=yes
unset GIT_OBJECT_DIRECTORY
[ $tree = no ] && [ -z "$broken" ] || {
    make_index
    make_patch
    make_tar
}
for f in commits.bundle worktree.patch untracked.tar; do
    [ ! -e "$out/$f" ] || printf '%s\t%s\n' "$f" "$(stat -c %s "$out/$f")"
done
exit 0
